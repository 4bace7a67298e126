// The head of a context: status, time, confidence, toggle; if folded, also its conclusion.
import { Seconds } from "../chat/Seconds"
import { useStopFollowing } from "../chat/followEnd"
import { StopIcon } from "../primitives/icons"
import { plain, visible } from "../text/visible"
import { textAt, textOf } from "./envelope"
import type { Context } from "./fold"
import { useNow, useRoom } from "./room"
import { titleOf } from "./rows"
import { Audience, Flags, isUnderWay, StatusMark, statusText, Confidence, contextDuration, ParticipantName } from "./badges"
import { fill } from "../text/fill"
import { words } from "../words"

interface Props {
  context: Context
  open: boolean
  owner: string
}

export function ContextHead({ context, open, owner }: Props) {
  const now = useNow()
  const { toggle, cancel, mayCancel, live, skew, show } = useRoom()
  const stopFollowing = useStopFollowing()
  const running = context.status === "open" && context.start !== null
  const approach = context.start ? textAt(context.start.payload, "approach") : undefined
  const expected = context.start ? textAt(context.start.payload, "estimated_duration") : undefined
  const others = context.participants.filter((one) => one !== context.owner)
  return (
    <div className="context" data-testid="context" data-status={context.status} data-open={open}>
      <div className="context__line">
        <button
          type="button"
          className="context__toggle"
          data-testid="toggle-context"
          aria-expanded={open}
          onClick={() => {
            stopFollowing()
            toggle(context.key, !open)
          }}
        >
          <span className="reasoning__chevron" aria-hidden="true" />
          <StatusMark context={context} />
          <span className="context__title" dir="auto">{visible(titleOf(context))}</span>
        </button>
        {running && live && mayCancel && (
          <button type="button" className="icon-button context__cancel" data-testid="cancel" aria-label={words.spaces.context.cancelLabel(plain(titleOf(context)))} title={words.spaces.context.cancel} onClick={() => cancel(context)}>
            <StopIcon />
          </button>
        )}
      </div>
      <div className="context__facts">
        {context.owner !== owner && <ParticipantName id={context.owner} small />}
        <span className="context__status">{statusText(context)}</span>
        {running && now === null ? <Seconds elapsed={{ done: 0, since: context.opened + skew }} minimum={0} /> : <span className="seconds">{contextDuration(context, now ?? 0)}</span>}
        {running && expected !== undefined && <span>{fill(words.spaces.context.expected, { time: <span dir="auto">{plain(expected)}</span> })}</span>}
        {context.confidence !== undefined && <Confidence confidence={context.confidence} range={context.uncertainty} />}
        <Audience ids={context.audience} />
        {context.count > 1 && <span>{words.spaces.context.steps(context.count - 1)}</span>}
        {context.waiting.size > 0 && <span className="context__waiting">{words.spaces.context.waiting(context.waiting.size)}</span>}
        {others.length > 0 && <span className="context__participants">{fill(words.spaces.context.with, { who: others.slice(0, 4).map((id) => <ParticipantName key={id} id={id} small />) })}</span>}
        {open && approach !== undefined && <span dir="auto">{plain(approach)}</span>}
        {context.answer && (
          <button type="button" className="text-button context__answer" data-testid="to-answer" onClick={() => context.answer && show(context.answer)}>{words.spaces.context.toAnswer}</button>
        )}
      </div>
      {context.start && <Flags flags={context.start.flags} />}
      {!open && context.conclusion && <p className="context__outcome" dir="auto">{context.conclusion.erased ? words.spaces.step.erased : visible(textOf(context.conclusion).slice(0, 400))}</p>}
    </div>
  )
}

function activityText(context: Context, running: boolean): string {
  const texts = words.spaces.context
  if (running) return texts.thinking
  switch (context.status) {
    case "open": return isUnderWay(context) ? texts.working : texts.worked
    case "concluded": return texts.finished
    case "cancelled": return texts.stopped
    case "abandoned": return texts.abandoned
  }
}

/** The row of a context in the conversation: who is thinking, and the conclusion. A click opens the lane. */
export function ContextLine({ context }: { context: Context }) {
  const now = useNow()
  const { show, skew } = useRoom()
  const running = context.status === "open" && context.start !== null
  return (
    <button type="button" className="context-line" data-testid="context-line" data-status={context.status} onClick={() => show(context)}>
      <span className="context-line__head">
        <StatusMark context={context} />
        <ParticipantName id={context.owner} />
        <span className="context-line__status">
          {activityText(context, running)}
        </span>
        {running && now === null ? <Seconds elapsed={{ done: 0, since: context.opened + skew }} /> : <span className="seconds">{contextDuration(context, now ?? 0)}</span>}
        {context.confidence !== undefined && <Confidence confidence={context.confidence} range={context.uncertainty} />}
        {context.waiting.size > 0 && <span className="context__waiting">{words.spaces.context.waiting(context.waiting.size)}</span>}
        <Audience ids={context.audience} />
      </span>
      <span className="context-line__text" dir="auto">{visible((context.conclusion ? textOf(context.conclusion) : "") || titleOf(context))}</span>
    </button>
  )
}
