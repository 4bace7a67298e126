// A finished tool call: one row that opens to show arguments and result.
import { useId, useState } from "react"

import type { ToolSegment } from "../api/types"
import { plain, visible } from "../text/visible"
import { useStopFollowing } from "./followEnd"
import { preview, formatJson, toolName, toolStatus } from "./format"
import { words } from "../words"

interface Props {
  segment: ToolSegment
  /** Labels for the arguments and the result. */
  labels?: { args: string; result: string }
}

export function ToolCallSegment({ segment, labels = { args: words.tools.arguments, result: words.tools.result } }: Props) {
  const [open, setOpen] = useState(false)
  const body = useId()
  const stopFollowing = useStopFollowing()
  return (
    <div className="tool" data-testid="tool-segment" data-call-id={segment.call_id} data-status={segment.status} data-sequence-number={segment.sequence_number}>
      <button
        type="button"
        className="step-row tool__row tool__toggle"
        aria-expanded={open}
        aria-controls={open ? body : undefined}
        onClick={() => {
          stopFollowing()
          setOpen(!open)
        }}
      >
        <span className={`tool__mark tool__mark--${segment.status}`} aria-hidden="true" />
        <span className="tool__name">{plain(toolName(segment))}</span>
        <span className="tool__preview" dir="auto">{plain(preview(segment.args))}</span>
        <span className="tool__status">{toolStatus(segment.status)}</span>
      </button>
      {open && (
        <div className="tool__body" id={body}>
          <Value name={labels.args} text={formatJson(segment.args)} />
          {segment.error === undefined ? <Value name={labels.result} text={formatJson(segment.result)} /> : <Value name={words.tools.error} text={segment.error} />}
        </div>
      )}
    </div>
  )
}

function Value({ name, text }: { name: string; text: string }) {
  if (text === "") return null
  return (
    <div className="tool__value">
      <div className="tool__label">{name}</div>
      {/* A scrolling box must be reachable by keyboard. */}
      <pre className="tool__text" dir="auto" tabIndex={0} aria-label={name}>{visible(text)}</pre>
    </div>
  )
}
