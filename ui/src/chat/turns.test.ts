import { describe, expect, test } from "vitest"

import { CHAT, record } from "../testing/recorded"
import { EMPTY, reduce } from "../stream/reducer"
import type { PendingAnswer } from "../stream/pendingAnswer"
import { turnsOf } from "./turns"

const ASKING: PendingAnswer = { key: "turn-9", phase: "streaming", conversation_id: CHAT, event_id: null, stopping: false, skew: 0 }
const answer = (id: string) => record([{ kind: "text", deltas: ["Because."] }], "completed", id).final
const store = ["evt_1", "evt_2"].reduce(
  (all, id) => reduce(all, { type: "final", event: answer(id), question: { text: `Question ${id}`, created_at: 1 } }),
  EMPTY,
)
const texts = (pending: PendingAnswer | null) => turnsOf(store, CHAT, pending, (id) => id).map((turn) => [turn.question.text, turn.answer?.id, turn.pending?.key])

describe("the turns of a conversation", () => {
  test("are questions with their answers, in order", () => {
    expect(texts(null)).toEqual([["Question evt_1", "evt_1", undefined], ["Question evt_2", "evt_2", undefined]])
    expect(turnsOf(store, null, null, (id) => id)).toEqual([])
  })

  test("are empty for an id that is a property of every object", () => {
    for (const id of ["__proto__", "constructor", "toString"]) {
      expect(turnsOf(store, id, null, (one) => one)).toEqual([])
      expect(turnsOf(EMPTY, id, null, (one) => one)).toEqual([])
    }
  })

  test("contain the pending question last, or in place of the question that it replaces", () => {
    expect(texts({ ...ASKING, question: { text: "Now?", created_at: 3 } }).at(-1)).toEqual(["Now?", undefined, "turn-9"])
    expect(texts({ ...ASKING, question: { text: "Now?", created_at: 3, replaces: "ask_2" } })).toEqual([
      ["Question evt_1", "evt_1", undefined],
      ["Now?", undefined, "turn-9"],
    ])
  })

  test("do not contain a pending question of another conversation", () => {
    expect(texts({ ...ASKING, conversation_id: "chat_2", question: { text: "Now?", created_at: 3 } })).toHaveLength(2)
  })

  test("contain a resumed answer at its question", () => {
    const loaded = {
      conversation: { id: CHAT, title: "t", created_at: 1, updated_at: 1 },
      events: [{ id: "ask_7", conversation_id: CHAT, role: "user" as const, created_at: 1, status: "completed" as const, segments: [{ id: "x", type: "text" as const, text: "Why?" }] }],
      active: "evt_7",
    }
    const opened = reduce(EMPTY, { type: "opened", loaded })
    expect(turnsOf(opened, CHAT, { ...ASKING, event_id: "evt_7" }, (id) => id)).toMatchObject([{ id: "evt_7", question: { text: "Why?" }, pending: { key: "turn-9" } }])
  })
})
