// A tool call of any type.
import type { ToolSegment } from "../api/types"
import { BuiltInToolSegment } from "./BuiltInToolSegment"
import { ToolCallSegment } from "./ToolCallSegment"

export function ToolSegmentOf({ segment }: { segment: ToolSegment }) {
  return segment.type === "tool_call" ? <ToolCallSegment segment={segment} /> : <BuiltInToolSegment segment={segment} />
}
