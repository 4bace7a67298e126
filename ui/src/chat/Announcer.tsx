// Status messages for screen readers: the model is thinking, the answer is ready. The text itself is not announced.
import { useLiveMessage } from "../stream/hooks"
import { isLive } from "../stream/pendingAnswer"
import type { PendingAnswer } from "../stream/pendingAnswer"
import { words } from "../words"

interface Props {
  pending: PendingAnswer | null
  /** The status of the last answer that ended while the page was open. */
  ended: string | null
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
  if (!pending) return ended === null ? "" : (words.answer.announced[ended] ?? "")
  if (pending.conflict !== undefined) {
    const { title, message } = words.live.conflict[pending.conflict]
    return `${title} ${message}`
  }
  if (!isLive(pending)) return pending.error ?? words.chat.requestFailed
  if (pending.phase === "reconnecting") return words.answer.announcedReconnecting
  return thinks ? words.answer.announcedThinking : ""
}
