// A scroll box that follows its growing content while the reader is at the end. Scrolling up stops it; scrolling back
// to the end resumes it.
import { createContext, useCallback, useContext, useEffect, useRef, useState } from "react"
import type { RefObject } from "react"

const NEAR_PX = 32

export interface Follow {
  /** The scroll box, and the growing content in it. */
  box: RefObject<HTMLDivElement | null>
  inner: RefObject<HTMLDivElement | null>
  /** Whether the reader is at the end. */
  atEnd: boolean
  toEnd: () => void
  /** Do not follow what grows now: the user opened something. */
  stopFollowing: () => void
}

export function useFollowEnd(): Follow {
  const box = useRef<HTMLDivElement>(null)
  const inner = useRef<HTMLDivElement>(null)
  const following = useRef(true)
  const [atEnd, setAtEnd] = useState(true)

  const setFollowing = useCallback((isFollowing: boolean) => {
    following.current = isFollowing
    // While the box follows, the browser's anchoring would move it up when something above the end becomes smaller.
    if (box.current) box.current.style.overflowAnchor = isFollowing ? "none" : ""
  }, [])

  const toEnd = useCallback(() => {
    setFollowing(true)
    setAtEnd(true)
    const element = box.current
    if (element) element.scrollTop = element.scrollHeight
  }, [setFollowing])

  const stopFollowing = useCallback(() => setFollowing(false), [setFollowing])

  useEffect(() => {
    const element = box.current
    const content = inner.current
    if (!element || !content) return
    setFollowing(following.current)
    let top = element.scrollTop
    let height = element.scrollHeight
    const left = () => element.scrollHeight - element.clientHeight - element.scrollTop
    const scrolled = () => {
      const up = element.scrollTop < top - 1 && element.scrollHeight >= height
      if (left() <= NEAR_PX) setFollowing(!up || left() <= 1)
      else if (up) setFollowing(false)
      top = element.scrollTop
      height = element.scrollHeight
      setAtEnd(following.current || left() <= NEAR_PX)
    }
    const grown = new ResizeObserver(() => {
      if (following.current) element.scrollTop = element.scrollHeight
      top = element.scrollTop
      height = element.scrollHeight
      setAtEnd(following.current || left() <= NEAR_PX)
    })
    element.addEventListener("scroll", scrolled, { passive: true })
    grown.observe(content)
    grown.observe(element)
    return () => {
      element.removeEventListener("scroll", scrolled)
      grown.disconnect()
    }
  }, [setFollowing])

  return { box, inner, atEnd, toEnd, stopFollowing }
}

export const StopFollowingContext = createContext<() => void>(() => undefined)

/** To be called before the user opens something. */
export const useStopFollowing = () => useContext(StopFollowingContext)
