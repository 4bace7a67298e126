// A button that cycles through the themes system, light and dark.
import { HalfIcon, MoonIcon, SunIcon } from "./icons"
import { setTheme, useTheme } from "./theme"

const ICONS = { system: HalfIcon, light: SunIcon, dark: MoonIcon }
const NAMES = { system: "same as the system", light: "light", dark: "dark" }

export function ThemeToggle() {
  const { theme, next } = useTheme()
  const Icon = ICONS[theme]
  const label = `Theme: ${NAMES[theme]}. Change to ${NAMES[next]}`
  return (
    <button type="button" className="icon-button" data-testid="theme-toggle" data-theme-choice={theme} aria-label={label} title={label} onClick={() => setTheme(next)}>
      <Icon />
    </button>
  )
}
