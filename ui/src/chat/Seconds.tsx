// The seconds since a time, counting while it runs; afterwards they stand still.
import { useEffect, useState } from "react"

import { formatDuration } from "./format"

interface Props {
  since: number
  running: boolean
  /** From how many on they are shown. */
  least?: number
  /** Our clock minus the one that `since` is from. */
  skew: number
}

export function Seconds({ since, running, least = 1, skew }: Props) {
  const [now, setNow] = useState<number | null>(null)
  useEffect(() => {
    if (!running) return
    setNow(Date.now())
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [running])
  // What ended before it was seen is not known by its length.
  if (now === null) return null
  const passed = Math.floor((now - skew - since) / 1000)
  return passed >= least ? <span className="seconds">{formatDuration(passed * 1000)}</span> : null
}
