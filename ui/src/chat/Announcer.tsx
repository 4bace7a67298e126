// Status messages for screen readers: the model is thinking, the answer is ready. The text itself is not announced.
import { useLiveMessage } from "../stream/hooks"
import { isLive } from "../stream/pendingAnswer"
import type { PendingAnswer } from "../stream/pendingAnswer"

interface Props {
  pending: PendingAnswer | null
  /** The status of the last answer that ended while the page was open. */
  ended: string | null
}

const ENDS: Record<string, string> = {
  completed: "Answer ready",
  incomplete: "The answer is not complete",
  failed: "The answer failed",
  cancelled: "The answer was stopped",
}

export function Announcer({ pending, ended }: Props) {
  const message = useLiveMessage(pending?.event_id ?? "")
  return (
    <div className="visually-hidden" role="status" aria-live="polite" data-testid="announcer">
      {announcement(pending, ended, message !== undefined && message.segments.size + message.parts.size > 0)}
    </div>
  )
}

function announcement(pending: PendingAnswer | null, ended: string | null, thinks: boolean): string {
  if (!pending) return ended === null ? "" : (ENDS[ended] ?? "")
  if (!isLive(pending)) return pending.error ?? "The request failed."
  if (pending.phase === "reconnecting") return "Reconnecting"
  return thinks ? "Thinking" : ""
}
