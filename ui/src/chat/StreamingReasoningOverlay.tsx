// Live reasoning: consecutive parts between tools, each with a spinner until it is complete. No controls; removed with
// message_final.
import { memo, useLayoutEffect, useRef } from "react"

import type { Elapsed } from "../stream/elapsed"
import { useTopic } from "../stream/hooks"
import { topics } from "../stream/streamingBus"
import type { LivePart, LiveSealed } from "../stream/streamingBus"
import { LongText } from "../text/LongText"
import { plain } from "../text/visible"
import { Seconds } from "./Seconds"
import { words } from "../words"

interface PartProps {
  eventId: string
  part: LivePart
  complete: boolean
}

const OverlayPart = memo(function OverlayPart({ eventId, part, complete }: PartProps) {
  useTopic(topics.part(eventId, part.segment_id, part.summary_index))
  return (
    <div className="overlay__part" data-testid="overlay-part" data-summary-index={part.summary_index} data-complete={complete}>
      {complete ? <span className="overlay__done" aria-hidden="true" /> : <span className="spinner" data-testid="part-spinner" aria-hidden="true" />}
      <LongText text={part.text.text} streaming={!complete} />
    </div>
  )
})

interface HeadProps {
  eventId: string
  thinking: boolean
  elapsed: Elapsed
  /** The other model that writes its summaries. */
  author: { name: string; writing: boolean } | undefined
  /** A thought that goes on is shown below, with a spinner of its own. */
  shown: boolean
  /** The overlay is compact. */
  compact: boolean
  /** The model began to think below the compact overlay's text, which moves down slowly. */
  late: boolean
  /** The part whose last line is shown in the row, where there is no space for more. */
  line: LivePart | undefined
}

const Line = memo(function Line({ eventId, part }: { eventId: string; part: LivePart }) {
  useTopic(topics.part(eventId, part.segment_id, part.summary_index))
  const box = useRef<HTMLSpanElement>(null)
  const text = part.text.tail(400).trimEnd()
  const line = plain(text.slice(text.lastIndexOf("\n") + 1).replaceAll("**", ""))
  useLayoutEffect(() => {
    const element = box.current
    if (!element) return
    // Scrolling does not count as a layout shift; moving the text would.
    element.scrollLeft = getComputedStyle(element).direction === "rtl" ? -element.scrollWidth : element.scrollWidth
    // `line` is a dependency only to run the effect when it changes.
  }, [line])
  return <span className="overlay__line" ref={box} dir="auto" aria-hidden="true">{line}</span>
})

/** “Thinking… 12 s”, and the final time afterwards. */
function ThinkingHead({ eventId, thinking, shown, elapsed, author, late, line }: HeadProps) {
  const waits = !thinking && author?.writing === true
  return (
    <div className={late ? "step-row step-row--late overlay__head" : "step-row overlay__head"}>
      {(thinking && !shown) || waits ? <span className="spinner" aria-hidden="true" /> : <span className="overlay__done" aria-hidden="true" />}
      <span className="overlay__label">{thinking ? words.reasoning.thinking : words.reasoning.thought}</span>
      <Seconds elapsed={elapsed} />
      {waits && author && <span className="overlay__author">{words.reasoning.summarizing(plain(author.name))}</span>}
      {line && <Line eventId={eventId} part={line} />}
    </div>
  )
}

interface Props {
  eventId: string
  steps: readonly (LivePart | LiveSealed)[]
  /** Only the first group has a head. */
  head?: HeadProps
}

export function StreamingReasoningOverlay({ eventId, steps, head }: Props) {
  return (
    <div className="overlay__reasoning" data-testid="reasoning-overlay">
      {head && <ThinkingHead key={`${head.compact}`} {...head} />}
      <div className="overlay__parts">
        {steps.map((step) =>
          step.kind === "part" ? <OverlayPart key={step.key} eventId={eventId} part={step} complete={step.complete} /> : null,
        )}
      </div>
    </div>
  )
}
