// Who came and went, in as few words as it takes: successive comings and goings of one person are told as one.
import { PRESENCE } from "./envelope"
import type { Envelope } from "./envelope"
import type { Json } from "../api/types"

export interface Coming {
  /** Who did the same; empty: it is not said who. */
  who: string[]
  did: string
}

const ONCE: Readonly<Record<string, string>> = { join: "came in", leave: "left" }
/** By what came first, and whether what came last is the same. */
const OFTEN: Readonly<Record<string, readonly [string, string]>> = {
  join: ["came in and left", "came in, left and came back"],
  leave: ["left and came back", "left, came back and left"],
}

export function personOf({ payload }: Envelope): Json | undefined {
  const who = payload["participant"]
  return typeof who === "object" && who !== null && !Array.isArray(who) ? who["id"] : undefined
}

export const eventOf = ({ payload }: Envelope): "join" | "leave" | "invited" =>
  payload["event"] === "join" || payload["event"] === "leave" ? payload["event"] : "invited"

/** Whether one line may tell of both. */
export const alike = (a: Envelope, b: Envelope) =>
  a.kind === PRESENCE && b.kind === PRESENCE && !a.erased && !b.erased && (eventOf(a) === "invited") === (eventOf(b) === "invited")

/** Each in the place where it was first told of; those who did the same right after one another together. */
export function comings(told: readonly Envelope[]): Coming[] {
  const events = new Map<string, string[]>()
  for (const envelope of told) {
    const id = personOf(envelope)
    const who = typeof id === "string" ? id : ""
    const own = events.get(who) ?? []
    if (own.at(-1) !== eventOf(envelope)) own.push(eventOf(envelope))
    events.set(who, own)
  }
  const found: Coming[] = []
  for (const [who, own] of events) {
    const did = didOf(own)
    const last = found.at(-1)
    if (last?.did === did) last.who.push(who)
    else found.push({ who: [who], did })
  }
  return found
}

function didOf(events: readonly string[]): string {
  const first = events[0] ?? ""
  if (events.length === 1) return ONCE[first] ?? "was invited"
  const times = Math.floor(events.length / 2)
  return `${OFTEN[first]?.[events.length % 2] ?? "came and went"}${times > 1 ? `, ${times} times` : ""}`
}
