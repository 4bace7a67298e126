// An answer from the question to the final event: steps, text, error, sources, footer. The element stays the same from
// the placeholder to the final event.
import { lazy, Suspense, useContext, useEffect, useRef, useState } from "react"

import type { Answer } from "../api/types"
import { AskingContext } from "../compose/useQuestionFiles"
import { Conflict } from "./conflict"
import { ViewBadge } from "../primitives/ViewBadge"
import { useLiveMessage } from "../stream/hooks"
import { isLive } from "../stream/pendingAnswer"
import type { PendingAnswer } from "../stream/pendingAnswer"
import { CopyButton } from "../text/CopyButton"
import { plain } from "../text/visible"
import { IncompleteContext, useIncomplete } from "../text/whole"
import { AnswerText } from "./AnswerText"
import { ErrorState } from "../primitives/ErrorState"
import { Sources } from "./Sources"
import { Seconds } from "./Seconds"
import { StepsPanel } from "./StepsPanel"
import { useReservedHeight } from "./useReservedHeight"
import { answerText, contentOf, CurrencyContext, formatDuration, usageOf } from "./format"
import { words } from "../words"

const Feedback = lazy(() => import("./Feedback").then(({ Feedback }) => ({ default: Feedback })))

interface Props {
  /** Undefined until the gateway has assigned an id. */
  eventId: string | undefined
  /** The final event, once it has arrived. */
  event: Answer | undefined
  /** The state of the pending answer, until the final event. */
  pending: PendingAnswer | undefined
  /** Whether this is the last answer of the conversation. */
  last: boolean
  /** An answer is in progress on this page, so a retry has to wait. */
  busy?: boolean
  onRetry?: () => void
}

export function EventItemSequential({ eventId, event, pending, last, busy = false, onRetry }: Props) {
  const element = useRef<HTMLElement>(null)
  const live = event === undefined && pending !== undefined
  const [isIncomplete, countIncomplete] = useIncomplete()
  useReservedHeight(element, live, last)
  return (
    <article
      ref={element}
      className="answer"
      data-testid="assistant-event"
      data-event-id={eventId}
      data-status={event?.status ?? "in_progress"}
      aria-label={words.answer.label}
      aria-busy={live && isLive(pending)}
    >
      <div className="answer__inner">
        {eventId !== undefined && <StepsPanel eventId={eventId} event={event} skew={pending?.skew ?? 0} />}
        {eventId !== undefined && <IncompleteContext value={countIncomplete}><AnswerText eventId={eventId} event={event} /></IncompleteContext>}
        {event ? <FinalError event={event} busy={busy} {...(onRetry && { onRetry })} /> : pending && <LiveError eventId={eventId ?? ""} pending={pending} {...(onRetry && { onRetry })} />}
        <Sources event={event} />
        <div className={isIncomplete && event ? "answer__foot answer__foot--later" : "answer__foot"}>
          {isIncomplete && event && <span className="waiting waiting--dots answer__more" data-testid="more-follows" aria-hidden="true" />}
          {event ? <Foot event={event} busy={busy} {...(onRetry && { onAgain: onRetry })} /> : pending && <Waiting eventId={eventId ?? ""} pending={pending} />}
        </div>
      </div>
    </article>
  )
}

function FinalError({ event, busy, onRetry }: { event: Answer; busy: boolean; onRetry?: () => void }) {
  if (event.status === "completed" && contentOf(event).length === 0 && event.segments.some((segment) => segment.type === "reasoning")) {
    return <ErrorState title={words.answer.onlyThoughts} busy={busy} {...(onRetry && { onRetry })} />
  }
  if (event.status === "completed" || event.status === "in_progress") return null
  const message = event.status === "cancelled" ? undefined : event.error?.message
  return <ErrorState title={words.answer.ends[event.status]} busy={busy} {...(message && { message })} {...(onRetry && { onRetry })} />
}

function LiveError({ eventId, pending, onRetry }: { eventId: string; pending: PendingAnswer; onRetry?: () => void }) {
  const message = useLiveMessage(eventId)
  const retry = useRef<HTMLButtonElement>(null)
  useEffect(() => {
    // The next thing to do when the connection is back, unless another question is being written.
    const offer = () => {
      const { activeElement: now } = document
      if (now === document.body || (now instanceof HTMLTextAreaElement && now.value === "")) retry.current?.focus()
    }
    addEventListener("online", offer)
    return () => removeEventListener("online", offer)
  }, [])
  if (pending.conflict) return <Conflict pending={pending} kind={pending.conflict} />
  if (!isLive(pending)) {
    return <ErrorState title={failureTitle(pending, message?.error !== undefined)} retryButton={retry} {...(pending.error && { message: pending.error })} {...(onRetry && { onRetry })} />
  }
  if (message?.cancelled) return <ErrorState title={words.answer.ends.cancelled} />
  if (message?.error !== undefined) return <ErrorState title={words.answer.ends.failed} message={message.error} />
  return null
}

