// Live tools: one row for each call, with its progress. No controls.
import { memo } from "react"

import { toolElapsed } from "../stream/elapsed"
import { useLiveTool } from "../stream/hooks"
import type { LiveTool } from "../stream/streamingBus"
import { visible } from "../text/visible"
import { sourcesIn } from "./citations"
import type { Source } from "./citations"
import { preview, toolIsOver } from "./format"
import { Seconds } from "./Seconds"
import { outputOf } from "./toolLine"
import { ToolRow } from "./ToolRow"
import { words } from "../words"

interface ToolProps {
  eventId: string
  callId: string
  skew: number
  /** The tool was called below the compact overlay's text, which moves down slowly. */
  late: boolean
}

const OverlayTool = memo(function OverlayTool({ eventId, callId, skew, late }: ToolProps) {
  const tool = useLiveTool(eventId, callId)
  if (!tool) return null
  const over = toolIsOver(tool.status)
  const logs = tool.logs.tail(2000)
  const sources = tool.type === "tool_call" ? [] : sourcesIn(tool.result)
  const result = tool.error ?? resultLine(tool, sources)
  const elapsed = toolElapsed(tool, over, skew)
  return (
    <div className="overlay__tool" data-testid="overlay-tool" data-call-id={callId} data-status={tool.status}>
      <div className={late ? "step-row step-row--late tool__row" : "step-row tool__row"}>
        <ToolRow
          name={tool.name}
          args={tool.args_preview}
          status={tool.status}
          sources={over ? sources.length : 0}
          time={over && elapsed.done < 1000 ? null : <Seconds elapsed={elapsed} />}
        >
          {tool.progress !== null && !over && (
            <progress className="tool__progress" aria-label={words.tools.progress} max={1} value={tool.progress > 1 ? tool.progress / 100 : tool.progress} />
          )}
        </ToolRow>
      </div>
      <div className="overlay__more">
        {logs && <pre className="tool__logs" dir="auto">{visible(logs)}</pre>}
        {over && result && <p className="tool__result" dir="auto">{visible(result.slice(0, 400))}</p>}
      </div>
    </div>
  )
})

/** The beginning of the result, for people if possible: hosts, or what code wrote. */
function resultLine({ type, result }: LiveTool, sources: readonly Source[]): string {
  if (sources.length > 0) return sources.map((source) => source.host).join(", ")
  return (type === "code_interpreter_call" && outputOf(result)) || preview(result)
}

interface Props {
  eventId: string
  tools: readonly LiveTool[]
  skew: number
  /** The overlay is compact. Its rows are other elements than before: they appear in their places, and do not move there. */
  compact: boolean
  /** Those whose rows come below text. */
  late: ReadonlySet<LiveTool>
}

export function StreamingToolsOverlay({ eventId, tools, skew, compact, late }: Props) {
  return (
    <div className="overlay__tools" data-testid="tools-overlay">
      {tools.map((tool) => (
        <OverlayTool key={`${tool.call_id} ${compact}`} eventId={eventId} callId={tool.call_id} skew={skew} late={late.has(tool)} />
      ))}
    </div>
  )
}
