// What a screen reader is told of an answer: that the model thinks, that the answer is there; not every word of it.
import { useLiveMessage } from "../stream/hooks"
import type { Turn } from "../stream/StreamingSessionManager"

interface Props {
  turn: Turn | null
  /** The status of the answer that came last while the page was open. */
  ended: string | null
}

const ENDS: Record<string, string> = {
  completed: "Answer ready",
  incomplete: "The answer is not complete",
  failed: "The answer failed",
  cancelled: "The answer was stopped",
}

export function Announcer({ turn, ended }: Props) {
  const message = useLiveMessage(turn?.event_id ?? "")
  return (
    <div className="visually-hidden" role="status" aria-live="polite" data-testid="announcer">
      {said(turn, ended, message !== undefined && message.segments.size + message.parts.size > 0)}
    </div>
  )
}

function said(turn: Turn | null, ended: string | null, thinks: boolean): string {
  if (!turn) return ended === null ? "" : (ENDS[ended] ?? "")
  if (turn.phase === "lost" || turn.phase === "refused") return turn.error ?? "This did not work."
  if (turn.phase === "reconnecting") return "Reconnecting"
  return thinks ? "Thinking" : ""
}
