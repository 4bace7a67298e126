// A built-in tool of the provider, such as web search or code execution.
import type { ToolSegment } from "../api/types"
import { ToolCallSegment } from "./ToolCallSegment"

const LABELS: Partial<Record<ToolSegment["type"], { args: string; result: string }>> = {
  web_search_call: { args: "Query", result: "Results" },
  code_interpreter_call: { args: "Code", result: "Output" },
}

export function BuiltInToolSegment({ segment }: { segment: ToolSegment }) {
  const labels = LABELS[segment.type]
  return <ToolCallSegment segment={segment} {...(labels && { labels })} />
}
