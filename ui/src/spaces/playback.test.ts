// Playback, and the log that it reads.
import fc from "fast-check"
import { describe, expect, it } from "vitest"

import type { Envelope } from "./envelope"
import { countUpTo, Log } from "./log"
import { seqAt, activityBars, LIVE, MAX_PAUSE, advancePlayback, nextSeq } from "./playback"
import type { Position } from "./playback"
import { makeEnvelope, scripts } from "./testkit"

/** Play in several steps of time. */
function play(list: readonly Envelope[], pieces: readonly number[], speed: number): Position {
  return pieces.reduce<Position>((scrub, passed) => advancePlayback(scrub, list, passed, speed).scrub, { mode: "playing", at: 0, waited: 0 })
}

describe("playback", () => {
  it("reaches the same position in any time steps, and never goes back", () => {
    fc.assert(
      fc.property(scripts, fc.array(fc.nat(9_000), { minLength: 1, maxLength: 12 }), fc.constantFrom(1, 2, 5, 20), (list, pieces, speed) => {
        const all = pieces.reduce((sum, one) => sum + one, 0)
        const [split, whole] = [play(list, pieces, speed), play(list, [all], speed)]
        expect(split).toEqual(whole)
        let before = 0
        for (let count = 0; count <= pieces.length; count++) {
          const at = seqAt(play(list, pieces.slice(0, count), speed), 0)
          expect(at).toBeGreaterThanOrEqual(before)
          before = at
        }
        expect(before === 0 || list.some(({ seq }) => seq === before)).toBe(true)
      }),
    )
  })

  it("keeps pauses up to the limit", () => {
    const list = [makeEnvelope({ seq: 1, ts: 0 }), makeEnvelope({ seq: 2, ts: 1_000 }), makeEnvelope({ seq: 3, ts: 86_400_000 }), makeEnvelope({ seq: 4, ts: 5 })]
    const at = (ms: number, speed = 1) => seqAt(play(list, [ms], speed), 0)
    expect([at(0), at(999), at(1_000), at(1_000 + MAX_PAUSE - 1)]).toEqual([1, 1, 2, 2])
    // A clock that went back makes no pause.
    expect(at(1_000 + MAX_PAUSE)).toBe(4)
    expect([at(499, 2), at(500, 2)]).toEqual([1, 2])
    expect(advancePlayback({ mode: "playing", at: 4, waited: 0 }, list, 1, 1).ended).toBe(true)
    expect(advancePlayback(LIVE, list, 10_000, 1)).toEqual({ scrub: LIVE, ended: false })
  })

  it("steps forward and backward one by one", () => {
    fc.assert(
      fc.property(scripts, (list) => {
        let at = 0
        for (const { seq } of list) expect((at = nextSeq(at, list, 1))).toBe(seq)
        expect(nextSeq(at, list, 1)).toBe(at)
        for (const { seq } of list.toReversed().slice(1)) expect((at = nextSeq(at, list, -1))).toBe(seq)
      }),
    )
  })
})

it("the activity bars: one for each bucket, none higher than 1", () => {
  fc.assert(
    fc.property(scripts, fc.integer({ min: 1, max: 50 }), (list, count) => {
      const head = list.at(-1)?.seq ?? 0
      const drawn = activityBars(list, head, count)
      expect(drawn).toHaveLength(count)
      for (const { who, height } of drawn) {
        expect(height).toBeGreaterThanOrEqual(0)
        expect(height).toBeLessThanOrEqual(1)
        expect(who === null).toBe(height === 0)
      }
    }),
  )
})

describe("a log", () => {
  it("is in order and without duplicates, however the envelopes arrive", () => {
    fc.assert(
      fc.property(scripts, fc.array(fc.tuple(fc.nat(), fc.nat())), fc.nat(), (list, pieces, seed) => {
        const log = new Log()
        for (const [from, length] of pieces) log.put(list.slice(from % (list.length + 1)).slice(0, length % 7))
        const shuffled = list.toSorted((a, b) => ((a.seq * 7919 + seed) % 101) - ((b.seq * 7919 + seed) % 101))
        const before = log.list.map(({ seq }) => seq)
        const put = log.put(shuffled)
        expect(log.list).toEqual(list)
        if (put === "appended") expect(log.list.slice(0, before.length).map(({ seq }) => seq)).toEqual(before)
        if (put === "nothing") expect(before).toEqual(list.map(({ seq }) => seq))
        expect(log.put(list)).toBe("nothing")
        for (const { seq } of list) expect(countUpTo(log.list, seq)).toBe(list.filter((one) => one.seq <= seq).length)
      }),
    )
  })

  it("rejects an envelope without a number", () => {
    expect(new Log().put([makeEnvelope({ seq: 0 })])).toBe("nothing")
  })
})
