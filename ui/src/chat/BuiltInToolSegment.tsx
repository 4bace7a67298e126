// A built-in tool of the provider, such as web search or code execution.
import type { ToolSegment } from "../api/types"
import { ToolCallSegment } from "./ToolCallSegment"
import { words } from "../words"

const LABELS: Partial<Record<ToolSegment["type"], { args: string; result: string }>> = words.tools.labels

export function BuiltInToolSegment({ segment }: { segment: ToolSegment }) {
  const labels = LABELS[segment.type]
  return <ToolCallSegment segment={segment} {...(labels && { labels })} />
}
