// Live tools: one row for each call, with its progress. No controls.
import { memo } from "react"

import { useLiveTool } from "../stream/hooks"
import type { LiveTool } from "../stream/streamingBus"
import { plain, visible } from "../text/visible"
import { preview, toolIsOver, toolName, toolStatus } from "./format"
import { words } from "../words"

interface ToolProps {
  eventId: string
  callId: string
}

const OverlayTool = memo(function OverlayTool({ eventId, callId }: ToolProps) {
  const tool = useLiveTool(eventId, callId)
  if (!tool) return null
  const over = toolIsOver(tool.status)
  const logs = tool.logs.tail(2000)
  const result = tool.error ?? preview(tool.result)
  return (
    <div className="overlay__tool" data-testid="overlay-tool" data-call-id={callId} data-status={tool.status}>
      <div className="step-row tool__row">
        {over ? <span className={`tool__mark tool__mark--${tool.status}`} aria-hidden="true" /> : <span className="spinner" aria-hidden="true" />}
        <span className="tool__name">{plain(toolName(tool))}</span>
        <span className="tool__preview" dir="auto">{plain(preview(tool.args_preview))}</span>
        {tool.progress !== null && !over && (
          <progress className="tool__progress" aria-label={words.tools.progress} max={1} value={tool.progress > 1 ? tool.progress / 100 : tool.progress} />
        )}
        <span className="tool__status">{plain(toolStatus(tool.status))}</span>
      </div>
      <div className="overlay__more">
        {logs && <pre className="tool__logs" dir="auto">{visible(logs)}</pre>}
        {over && result && <p className="tool__result" dir="auto">{visible(result.slice(0, 400))}</p>}
      </div>
    </div>
  )
})

interface Props {
  eventId: string
  tools: readonly LiveTool[]
}

export function StreamingToolsOverlay({ eventId, tools }: Props) {
  return (
    <div className="overlay__tools" data-testid="tools-overlay">
      {tools.map((tool) => (
        <OverlayTool key={tool.call_id} eventId={eventId} callId={tool.call_id} />
      ))}
    </div>
  )
}
