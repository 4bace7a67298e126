// Presence in few words: consecutive events of one participant are merged into one.
import { isObject, PRESENCE } from "./envelope"
import type { Envelope } from "./envelope"
import { words } from "../words"

export interface PresenceLine {
  /** The participants with the same action; an empty id is unknown. */
  who: string[]
  action: string
}

const SINGLE: Readonly<Record<string, string>> = { join: words.spaces.presence.joined, leave: words.spaces.presence.left }
/** By the first event, and whether the last event is of the same kind. */
const REPEATED: Readonly<Record<string, readonly [string, string]>> = {
  join: [words.spaces.presence.joinedLeft, words.spaces.presence.joinedLeftRejoined],
  leave: [words.spaces.presence.leftRejoined, words.spaces.presence.leftRejoinedLeft],
}

export function participantOf({ payload }: Envelope): unknown {
  const { participant } = payload
  return isObject(participant) ? participant["id"] : undefined
}

export const presenceEvent = ({ payload }: Envelope): "join" | "leave" | "invited" =>
  payload["event"] === "join" || payload["event"] === "leave" ? payload["event"] : "invited"

/** The participant and whether it is present now, if the envelope reports a join or leave. */
export function presenceChange(envelope: Envelope): { id: string; present: boolean } | null {
  const id = participantOf(envelope)
  const event = presenceEvent(envelope)
  return envelope.kind === PRESENCE && typeof id === "string" && event !== "invited" ? { id, present: event === "join" } : null
}

/** Whether one line can describe both. */
export const mayShareLine = (a: Envelope, b: Envelope) =>
  a.kind === PRESENCE && b.kind === PRESENCE && !a.erased && !b.erased && (presenceEvent(a) === "invited") === (presenceEvent(b) === "invited")

/**
 * One line for each action, in the order of each participant's first event; consecutive participants with the same
 * action share a line.
 */
export function presenceLines(envelopes: readonly Envelope[]): PresenceLine[] {
  const events = new Map<string, string[]>()
  for (const envelope of envelopes) {
    const id = participantOf(envelope)
    const who = typeof id === "string" ? id : ""
    const own = events.get(who) ?? []
    if (own.at(-1) !== presenceEvent(envelope)) own.push(presenceEvent(envelope))
    events.set(who, own)
  }
  const lines: PresenceLine[] = []
  for (const [who, own] of events) {
    const action = actionOf(own)
    const last = lines.at(-1)
    if (last?.action === action) last.who.push(who)
    else lines.push({ who: [who], action })
  }
  return lines
}

function actionOf(events: readonly string[]): string {
  const first = events[0] ?? ""
  if (events.length === 1) return SINGLE[first] ?? words.spaces.presence.invited
  const times = Math.floor(events.length / 2)
  const action = REPEATED[first]?.[events.length % 2] ?? words.spaces.presence.joinedLeft
  return times > 1 ? words.spaces.presence.times(action, times) : action
}
