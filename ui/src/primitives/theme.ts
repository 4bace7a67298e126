// Theme: light, dark, or the system's. The choice is stored in localStorage and as data-theme on the root element; a
// small script that is loaded before the page's own (public/assets/theme-1.js) sets it before the first paint.
import { useSyncExternalStore } from "react"

import { browserStorage } from "../storage"

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
  browserStorage.set(KEY, theme === "system" ? null : theme)
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
