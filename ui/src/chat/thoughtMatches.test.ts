// The search in thoughts: what it finds in answers, where it marks it, and the moments of the timeline.
import { describe, expect, test } from "vitest"

import type { Answer } from "../api/types"
import { record } from "../testing/recorded"
import { formatDuration, formatMoney } from "./format"
import { folded, hitsIn, MAX_HITS, rangesIn } from "./thoughtMatches"
import { placeAt, spansOf } from "./moments"

const answer = (id: string, ...parts: string[][]): Answer => record(parts.map((texts) => ({ kind: "reasoning" as const, parts: texts.map((text) => [text]) })), "completed", id).final

describe("occurrences", () => {
  test("in answers are in the order of the page, and know their place", () => {
    const hits = hitsIn([answer("evt_1", ["The moon, the Moon.", "no"], ["moonlight"]), answer("evt_2", ["MOON"])], "moon")
    expect(hits.map(({ answerId, segmentId, part, ordinal }) => [answerId, segmentId, part, ordinal])).toEqual([
      ["evt_1", "rs_0", 0, 0], ["evt_1", "rs_0", 0, 1], ["evt_1", "rs_1", 0, 0], ["evt_2", "rs_0", 0, 0],
    ])
    expect(hitsIn([answer("evt_1", ["x"])], "")).toEqual([])
    expect(hitsIn([answer("evt_1", ["a".repeat(5_000)])], "a")).toHaveLength(MAX_HITS)
  })

  test("are found whatever case does to the length of a text", () => {
    expect(folded("İstanbul ẞ").length).toBe("İstanbul ẞ".length)
    expect(hitsIn([answer("evt_1", ["İİİ then ISTANBUL"])], "istanbul")).toHaveLength(1)
  })

  test("on the page span elements, and no blocks", () => {
    const box = document.createElement("div")
    box.innerHTML = "<p>the <strong>mo</strong><em>on</em> and the</p><p>moon</p><p>mo</p><p>on</p><button>moon</button>"
    const texts = rangesIn(box, "moon", 10).map((range) => range.toString())
    expect(texts).toEqual(["moon", "moon"])
    expect(rangesIn(box, "moon", 1)).toHaveLength(1)
    expect(rangesIn(box, "THE ", 10).map((range) => range.startOffset)).toEqual([0])
  })
})

describe("the moments of an answer", () => {
  const final = { ...answer("evt_1", ["One.", "Two."], ["Three."]), timeline: [{ segment_id: "rs_0", started_at: 1_000, ended_at: 5_000 }, { segment_id: "rs_1", started_at: 8_000, ended_at: 9_000 }] }
  const [first] = final.segments
  if (first?.type === "reasoning") for (const [index, part] of first.parts.entries()) part.created_at = 1_000 + 3_000 * index
  const spans = spansOf(final)

  test("are the part that was written at that time, and how far it had come", () => {
    expect(placeAt(final, spans, 1_000)).toEqual({ segmentId: "rs_0", part: 0, fraction: 0 })
    expect(placeAt(final, spans, 2_500)).toEqual({ segmentId: "rs_0", part: 0, fraction: 0.5 })
    expect(placeAt(final, spans, 4_250)).toEqual({ segmentId: "rs_0", part: 1, fraction: 0.25 })
    expect(placeAt(final, spans, 7_500)?.segmentId).toBe("rs_1")
    expect(placeAt(final, [], 0)).toBeNull()
  })
})

test("a duration is rounded down, as it is while it counts; money has two significant digits", () => {
  expect([999, 1_000, 6_999, 61_500, 3_660_000].map(formatDuration)).toEqual(["under 1 s", "1 s", "6 s", "1 min 1 s", "1 h 1 min"])
  expect([0, 0.00003456, 0.0042, 1.5, 1234.567].map((amount) => formatMoney(amount, "USD").replace(/[^\d.,$]/g, ""))).toEqual(["$0.00", "$0.000035", "$0.0042", "$1.50", "$1,234.57"])
  expect(formatMoney(0.5, "credits")).toBe("credits 0.50")
})
