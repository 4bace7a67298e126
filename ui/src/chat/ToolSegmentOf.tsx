// Whichever kind of tool it is.
import type { ToolSegment } from "../api/types"
import { BuiltInToolSegment } from "./BuiltInToolSegment"
import { ToolCallSegment } from "./ToolCallSegment"

export function ToolSegmentOf({ segment }: { segment: ToolSegment }) {
  return segment.type === "tool_call" ? <ToolCallSegment segment={segment} /> : <BuiltInToolSegment segment={segment} />
}
