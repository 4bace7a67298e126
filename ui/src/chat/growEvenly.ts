// Rows that appear above text push it down by few pixels in each frame, however long a frame takes: with a clock, one
// long frame would be a jump.
import { useLayoutEffect, useRef } from "react"
import type { AnimationEvent } from "react"

const FRAME_MS = 1000 / 60
const PIXELS_PER_FRAME = 2

function play(animation: Animation, end: number) {
  animation.pause()
  let at = 0
  const next = () => {
    // Its element is gone.
    if (animation.playState === "idle") return
    if (at >= end) return animation.finish()
    animation.currentTime = at
    at += FRAME_MS
    requestAnimationFrame(next)
  }
  next()
}

/** Play the animation of a late row, which the style sheet starts and pauses. */
export function growRow({ target }: AnimationEvent<HTMLElement>) {
  const animation = (target as Element).getAnimations().find((one) => one instanceof CSSAnimation && one.animationName === "grow")
  const end = animation?.effect?.getComputedTiming().endTime
  if (animation && typeof end === "number") play(animation, end)
}

/**
 * A box that grows from the height that it had while the answer streamed to that of the persisted rows: the last of them
 * may still have been growing.
 */
export function useGrowth(isFinal: boolean) {
  const box = useRef<HTMLDivElement>(null)
  const wasFinal = useRef(isFinal)
  // The height before this render changes the rows.
  const before = isFinal && !wasFinal.current ? (box.current?.offsetHeight ?? 0) : 0
  useLayoutEffect(() => {
    wasFinal.current = isFinal
    const element = box.current
    if (!element || before === 0 || matchMedia("(prefers-reduced-motion)").matches) return
    const after = element.offsetHeight
    if (after <= before) return
    const end = ((after - before) / PIXELS_PER_FRAME) * FRAME_MS
    play(element.animate([{ blockSize: `${before}px`, overflow: "clip" }, { blockSize: `${after}px`, overflow: "clip" }], end), end)
    // `before` is measured in the render in which `isFinal` changes.
  }, [isFinal])
  return box
}
