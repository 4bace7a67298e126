// Whether all of a text is rendered: a very long one grows over several frames.
import { createContext, useCallback, useContext, useLayoutEffect, useMemo, useState } from "react"

const nothing = () => undefined

/** Counts the texts that are not complete yet. */
export const IncompleteContext = createContext<(change: 1 | -1) => void>(nothing)

/** For whoever shows something after texts: whether one of them is incomplete, and what counts them. */
export function useIncomplete(): [isIncomplete: boolean, count: (change: 1 | -1) => void] {
  const [count, setCount] = useState(0)
  const change = useCallback((by: 1 | -1) => setCount((now) => now + by), [])
  return useMemo(() => [count > 0, change], [count, change])
}

/** For a text, before it is painted. */
export function useReportIncomplete(isIncomplete: boolean): void {
  const change = useContext(IncompleteContext)
  useLayoutEffect(() => {
    if (!isIncomplete) return
    change(1)
    return () => change(-1)
  }, [isIncomplete, change])
}
