// A conversation: its questions and answers, scrolled, with its end followed while the reader is there.
import { useLayoutEffect, useRef } from "react"

import { DownIcon } from "../shell/icons"
import type { Turn } from "../stream/StreamingSessionManager"
import { EventItemSequential } from "./EventItemSequential"
import { StayContext, useFollowEnd } from "./follow"
import type { Pair } from "./turns"
import { UserEvent } from "./UserEvent"

interface Props {
  pairs: readonly Pair[]
  /** Something of this page is being answered. */
  busy: boolean
  onEdit: (pair: Pair, text: string) => void
  onRetry: (pair: Pair) => void
  onVersion: (answerId: string) => void
}

export function Conversation({ pairs, busy, onEdit, onRetry, onVersion }: Props) {
  const { box, inner, atEnd, toEnd, stay } = useFollowEnd()

  // Whoever opens a conversation goes to its end, and so does whoever asks.
  const asked = pairs.findLast((pair) => pair.turn?.question)?.key
  const opened = useRef(false)
  useLayoutEffect(() => {
    if (asked !== undefined || !opened.current) toEnd()
    opened.current = true
  }, [asked, toEnd])

  return (
    <StayContext value={stay}>
      <div className="conversation">
        <div className="conversation__scroll" ref={box} data-scroller data-testid="scroller">
          <div className="conversation__column" ref={inner}>
            {pairs.map((pair, index) => (
              <TurnOf key={pair.key} pair={pair} busy={busy} last={index === pairs.length - 1} onEdit={onEdit} onRetry={onRetry} onVersion={onVersion} />
            ))}
          </div>
        </div>
        {!atEnd && (
          <button type="button" className="jump-down" data-testid="jump-down" aria-label="To the end" title="To the end" onClick={toEnd}>
            <DownIcon />
          </button>
        )}
      </div>
    </StayContext>
  )
}

interface TurnProps extends Omit<Props, "pairs"> {
  pair: Pair
  last: boolean
}

function TurnOf({ pair, busy, last, onEdit, onRetry, onVersion }: TurnProps) {
  const { question, answer, turn, id } = pair
  const open = turn !== undefined && !ended(turn)
  return (
    <section className="turn">
      <UserEvent
        {...(id !== undefined && { id: id.replace(/^evt_/, "ask_"), version: id })}
        text={question.text}
        {...(question.event?.versions && { versions: question.event.versions })}
        busy={busy}
        onEdit={(text) => onEdit(pair, text)}
        onVersion={onVersion}
      />
      <EventItemSequential eventId={id} event={answer} turn={turn} last={last} busy={busy} {...(!open && { onRetry: () => onRetry(pair) })} />
    </section>
  )
}

const ended = (turn: Turn) => turn.phase === "lost" || turn.phase === "refused"
