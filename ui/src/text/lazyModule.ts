// A module that is loaded when first needed, and at hand without waiting from then on: what was drawn with it once is
// drawn with it at once (nothing moves when a streamed answer becomes a kept one).
import { useEffect, useSyncExternalStore } from "react"

/** A hook that gives the module, or null while it is not there (or not wanted). */
export function lazyModule<Module>(load: () => Promise<Module>): (wanted: boolean) => Module | null {
  let module: Module | null = null
  let isLoading = false
  const listeners = new Set<() => void>()
  const subscribe = (listener: () => void) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }

  return (wanted) => {
    const present = useSyncExternalStore(subscribe, () => module)
    useEffect(() => {
      if (!wanted || isLoading) return
      isLoading = true
      load().then(
        (loaded) => {
          module = loaded
          for (const listener of listeners) listener()
        },
        () => {
          // Without it the text stands as it is written; the next one that needs it asks again.
          isLoading = false
        },
      )
    }, [wanted])
    return wanted ? present : null
  }
}
