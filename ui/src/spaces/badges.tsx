// Small elements of a space: participant, status, confidence, flags, time.
import { CheckIcon, CloseIcon } from "../primitives/icons"
import { plain, visible } from "../text/visible"
import { formatDuration } from "../chat/format"
import type { Flag, Range } from "./envelope"
import type { Context, Status } from "./fold"
import { useRoom } from "./room"
import { fill } from "../text/fill"
import { formatClock, formatMoment } from "../formats"
import { words } from "../words"

/** The first letter or digit of a name. */
const initial = (who: string) => (/[\p{L}\p{N}]/u.exec(who)?.[0] ?? "?").toUpperCase()

export function ParticipantName({ id, small = false }: { id: string; small?: boolean }) {
  const { colourOf, me } = useRoom()
  return (
    <span className={small ? "participant participant--small" : "participant"} data-colour={colourOf(id)}>
      <span className="participant__initial" aria-hidden="true">{initial(id)}</span>
      <bdi className="participant__name">{plain(id)}</bdi>
      {id === me && <span className="participant__you">{words.spaces.participants.you}</span>}
    </span>
  )
}

const STATUS_TEXTS: Record<Status, string> = words.spaces.context.statuses

/** Whether the context is in progress, as far as is known: an implicit context has no end of its own. */
export const isUnderWay = (context: Context) => context.status === "open" && context.ended === null

export const statusText = (context: Context) =>
  context.status !== "open" || context.start !== null ? STATUS_TEXTS[context.status] : isUnderWay(context) ? words.spaces.context.underWay : words.spaces.context.ended

export function StatusMark({ context }: { context: Context }) {
  const { status, start } = context
  const label = statusText(context)
  return (
    <span className={`status status--${status === "open" && start === null ? "implicit" : status}`} role="img" aria-label={label} title={label} data-testid="status">
      {status === "concluded" ? <CheckIcon /> : status === "cancelled" ? <CloseIcon /> : null}
    </span>
  )
}

export const percent = (share: number) => words.spaces.context.percent(Math.round(share * 100))

export function Confidence({ confidence, range }: { confidence: number; range?: Range | undefined }) {
  const description = range ? `${words.spaces.context.sureBetween(percent(confidence), percent(range.low), percent(range.high))}${range.source ? ` (${plain(range.source)})` : ""}` : words.spaces.context.sure(percent(confidence))
  return (
    <span className="confidence" title={description} data-testid="confidence">
      <svg className="confidence__bar" viewBox="0 0 40 6" width="40" height="6" preserveAspectRatio="none" aria-hidden="true">
        <rect className="confidence__ground" width="40" height="6" rx="3" />
        {range && <rect className="confidence__range" x={range.low * 40} width={Math.max((range.high - range.low) * 40, 1)} height="6" />}
        <rect className="confidence__share" width={confidence * 40} height="6" rx="3" />
      </svg>
      {percent(confidence)}<span className="visually-hidden">{words.spaces.context.sureMark}</span>
    </span>
  )
}

/** Who alone may read this. */
export function Audience({ ids }: { ids: readonly string[] }) {
  if (ids.length === 0) return null
  return <span className="audience" data-testid="audience">{fill(words.spaces.context.audience, { who: <Names ids={ids} /> })}</span>
}

export const Names = ({ ids }: { ids: readonly string[] }) => ids.map((id, index) => <span key={id}>{index > 0 && ", "}<bdi>{plain(id)}</bdi></span>)

/** Remarks of the gateway about an accepted envelope. */
export function Flags({ flags }: { flags: readonly Flag[] }) {
  return flags.map(({ code, message }, index) => (
    <p key={index} className="flag" data-testid="flag" data-code={code}>
      <span aria-hidden="true">⚑ </span><span className="visually-hidden">{words.spaces.context.flagged}</span><span dir="auto">{visible(message)}</span>
    </p>
  ))
}

export const contextDuration = (context: Context, now: number) => formatDuration(Math.max(0, (context.ended ?? Math.max(now, context.active)) - context.opened))

/** Whether the time is known and within the range of Date (ECMAScript, "Time Values and Time Range"). */
const isTime = (ts: number) => ts > 0 && ts <= 8.64e15

export function Timestamp({ ts, full = false }: { ts: number; full?: boolean }) {
  if (!isTime(ts)) return null
  const when = new Date(ts)
  return <time className="timestamp" dateTime={when.toISOString()} title={formatMoment(when)}>{full ? formatMoment(when) : formatClock(when)}</time>
}

export const formatTime = (ts: number) => (isTime(ts) ? formatMoment(new Date(ts)) : "")
