// The seconds since a time; counts while `running`, then stops.
import { useEffect, useState } from "react"

import { formatDuration } from "./format"

interface Props {
  since: number
  running: boolean
  /** The number of seconds from which on it is shown. */
  minimum?: number
  /** The browser's clock minus the clock that `since` is from, in milliseconds. */
  skew: number
}

export function Seconds({ since, running, minimum = 1, skew }: Props) {
  const [now, setNow] = useState<number | null>(null)
  useEffect(() => {
    if (!running) return
    setNow(Date.now())
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [running])
  // If it ended before this was mounted, its length is unknown.
  if (now === null) return null
  const passed = Math.floor((now - skew - since) / 1000)
  return passed >= minimum ? <span className="seconds">{formatDuration(passed * 1000)}</span> : null
}
