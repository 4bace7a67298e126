// What an opened reasoning shows: the timeline, and all parts and tools in order.
import type { ReactNode } from "react"

import type { Answer, ReasoningSegment as Segment, ToolSegment } from "../api/types"
import { CopyButton } from "../text/CopyButton"
import { LongText } from "../text/LongText"
import { plain } from "../text/visible"
import { formatDuration } from "./format"
import type { Step } from "./format"
import { Timeline } from "./Timeline"
import { words } from "../words"

interface Props {
  event: Answer
  steps: readonly Step[]
  drawTool: (segment: ToolSegment) => ReactNode
}

export function ReasoningPanel({ event, steps, drawTool }: Props) {
  const several = steps.flatMap((step) => (step.type === "reasoning" ? step.parts : [])).length > 1
  return (
    <>
      <Timeline event={event} />
      {steps.map((step) => (step.type === "reasoning" ? <Parts key={step.id} event={event} segment={step} several={several} /> : drawTool(step)))}
    </>
  )
}

function Parts({ event, segment, several }: { event: Answer; segment: Segment; several: boolean }) {
  const parts = segment.parts.toSorted((a, b) => a.summary_index - b.summary_index)
  const { missing } = segment.summary ?? {}
  if (parts.length === 0) {
    return <p className="reasoning__thought reasoning__sealed" data-testid="reasoning-sealed" data-segment-id={segment.id}>{missing ? words.reasoning.noSummary[missing] : words.reasoning.sealed}</p>
  }
  return (
    <div className="reasoning__thoughts" data-segment-id={segment.id}>
      {segment.summary && <p className="reasoning__author" data-testid="summary-author">{words.reasoning.summaryBy(plain(segment.summary.author), plain(event.model))}</p>}
      {parts.map((part) => (
        <div key={part.summary_index} className="reasoning__thought">
          {several && (
            <div className="reasoning__head">
              <span className="reasoning__moment">{momentOf(part.created_at - event.created_at)}</span>
              <CopyButton text={part.text} label={words.reasoning.copy} />
            </div>
          )}
          <div
            className="reasoning__part"
            data-testid="reasoning-part"
            data-summary-index={part.summary_index}
            data-complete={part.is_complete}
            data-sequence-number={part.sequence_number}
          >
            <LongText text={part.text} />
            {!part.is_complete && <p className="reasoning__cut">{words.reasoning.cut}</p>}
          </div>
        </div>
      ))}
      {missing && <p className="reasoning__cut">{words.reasoning.restMissing[missing]}</p>}
    </div>
  )
}

const momentOf = (ms: number) => (ms < 1000 ? words.reasoning.atOnce : words.reasoning.after(formatDuration(ms)))
