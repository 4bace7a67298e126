// A module that is loaded on first use and available synchronously from then on, so that nothing moves when a streamed
// answer becomes a persisted one.
import { useEffect, useSyncExternalStore } from "react"

export interface LazyModule<Module> {
  /** Return the module, or null while it is not loaded (or not enabled). */
  (enabled: boolean): Module | null
  /** Load it now; resolves when it is loaded, or cannot be. */
  load: () => Promise<void>
}

/** Return a hook that returns the module. */
export function lazyModule<Module>(importModule: () => Promise<Module>): LazyModule<Module> {
  let module: Module | null = null
  let loading: Promise<void> | null = null
  const listeners = new Set<() => void>()
  const subscribe = (listener: () => void) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }

  const load = () =>
    (loading ??= importModule().then(
      (loaded) => {
        module = loaded
        for (const listener of listeners) listener()
      },
      () => {
        // The text is shown as source; the next component that needs the module tries again.
        loading = null
      },
    ))

  const useModule = (enabled: boolean) => {
    const present = useSyncExternalStore(subscribe, () => module)
    useEffect(() => {
      if (enabled) void load()
    }, [enabled])
    return enabled ? present : null
  }
  return Object.assign(useModule, { load })
}
