// The position of the page in the history: live, at a number, or playing at the original pace. Pure functions: the
// elapsed time is a parameter.
import type { Envelope } from "./envelope"
import { countUpTo } from "./log"

export const SPEEDS = [1, 2, 5, 20] as const
export type Speed = (typeof SPEEDS)[number]

export type Position =
  | { mode: "live" }
  | { mode: "paused"; at: number }
  /** `waited`: elapsed part of the pause before the next envelope, in milliseconds of the history. */
  | { mode: "playing"; at: number; waited: number }

export const LIVE: Position = { mode: "live" }

/** Longer pauses are cut to this length, in milliseconds of the history. */
export const MAX_PAUSE = 4_000

export const seqAt = (scrub: Position, head: number) => (scrub.mode === "live" ? head : scrub.at)

/** The length of the pause before the envelope at `index`, in milliseconds. */
function pauseBefore(list: readonly Envelope[], index: number): number {
  const before = list[index - 1]
  const after = list[index]
  return before && after ? Math.min(Math.max(after.ts - before.ts, 0), MAX_PAUSE) : 0
}

/**
 * The position after `passed` milliseconds. If no more envelopes are loaded, it waits; `ended` reports the end of the
 * list.
 */
export function advancePlayback(scrub: Position, list: readonly Envelope[], passed: number, speed: number): { scrub: Position; ended: boolean } {
  if (scrub.mode !== "playing") return { scrub, ended: false }
  let index = countUpTo(list, scrub.at)
  let left = scrub.waited + Math.max(passed, 0) * speed
  let at = scrub.at
  while (index < list.length) {
    const wait = pauseBefore(list, index)
    if (left < wait) return { scrub: { mode: "playing", at, waited: left }, ended: false }
    left -= wait
    at = (list[index] as Envelope).seq
    index++
  }
  return { scrub: { mode: "playing", at, waited: 0 }, ended: true }
}

/** The number of the next or the previous envelope. */
export function nextSeq(at: number, list: readonly Envelope[], by: 1 | -1): number {
  const index = countUpTo(list, at)
  return by > 0 ? (list[index]?.seq ?? at) : (list[index - 2]?.seq ?? list[0]?.seq ?? at)
}

export interface Bar {
  /** The most active participant; null if there is none, or nothing is loaded. */
  who: string | null
  /** The activity relative to the highest bar, from 0 to 1. */
  height: number
}

/** The activity over the history in `count` bars, by sequence number, with the most active participant of each. */
export function activityBars(list: readonly Envelope[], head: number, count: number): Bar[] {
  const most: Map<string, number>[] = Array.from({ length: count }, () => new Map<string, number>())
  const chars = new Array<number>(count).fill(0)
  for (const { seq, from, payload } of list) {
    if (seq > head) break
    const bucket = Math.min(count - 1, Math.floor(((seq - 1) / Math.max(head, 1)) * count))
    const weight = Math.sqrt(1 + size(payload))
    chars[bucket] = (chars[bucket] ?? 0) + weight
    const who = most[bucket]
    who?.set(from, (who.get(from) ?? 0) + weight)
  }
  const highest = Math.max(...chars, 1)
  return chars.map((height, index) => ({
    who: [...(most[index] ?? [])].reduce<[string, number] | null>((best, one) => (best && best[1] >= one[1] ? best : one), null)?.[0] ?? null,
    height: height / highest,
  }))
}

function size(payload: Envelope["payload"]): number {
  let sum = 0
  for (const value of Object.values(payload)) sum += typeof value === "string" ? value.length : 8
  return sum
}
