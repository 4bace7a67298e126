// “Show Reasoning”: one for each answer, closed by default. Open, it shows all reasoning parts and tools in order, the
// effort, the time and the tokens, and the timeline.
import { useId, useState } from "react"

import type { Answer, ReasoningSegment as Segment } from "../api/types"
import { LongText } from "../text/LongText"
import { useStopFollowing } from "./followEnd"
import { Timeline } from "./Timeline"
import { ToolSegmentOf } from "./ToolSegmentOf"
import { formatDuration, effortOf, reasoningTime, reasoningTokens, formatTokens } from "./format"
import type { Step } from "./format"
import { words } from "../words"

interface Props {
  event: Answer
  /** The steps from the first reasoning on. */
  steps: readonly Step[]
}

export function ReasoningSegment({ event, steps }: Props) {
  const [open, setOpen] = useState(false)
  const panel = useId()
  const stopFollowing = useStopFollowing()
  const meta = metadata(event)
  return (
    <>
      <div className="step-row reasoning__row">
        <button
          type="button"
          className="reasoning__toggle"
          data-testid="show-reasoning"
          aria-expanded={open}
          aria-controls={panel}
          onClick={() => {
            stopFollowing()
            setOpen(!open)
          }}
        >
          <span className="reasoning__chevron" aria-hidden="true" />
          {open ? words.reasoning.hide : words.reasoning.show}
        </button>
        {meta.length > 0 && (
          <span className="reasoning__meta" data-testid="reasoning-meta">
            {meta.map((word) => (
              <span key={word} className="reasoning__fact">{word}</span>
            ))}
          </span>
        )}
      </div>
      <section
        id={panel}
        className={open ? "reasoning__panel reasoning__panel--open" : "reasoning__panel"}
        aria-label={open ? words.reasoning.panel : words.reasoning.tools}
        hidden={!open && steps.every((step) => step.type === "reasoning")}
        {...(open && { "data-testid": "reasoning-panel" })}
      >
        {open && <Timeline event={event} />}
        {steps.map((step) =>
          step.type !== "reasoning" ? <ToolSegmentOf key={step.id} segment={step} /> : open ? <Parts key={step.id} segment={step} /> : null,
        )}
      </section>
    </>
  )
}

function Parts({ segment }: { segment: Segment }) {
  const parts = segment.parts.toSorted((a, b) => a.summary_index - b.summary_index)
  if (parts.length === 0) return <p className="reasoning__sealed" data-testid="reasoning-sealed">{words.reasoning.sealed}</p>
  return (
    <>
      {parts.map((part) => (
        <div
          key={part.summary_index}
          className="reasoning__part"
          data-testid="reasoning-part"
          data-summary-index={part.summary_index}
          data-complete={part.is_complete}
          data-sequence-number={part.sequence_number}
        >
          <LongText text={part.text} />
          {!part.is_complete && <p className="reasoning__cut">{words.reasoning.cut}</p>}
        </div>
      ))}
    </>
  )
}

function metadata(event: Answer): string[] {
  const time = reasoningTime(event)
  const count = reasoningTokens(event)
  const effort = effortOf(event)
  return [time === null ? "" : formatDuration(time), count === null ? "" : formatTokens(count), effort ? words.reasoning.effort(effort) : ""].filter((word) => word !== "")
}
