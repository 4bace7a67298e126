// A button that cycles through the themes system, light and dark.
import { HalfIcon, MoonIcon, SunIcon } from "./icons"
import { setTheme, useTheme } from "./theme"
import { words } from "../words"

const ICONS = { system: HalfIcon, light: SunIcon, dark: MoonIcon }

export function ThemeToggle() {
  const { theme, next } = useTheme()
  const Icon = ICONS[theme]
  const label = words.theme.label(words.theme.names[theme], words.theme.names[next])
  return (
    <button type="button" className="icon-button" data-testid="theme-toggle" data-theme-choice={theme} aria-label={label} title={label} onClick={() => setTheme(next)}>
      <Icon />
    </button>
  )
}