function failureTitle(pending: PendingAnswer, hasModelError: boolean): string {
  if (pending.phase === "lost") return words.answer.connectionLost
  if (hasModelError) return words.answer.notSaved
  return pending.event_id === null ? words.answer.notSent : words.answer.restMissing
}

/** What the page waits for, while nothing else shows it. */
function Waiting({ eventId, pending }: { eventId: string; pending: PendingAnswer }) {
  const message = useLiveMessage(eventId)
  const nothing = !message || (message.texts.size === 0 && message.parts.size === 0 && message.tools.size === 0 && message.segments.size === 0)
  const over = message !== undefined && (message.cancelled || message.error !== undefined)
  const { model } = useContext(AskingContext)
  const isLoading = model?.loading === true && (pending.body?.model ?? model.id) === model.id
  // A question that waited for this is not told to wait for other questions then.
  const [wasLoading, setWasLoading] = useState(isLoading)
  useEffect(() => {
    if (isLoading) setWasLoading(true)
  }, [isLoading])
  if (!isLive(pending) || over) return null
  if (pending.stopping) return <span className="waiting">{words.answer.stopping}</span>
  if (pending.phase === "reconnecting") return <span className="waiting">{words.answer.reconnecting}</span>
  if (nothing && isLoading) {
    return (
      <>
        <span className="waiting" data-testid="loading">{words.answer.loading}</span>
        {pending.question && <Seconds elapsed={{ done: 0, since: pending.question.created_at }} minimum={3} />}
      </>
    )
  }
  if (pending.phase === "queued" && !wasLoading) return <span className="waiting">{words.answer.queued}</span>
  if (!nothing) return null
  return (
    <>
      <span className="waiting waiting--dots" data-testid="waiting" role="img" aria-label={words.answer.waiting} />
      {pending.question && <Seconds elapsed={{ done: 0, since: pending.question.created_at }} minimum={3} />}
      {pending.question && <Slow since={pending.question.created_at} />}
    </>
  )
}

/** After so long without a word, the page says why. */
const SLOW_MS = 10_000

function Slow({ since }: { since: number }) {
  const [isSlow, setSlow] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), since + SLOW_MS - Date.now())
    return () => clearTimeout(timer)
  }, [since])
  return isSlow ? <span className="waiting" data-testid="slow">{words.answer.slow}</span> : null
}

function Foot({ event, busy, onAgain }: { event: Answer; busy: boolean; onAgain?: () => void }) {
  const text = answerText(event)
  const { model } = useContext(AskingContext)
  const other = model === undefined || model.id === event.model ? undefined : model.id
  const usage = usageOf(event, useContext(CurrencyContext))
  const took = event.completed_at === undefined ? "" : formatDuration(event.completed_at - event.created_at)
  return (
    <>
      {text !== "" && <span data-testid="copy"><CopyButton text={text} label={words.answer.copy} /></span>}
      {/* An answer that is not complete, or has no text, has its retry button in the message. */}
      {onAgain && event.status === "completed" && contentOf(event).length > 0 && (
        <button type="button" className="quiet-button" data-testid="ask-again" title={words.chat.askAgainHint} disabled={busy} onClick={onAgain}>{other === undefined ? words.chat.askAgain : words.chat.askModel(plain(other))}</button>
      )}
      {onAgain && <Suspense fallback={<span className="feedback" />}><Feedback event={event} /></Suspense>}
      <span className="answer__facts">
        <span className="answer__model" title={plain(event.model)}>{plain(event.model)}</span>
        {took && <span className="answer__took">{took}</span>}
        {usage.length > 0 && (
          <span className="answer__usage" data-testid="usage" title={usage.join(" · ")}>
            {usage.map((word) => (
              <span key={word} className="answer__fact"><bdi>{word}</bdi></span>
            ))}
          </span>
        )}
        {/* A shared chat says it once, above. */}
        {onAgain && event.view && event.view !== "raw" && <ViewBadge view={event.view} />}
      </span>
    </>
  )
}
