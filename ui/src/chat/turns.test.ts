import { describe, expect, test } from "vitest"

import { CHAT, record } from "../testing/recorded"
import { EMPTY, reduce } from "../stream/reducer"
import type { Turn } from "../stream/StreamingSessionManager"
import { pairsOf } from "./turns"

const TURN: Turn = { key: "turn-9", phase: "streaming", conversation_id: CHAT, event_id: null, stopping: false, skew: 0 }
const answer = (id: string) => record([{ kind: "text", deltas: ["Because."] }], "completed", id).final
const store = ["evt_1", "evt_2"].reduce(
  (all, id) => reduce(all, { type: "final", event: answer(id), question: { text: `Question ${id}`, created_at: 1 } }),
  EMPTY,
)
const texts = (turn: Turn | null) => pairsOf(store, CHAT, turn, (id) => id).map((pair) => [pair.question.text, pair.answer?.id, pair.turn?.key])

describe("what stands in a conversation", () => {
  test("questions with their answers, in order", () => {
    expect(texts(null)).toEqual([["Question evt_1", "evt_1", undefined], ["Question evt_2", "evt_2", undefined]])
    expect(pairsOf(store, null, null, (id) => id)).toEqual([])
  })

  test("what is asked now comes last, or in the place of what it replaces", () => {
    expect(texts({ ...TURN, question: { text: "Now?", created_at: 3 } }).at(-1)).toEqual(["Now?", undefined, "turn-9"])
    expect(texts({ ...TURN, question: { text: "Now?", created_at: 3, replaces: "ask_2" } })).toEqual([
      ["Question evt_1", "evt_1", undefined],
      ["Now?", undefined, "turn-9"],
    ])
  })

  test("what is asked in another conversation is not here", () => {
    expect(texts({ ...TURN, conversation_id: "chat_2", question: { text: "Now?", created_at: 3 } })).toHaveLength(2)
  })

  test("an answer found under way stands at its question", () => {
    const loaded = {
      conversation: { id: CHAT, title: "t", created_at: 1, updated_at: 1 },
      events: [{ id: "ask_7", conversation_id: CHAT, role: "user" as const, created_at: 1, status: "completed" as const, segments: [{ id: "x", type: "text" as const, text: "Why?" }] }],
      active: "evt_7",
    }
    const opened = reduce(EMPTY, { type: "opened", loaded })
    expect(pairsOf(opened, CHAT, { ...TURN, event_id: "evt_7" }, (id) => id)).toMatchObject([{ id: "evt_7", question: { text: "Why?" }, turn: { key: "turn-9" } }])
  })
})
