// A finished tool call: one row that opens to show arguments and result as they are.
import { lazy, Suspense, useId } from "react"

import type { Answer, ToolSegment } from "../api/types"
import { useStopFollowing } from "./followEnd"
import { formatDuration, toolTime } from "./format"
import { sourcesIn } from "./citations"
import { ToolRow } from "./ToolRow"

const ToolBody = lazy(() => import("./ToolBody").then(({ ToolBody }) => ({ default: ToolBody })))

interface Props {
  event: Answer
  segment: ToolSegment
  open: boolean
  onOpen: (open: boolean) => void
}

export function ToolCallSegment({ event, segment, open, onOpen }: Props) {
  const body = useId()
  const stopFollowing = useStopFollowing()
  const time = toolTime(event, segment) ?? 0
  return (
    <div
      className="tool"
      data-testid="tool-segment"
      data-call-id={segment.call_id}
      data-segment-id={segment.id}
      data-status={segment.status}
      data-sequence-number={segment.sequence_number}
    >
      <button
        type="button"
        className="step-row tool__row tool__toggle"
        aria-expanded={open}
        aria-controls={open ? body : undefined}
        onClick={() => {
          stopFollowing()
          onOpen(!open)
        }}
      >
        <ToolRow
          name={segment.name}
          args={segment.args}
          status={segment.status}
          sources={segment.type === "tool_call" ? 0 : sourcesIn(segment.result).length}
          time={time >= 1000 ? formatDuration(time) : null}
        />
      </button>
      {open && (
        <div className="tool__body" id={body}>
          <Suspense>
            <ToolBody segment={segment} />
          </Suspense>
        </div>
      )}
    </div>
  )
}
