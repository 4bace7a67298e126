// Whether the window is too narrow for the sidebar.
import { useSyncExternalStore } from "react"

const query = () => window.matchMedia("(width < 52rem)")

function subscribe(listener: () => void): () => void {
  const media = query()
  media.addEventListener("change", listener)
  return () => media.removeEventListener("change", listener)
}

export function useNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => query().matches)
}
