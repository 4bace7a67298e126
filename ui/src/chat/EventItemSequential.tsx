// An answer, from the moment it was asked for: the steps above, then the text, then what went wrong, then a quiet row.
// The element stays the same from the placeholder to the final event.
import { useRef } from "react"

import type { AnswerEvent } from "../api/types"
import { ViewBadge } from "../shell/Pickers"
import { useLiveMessage } from "../stream/hooks"
import type { Turn } from "../stream/StreamingSessionManager"
import { CopyButton } from "../text/CopyButton"
import { plain } from "../text/visible"
import { AnswerText } from "./AnswerText"
import { ErrorState } from "./ErrorState"
import { StepsPanel } from "./StepsPanel"
import { useReserve } from "./useReserve"
import { answerText, duration } from "./words"

interface Props {
  /** Absent until the gateway has named it. */
  eventId: string | undefined
  /** The final event, once it is there. */
  event: AnswerEvent | undefined
  /** The session, while there is no final event. */
  turn: Turn | undefined
  /** Whether it is the last of the conversation. */
  last: boolean
  /** Something of this page is being answered: a retry has to wait. */
  busy?: boolean
  onRetry?: () => void
}

export function EventItemSequential({ eventId, event, turn, last, busy = false, onRetry }: Props) {
  const element = useRef<HTMLElement>(null)
  const live = event === undefined && turn !== undefined
  useReserve(element, live, last)
  return (
    <article
      ref={element}
      className="answer"
      data-testid="assistant-event"
      data-event-id={eventId}
      data-status={event?.status ?? "in_progress"}
      aria-label="Answer"
      aria-busy={live && turn.phase !== "lost" && turn.phase !== "refused"}
    >
      <div className="answer__inner">
        {eventId !== undefined && <StepsPanel eventId={eventId} event={event} skew={turn?.skew ?? 0} />}
        {eventId !== undefined && <AnswerText eventId={eventId} event={event} />}
        {event ? <FinalError event={event} busy={busy} {...(onRetry && { onRetry })} /> : turn && <LiveError eventId={eventId ?? ""} turn={turn} {...(onRetry && { onRetry })} />}
        <div className="answer__foot">{event ? <Foot event={event} /> : turn && <Waiting eventId={eventId ?? ""} turn={turn} />}</div>
      </div>
    </article>
  )
}

const TITLES = {
  failed: "The answer failed.",
  cancelled: "The answer was stopped.",
  incomplete: "The answer is not complete.",
} as const

function FinalError({ event, busy, onRetry }: { event: AnswerEvent; busy: boolean; onRetry?: () => void }) {
  if (event.status === "completed" || event.status === "in_progress") return null
  const message = event.status === "cancelled" ? undefined : event.error?.message
  return <ErrorState title={TITLES[event.status]} busy={busy} {...(message && { message })} {...(onRetry && { onRetry })} />
}

function LiveError({ eventId, turn, onRetry }: { eventId: string; turn: Turn; onRetry?: () => void }) {
  const message = useLiveMessage(eventId)
  if (turn.phase === "lost" || turn.phase === "refused") {
    return <ErrorState title={failed(turn, message?.error !== undefined)} {...(turn.error && { message: turn.error })} {...(onRetry && { onRetry })} />
  }
  if (message?.cancelled) return <ErrorState title={TITLES.cancelled} />
  if (message?.error !== undefined) return <ErrorState title={TITLES.failed} message={message.error} />
  return null
}

function failed(turn: Turn, told: boolean): string {
  if (turn.phase === "lost") return "The connection was lost."
  if (told) return "The answer could not be kept."
  return turn.event_id === null ? "This could not be asked." : "The answer could not be read on."
}

/** What is being waited for, where nothing shows it yet. */
function Waiting({ eventId, turn }: { eventId: string; turn: Turn }) {
  const message = useLiveMessage(eventId)
  const nothing = !message || (message.texts.size === 0 && message.parts.size === 0 && message.tools.size === 0 && message.segments.size === 0)
  const over = message !== undefined && (message.cancelled || message.error !== undefined)
  if (turn.phase === "lost" || turn.phase === "refused" || over) return null
  if (turn.stopping) return <span className="waiting">Stopping…</span>
  if (turn.phase === "reconnecting") return <span className="waiting">The connection was lost. Reconnecting…</span>
  if (turn.phase === "queued") return <span className="waiting">Waiting for the model to be free…</span>
  return nothing ? <span className="waiting waiting--dots" data-testid="waiting" role="img" aria-label="Waiting for the answer" /> : null
}

function Foot({ event }: { event: AnswerEvent }) {
  const text = answerText(event)
  const took = event.completed_at === undefined ? "" : duration(event.completed_at - event.created_at)
  return (
    <>
      {text !== "" && <span data-testid="copy"><CopyButton text={text} label="Copy the answer" /></span>}
      <span className="answer__model">{plain(event.model)}</span>
      {took && <span className="answer__took">{took}</span>}
      {event.view && event.view !== "raw" && <ViewBadge view={event.view} />}
    </>
  )
}
