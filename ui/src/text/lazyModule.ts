// A module that is loaded on first use and available synchronously from then on, so that nothing moves when a streamed
// answer becomes a persisted one.
import { useEffect, useSyncExternalStore } from "react"

/** Return a hook that returns the module, or null while it is not loaded (or not enabled). */
export function lazyModule<Module>(load: () => Promise<Module>): (enabled: boolean) => Module | null {
  let module: Module | null = null
  let isLoading = false
  const listeners = new Set<() => void>()
  const subscribe = (listener: () => void) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }

  return (enabled) => {
    const present = useSyncExternalStore(subscribe, () => module)
    useEffect(() => {
      if (!enabled || isLoading) return
      isLoading = true
      load().then(
        (loaded) => {
          module = loaded
          for (const listener of listeners) listener()
        },
        () => {
          // The text is shown as source; the next component that needs the module tries again.
          isLoading = false
        },
      )
    }, [enabled])
    return enabled ? present : null
  }
}
