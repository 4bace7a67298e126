// A conversation: its questions and answers in a scroll box that follows its end.
import { lazy, Suspense, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react"

import type { ShownFile } from "../compose/questionFile"
import { DownIcon } from "../primitives/icons"
import { questionId } from "../stream/reducer"
import { isLive } from "../stream/pendingAnswer"
import { EventItemSequential } from "./EventItemSequential"
import { StopFollowingContext, useFollowEnd } from "./followEnd"
import { ThoughtsContext } from "./thoughts"
import type { Turn } from "./turns"
import { UserEvent } from "./UserEvent"
import { words } from "../words"

const FindBar = lazy(() => import("./FindBar").then(({ FindBar }) => ({ default: FindBar })))

interface Props {
  turns: readonly Turn[]
  /** An answer is in progress on this page. */
  busy: boolean
  /** Without these, the conversation can only be read. */
  onEdit?: (turn: Turn, text: string, files: readonly ShownFile[]) => void
  onRetry?: (turn: Turn) => void
  onVersion?: (answerId: string) => void
}

export function Conversation({ turns, busy, onEdit, onRetry, onVersion }: Props) {
  const { box, inner, atEnd, toEnd, stopFollowing } = useFollowEnd()

  // Scroll to the end when a conversation is opened and when a question is asked.
  const newQuestionKey = turns.findLast((turn) => turn.pending?.question)?.key
  const opened = useRef(false)
  useLayoutEffect(() => {
    if (newQuestionKey !== undefined || !opened.current) toEnd()
    opened.current = true
  }, [newQuestionKey, toEnd])

  // The search in thoughts: the answer in which it begins, or null if it is closed.
  const [findFrom, setFindFrom] = useState<string | null>(null)
  const [openers] = useState(() => new Map<string, () => void>())
  const thoughts = useMemo(() => ({ openers, find: setFindFrom }), [openers])
  const answers = useMemo(() => turns.flatMap((turn) => turn.answer ?? []), [turns])
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "f" || !event.shiftKey || !(event.ctrlKey || event.metaKey) || event.altKey) return
      event.preventDefault()
      setFindFrom((now) => now ?? "")
    }
    addEventListener("keydown", pressed)
    return () => removeEventListener("keydown", pressed)
  }, [])

  return (
    <StopFollowingContext value={stopFollowing}>
      <div className="conversation">
        {findFrom !== null && box.current && (
          <Suspense>
            <FindBar answers={answers} from={findFrom} box={box.current} openers={openers} onClose={() => setFindFrom(null)} />
          </Suspense>
        )}
        <div className="conversation__scroll" ref={box} data-scroller data-testid="scroller">
          <div className="conversation__column" ref={inner}>
            <ThoughtsContext value={thoughts}>
              {turns.map((turn, index) => (
                <TurnView key={turn.key} turn={turn} busy={busy} last={index === turns.length - 1} {...(onEdit && { onEdit })} {...(onRetry && { onRetry })} {...(onVersion && { onVersion })} />
              ))}
            </ThoughtsContext>
          </div>
        </div>
        {!atEnd && (
          <button type="button" className="jump-down" data-testid="jump-down" aria-label={words.common.toEnd} title={words.common.toEnd} onClick={toEnd}>
            <DownIcon />
          </button>
        )}
      </div>
    </StopFollowingContext>
  )
}

interface TurnProps extends Omit<Props, "turns"> {
  turn: Turn
  last: boolean
}

function TurnView({ turn, busy, last, onEdit, onRetry, onVersion }: TurnProps) {
  const { question, answer, pending, id } = turn
  const open = pending !== undefined && isLive(pending)
  return (
    <section className="turn">
      <UserEvent
        {...(id !== undefined && { id: questionId(id), version: id })}
        text={question.text}
        files={question.files}
        {...(question.event?.versions && { versions: question.event.versions })}
        busy={busy}
        {...(onEdit && { onEdit: (text: string, files: readonly ShownFile[]) => onEdit(turn, text, files) })}
        {...(onVersion && { onVersion })}
      />
      <EventItemSequential eventId={id} event={answer} pending={pending} last={last} busy={busy} {...(!open && onRetry && { onRetry: () => onRetry(turn) })} />
    </section>
  )
}
