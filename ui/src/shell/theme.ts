// Light, dark, or as the system has it. The choice stands in localStorage and as data-theme on the root element; a small
// script before the page's own (public/assets/theme-1.js) puts it there before anything is painted.
import { useSyncExternalStore } from "react"

export type Theme = "system" | "light" | "dark"

const KEY = "pellucid-theme"
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" }
const listeners = new Set<() => void>()

function current(): Theme {
  const theme = document.documentElement.dataset.theme
  return theme === "light" || theme === "dark" ? theme : "system"
}

export function setTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = theme
  try {
    if (theme === "system") localStorage.removeItem(KEY)
    else localStorage.setItem(KEY, theme)
  } catch {
    // A browser that keeps nothing still shows the theme until it is closed.
  }
  for (const listener of listeners) listener()
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function useTheme(): { theme: Theme; next: Theme } {
  const theme = useSyncExternalStore(subscribe, current)
  return { theme, next: NEXT[theme] }
}
