// The chosen theme, before the first paint. The number in the name changes with the file: it is cached for ever.
try {
  const theme = localStorage.getItem("pellucid-theme")
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme
} catch {
  // As the system has it.
}
