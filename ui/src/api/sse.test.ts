import fc from "fast-check"
import { describe, expect, test } from "vitest"

import { plans } from "../testing/plans"
import { body, cut, joined, record } from "../testing/recorded"
import { FrameReader, frames } from "./sse"

const bytes = (text: string) => new TextEncoder().encode(text)
const read = (text: string) => new FrameReader().feed(bytes(text))

describe("frames", () => {
  test("any split of the bytes gives the same frames", () => {
    fc.assert(
      fc.property(plans, fc.array(fc.nat(5000), { maxLength: 40 }), (plan, places) => {
        const all = joined(record(plan).frames)
        const whole = new FrameReader().feed(all)
        const reader = new FrameReader()
        expect(cut(all, places).flatMap((piece) => reader.feed(piece))).toEqual(whole)
      }),
    )
  })

  test("one byte at a time, with every line ending", () => {
    for (const end of ["\n", "\r\n", "\r"]) {
      const text = [": queued", "id: 7", "event: text_delta", "data: é🙂", "data: two", "", "data:x", "", ""].join(end)
      const reader = new FrameReader()
      expect([...bytes(text)].flatMap((byte) => reader.feed(Uint8Array.of(byte)))).toEqual([
        { kind: "comment", text: "queued" },
        { kind: "frame", id: "7", event: "text_delta", data: "é🙂\ntwo" },
        { kind: "frame", id: "7", event: "message", data: "x" },
      ])
    }
  })

  test("fields and lines that the standard ignores are ignored", () => {
    expect(read("event: lone\n\nretry: 5\nnonsense\ndata\n\nid: a\0b\ndata: 1\n\ndata: unfinished\n")).toEqual([
      { kind: "frame", id: null, event: "message", data: "" },
      { kind: "frame", id: null, event: "message", data: "1" },
    ])
  })

  test("a byte order mark, and a line of a megabyte in a thousand pieces", () => {
    const reader = new FrameReader()
    const got = [bytes("\uFEFFdata: "), ...Array.from({ length: 1000 }, () => bytes("x".repeat(1000))), bytes("\n\n")].flatMap((piece) => reader.feed(piece))
    expect(got).toHaveLength(1)
    expect(got[0]).toMatchObject({ data: "x".repeat(1_000_000) })
  })

  test("a body is read to its end, and cancelled if the reader stops", async () => {
    const recorded = record([{ kind: "text", deltas: ["a", "b"] }])
    const seen = []
    for await (const batch of frames(body(recorded.frames))) seen.push(...batch)
    expect(seen).toHaveLength(recorded.events.length)
    let cancelled = false
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(bytes("data: 1\n\n")),
      cancel: () => void (cancelled = true),
    })
    for await (const batch of frames(endless)) if (batch.length > 0) break
    expect(cancelled).toBe(true)
  })
})
