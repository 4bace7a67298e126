// The seconds of something that goes on, and then its length.
import { useEffect, useState } from "react"

import type { Elapsed } from "../stream/elapsed"
import { formatDuration } from "./format"

interface Props {
  elapsed: Elapsed
  /** The number of seconds from which on it is shown. */
  minimum?: number
}

export function Seconds({ elapsed: { done, since }, minimum = 1 }: Props) {
  const running = since !== null
  const [now, setNow] = useState<number | null>(null)
  useEffect(() => {
    if (!running) return
    setNow(Date.now())
    // More often than the seconds change, so that none is skipped.
    const timer = setInterval(() => setNow(Date.now()), 250)
    return () => clearInterval(timer)
  }, [running])
  const ms = done + (since !== null && now !== null ? Math.max(0, now - since) : 0)
  return ms >= minimum * 1000 ? <span className="seconds">{formatDuration(ms)}</span> : null
}
