// Whether an element is, or was, near the visible area of its scroll box.
import { useEffect, useState } from "react"
import type { RefObject } from "react"

/** A distance that is not scrolled in one frame. */
const MARGIN = "1500px 0px"

type Callback = () => void

/** One observer for each scroll box, or the window. */
const observers = new Map<Element | null, { observer: IntersectionObserver; callbacks: Map<Element, Callback> }>()

function observerOf(box: Element | null) {
  const known = observers.get(box)
  if (known) return known
  const callbacks = new Map<Element, Callback>()
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) if (isIntersecting) callbacks.get(target)?.()
    },
    { root: box, rootMargin: MARGIN },
  )
  const made = { observer, callbacks }
  observers.set(box, made)
  return made
}

export function useNear(ref: RefObject<Element | null>, initially: boolean): boolean {
  const [near, setNear] = useState(initially)
  useEffect(() => {
    const element = ref.current
    if (near || !element) return
    const box = element.closest(".table, .overlay, [data-scroller]")
    const { observer, callbacks } = observerOf(box)
    callbacks.set(element, () => setNear(true))
    observer.observe(element)
    return () => {
      callbacks.delete(element)
      observer.unobserve(element)
      if (callbacks.size > 0) return
      observer.disconnect()
      observers.delete(box)
    }
  }, [ref, near])
  return near
}
