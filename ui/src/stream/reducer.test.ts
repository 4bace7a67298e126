import { describe, expect, test } from "vitest"

import type { Answer, OpenConversation, QuestionEvent } from "../api/types"
import { CHAT, record } from "../testing/recorded"
import { threadBefore, EMPTY, reduce } from "./reducer"
import type { Store } from "./reducer"

const conversation = { id: CHAT, title: "Rain", created_at: 1, updated_at: 2 }
const question = (id: string, text: string): QuestionEvent => ({
  id, conversation_id: CHAT, role: "user", created_at: 1, status: "completed", segments: [{ id: `${id}_text`, type: "text", text }],
})
const answer = (id: string): Answer => record([{ kind: "text", deltas: ["Because."] }], "completed", id).final
const opened = (events: OpenConversation["events"], active: string | null = null): Store =>
  reduce(EMPTY, { type: "opened", loaded: { conversation, events, active } })
const thread = (store: Store) => store.threads[CHAT]

describe("the store", () => {
  test("holds the loaded events in order, without the pending one", () => {
    const writing: Answer = { ...answer("evt_2"), status: "in_progress", segments: [] }
    const store = opened([question("ask_1", "Why?"), answer("evt_1"), question("ask_2", "And?"), writing], "evt_2")
    expect(thread(store)).toEqual(["ask_1", "evt_1", "ask_2"])
    expect(store.events["evt_2"]).toBeUndefined()
    const done = reduce(store, { type: "final", event: answer("evt_2") })
    expect(thread(done)).toEqual(["ask_1", "evt_1", "ask_2", "evt_2"])
  })

  test("message_final adds the answer and the question of this page, once", () => {
    const store = opened([question("ask_1", "Why?"), answer("evt_1")])
    const action = { type: "final", event: answer("evt_2"), question: { text: "And?", created_at: 5 } } as const
    const once = reduce(store, action)
    expect(thread(once)).toEqual(["ask_1", "evt_1", "ask_2", "evt_2"])
    expect(reduce(once, action)).toEqual(once)
    expect(once.events["ask_2"]).toMatchObject({ role: "user", segments: [{ text: "And?" }] })
  })

  test("an edited question replaces the old one, and has its versions", () => {
    const store = opened([question("ask_1", "Why?"), answer("evt_1"), question("ask_2", "And?"), answer("evt_2")])
    expect(threadBefore(thread(store) ?? [], "evt_1")).toEqual([])
    expect(threadBefore(thread(store) ?? [], "ask_2")).toEqual(["ask_1", "evt_1"])
    const edited = reduce(store, { type: "final", event: answer("evt_3"), question: { text: "Then?", created_at: 5, replaces: "ask_2" } })
    expect(thread(edited)).toEqual(["ask_1", "evt_1", "ask_3", "evt_3"])
    expect(edited.events["ask_3"]).toMatchObject({ versions: ["evt_2", "evt_3"] })
    const again = reduce(edited, { type: "final", event: answer("evt_4"), question: { text: "Now?", created_at: 6, replaces: "evt_3" } })
    expect(again.events["ask_4"]).toMatchObject({ versions: ["evt_2", "evt_3", "evt_4"] })
    expect(edited.events["evt_2"]).toBeDefined()
  })

  test("a new conversation is added with its first answer; a deleted one is removed with all its events", () => {
    const store = reduce(EMPTY, { type: "final", event: answer("evt_1"), question: { text: "Why?", created_at: 5 } })
    expect(thread(store)).toEqual(["ask_1", "evt_1"])
    expect(reduce(store, { type: "deleted", conversation_id: CHAT })).toEqual(EMPTY)
    expect(reduce(EMPTY, { type: "deleted", conversation_id: CHAT })).toBe(EMPTY)
  })

  test("objects are never changed in place", () => {
    const store = opened([question("ask_1", "Why?"), answer("evt_1")])
    const snapshot = JSON.stringify(store)
    Object.freeze(store.events)
    Object.freeze(store.threads)
    reduce(store, { type: "final", event: answer("evt_2"), question: { text: "And?", created_at: 5 } })
    reduce(store, { type: "changed", conversation: { ...conversation, title: "Snow" } })
    expect(JSON.stringify(store)).toBe(snapshot)
  })
})
