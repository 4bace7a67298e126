// Keeps the height that an answer had while it streamed, until the next question, so that nothing moves when the
// overlay is replaced by the persisted row. The part of that height below the visible area is released.
import { useLayoutEffect } from "react"
import type { RefObject } from "react"

export function useReservedHeight(ref: RefObject<HTMLElement | null>, live: boolean, last: boolean): void {
  useLayoutEffect(() => {
    const element = ref.current
    if (!element || !live) return
    let floor = 0
    let width = element.clientWidth
    const grown = new ResizeObserver(() => {
      if (element.clientWidth !== width) {
        width = element.clientWidth
        floor = 0
        element.style.minBlockSize = ""
      }
      const height = element.getBoundingClientRect().height
      if (height <= floor) return
      floor = height
      element.style.minBlockSize = `${height}px`
    })
    grown.observe(element)
    return () => grown.disconnect()
  }, [ref, live])

  useLayoutEffect(() => {
    const element = ref.current
    if (!element || live) return
    const release = () => {
      element.style.minBlockSize = ""
    }
    if (!last) return release()
    const box = element.closest<HTMLElement>("[data-scroller]")
    if (!box) return
    const trim = () => {
      if (element.style.minBlockSize === "") return
      const { top, bottom } = element.getBoundingClientRect()
      const needed = element.lastElementChild?.getBoundingClientRect().bottom ?? top
      const seen = Math.max(needed, box.getBoundingClientRect().bottom)
      if (seen < bottom) element.style.minBlockSize = `${seen - top}px`
    }
    box.addEventListener("scroll", trim, { passive: true })
    window.addEventListener("resize", release)
    return () => {
      box.removeEventListener("scroll", trim)
      window.removeEventListener("resize", release)
    }
  }, [ref, live, last])
}
