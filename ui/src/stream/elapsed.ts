// The time of reasoning and of tools while an answer streams, by the gateway's times: the same as afterwards. What goes
// on is counted by the browser's clock, from when it was seen to begin.
import { liveSteps } from "./streamingBus"
import type { LiveMessage, LiveTool } from "./streamingBus"

export interface Elapsed {
  /** Milliseconds of what is over. */
  done: number
  /** Since when something goes on, by the browser's clock; null if nothing does. */
  since: number | null
}

/** An answer that is resumed has begun earlier than it was seen to begin. */
const RESUMED_MS = 2_000

/** When something began, by the browser's clock: `skew` is the browser's clock minus the gateway's. */
function beginning(createdAt: number, seenAt: number, skew: number): number {
  return seenAt - (createdAt + skew) > RESUMED_MS ? createdAt + skew : seenAt
}

/**
 * The time of all reasoning: of each segment from its beginning to the end of its last part, or, if another model
 * summarizes it, to its own end.
 */
export function reasoningElapsed(message: LiveMessage, skew: number): Elapsed {
  const elapsed: Elapsed = { done: 0, since: null }
  const steps = liveSteps(message)
  const textSeen = Math.min(...[...message.texts.values()].map((text) => text.seen_at))
  for (const segment of message.segments.values()) {
    const parts = [...message.parts.values()].filter((part) => part.segment_id === segment.segment_id)
    const start = segment.created_at ?? parts[0]?.created_at ?? 0
    const begun = beginning(start, segment.seen_at, skew)
    if (segment.completed_at !== undefined) elapsed.done += Math.max(0, segment.completed_at - start)
    else if (parts.some((part) => !part.complete)) elapsed.since = begun
    else if (parts.length > 0) {
      const ends = parts.map((part) => part.completed_at).filter((end) => end !== undefined)
      if (ends.length > 0) elapsed.done += Math.max(0, Math.max(...ends) - start)
    } else if (segment.sequence_number !== undefined) {
      // Sealed: it has no parts, and ends where the next step or the text begins.
      const next = steps.find((step) => step.sequence_number > (segment.sequence_number ?? 0))
      if (next) elapsed.done += Math.max(0, next.created_at - start)
      else if (Number.isFinite(textSeen)) elapsed.done += Math.max(0, textSeen - begun)
      else elapsed.since = begun
    }
  }
  return elapsed
}

export function toolElapsed(tool: LiveTool, isOver: boolean, skew: number): Elapsed {
  if (!isOver) return { done: 0, since: beginning(tool.created_at, tool.seen_at, skew) }
  return { done: tool.completed_at === undefined ? 0 : Math.max(0, tool.completed_at - tool.created_at), since: null }
}
