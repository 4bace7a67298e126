// The part of a text that may be rendered now. A text that arrives in large pieces, or is long when it is opened, grows
// by a bounded length in each frame, so that no frame takes long; after a frame that took long, it waits.
import { useEffect, useReducer, useRef } from "react"

import { LIMITS } from "./limits"

/** A frame that took longer is followed by a pause of several times as long, so that the page can be used meanwhile. */
const LONG_MS = 25
const PAUSE = 3

export function usePaced(text: string): string {
  const limit = useRef<number>(LIMITS.step)
  const resume = useRef(0)
  const [, renderAgain] = useReducer((count: number) => count + 1, 0)
  const shown = limit.current < text.length ? text.slice(0, limit.current) : text
  const began = performance.now()
  // This runs when the text was rendered.
  useEffect(() => {
    const took = performance.now() - began
    resume.current = took > LONG_MS ? performance.now() + PAUSE * took : 0
    // `began` belongs to the render of `shown`.
  }, [shown])
  const isBehind = shown.length < text.length
  useEffect(() => {
    const next = () => {
      limit.current = shown.length + LIMITS.step
      if (isBehind) renderAgain()
    }
    const pause = resume.current - performance.now()
    if (pause <= 0 && !isBehind) return next()
    const timer = setTimeout(next, Math.max(pause, 16))
    return () => clearTimeout(timer)
  }, [shown, isBehind])
  return shown
}
