// Input from the wire is validated, and texts are found under the names that people and models use.
import fc from "fast-check"
import { describe, expect, it } from "vitest"

import { confidenceOf, mayProbablySend, readEnvelope, readFrame, resultOf, toolOf, uncertaintyOf, textOf } from "./envelope"
import { Fold } from "./fold"
import { ALL, laneRows, mainRows, searchableText, titleOf } from "./rows"

describe("an envelope", () => {
  it("is read from any value without an exception", () => {
    fc.assert(
      fc.property(fc.anything(), fc.string(), fc.jsonValue(), (value, text, payload) => {
        readFrame(text)
        for (const one of [value, { kind: "reasoning/start", id: "a", seq: 1, payload, context: value }, { kind: text || "chat", seq: 2, payload, correlation_id: payload }, { kind: "constructor" }, { kind: "valueOf" }]) {
          const envelope = readEnvelope(one)
          if (!envelope) continue
          const fold = Fold.of([envelope])
          for (const row of [...mainRows(fold.main, ALL), ...[...fold.lanes.values()].flatMap((lane) => laneRows(lane.items, ALL, new Map()))]) {
            if (row.type === "head") titleOf(row.context)
            else for (const of of [textOf, toolOf, resultOf, searchableText]) of(row.item.envelope)
          }
        }
      }),
    )
  })

  it("has the gateway's flags that are valid", () => {
    const flagged = (flags: unknown) => readEnvelope({ kind: "chat", flags })?.flags
    expect(flagged([{ code: "after_end", message: "context 'r' has ended", more: 1 }, { code: 7, message: "x" }, "x", null])).toEqual([
      { code: "after_end", message: "context 'r' has ended" },
    ])
    expect([flagged(undefined), flagged("x"), flagged({ code: "a", message: "b" })]).toEqual([[], [], []])
  })

  it("has its text in one of several fields", () => {
    const words = (kind: string, payload: object) => textOf({ kind, payload: payload as never })
    expect(words("chat", { text: "a", message: "b" })).toBe("a")
    expect(words("reasoning/thought", { content: "a" })).toBe("a")
    expect(words("reasoning/thought", { reasoning: "a", action: "b" })).toBe("a")
    expect(words("reasoning/question", { questions: ["a", "b"] })).toBe("a\nb")
    expect(words("reasoning/start", { goal: "a" })).toBe("a")
    expect(words("reasoning/conclusion", { decision: "a" })).toBe("a")
    expect(words("reasoning/start", { message: 7 })).toBe("")
  })

  it("has a confidence if it is a number from 0 to 1", () => {
    expect([confidenceOf({ confidence: 0 }), confidenceOf({ metadata: { confidence: 1 } }), confidenceOf({ confidence: 7 }), confidenceOf({})]).toEqual([0, 1, undefined, undefined])
    expect(uncertaintyOf({ uncertainty: { low: 0.2, high: 0.4, source: "tests" } })).toEqual({ low: 0.2, high: 0.4, source: "tests" })
    expect(uncertaintyOf({ uncertainty: { low: 0.5, high: 0.4 } })).toBeUndefined()
  })
})

it("unclear capabilities count as allowed, clearly missing ones do not", () => {
  const may = (...capabilities: unknown[]) => mayProbablySend(capabilities, "reasoning/cancel")
  expect([may("*"), may("reasoning/*"), may("reasoning.*"), may({ kind: ["chat", "**"] }), may("!chat"), may("/^reason/")]).toEqual([true, true, true, true, true, true])
  expect([may(), may("chat", "mcp/*"), may({ kind: "reasoning/start" }), may({}), may(7)]).toEqual([false, false, false, false, false])
})
