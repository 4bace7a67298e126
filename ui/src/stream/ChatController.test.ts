import { afterEach, expect, test, vi } from "vitest"

import { ApiError } from "../api/client"
import type { OpenStream } from "../api/client"
import type { Answer, AskBody, OpenConversation } from "../api/types"
import type { QuestionDraft } from "../compose/questionFile"
import { goTo } from "../routes"
import { ChatController } from "./ChatController"
import { ChatStore, threadOf } from "./reducer"
import { StreamingBus } from "./streamingBus"
import { StreamingSessionManager } from "./StreamingSessionManager"

const encoder = new TextEncoder()
const frame = (data: object) => encoder.encode(`data: ${JSON.stringify(data)}\n\n`)
const settled = (check: () => void) => vi.waitFor(check, { timeout: 2000, interval: 1 })
const answer = (id: string, conversation_id: string, status: Answer["status"] = "completed"): Answer => ({
  id, conversation_id, role: "assistant", created_at: 1, completed_at: 2, status, segments: [], model: "m", view: "raw",
})
const chat = (id: string, ...answers: string[]): OpenConversation => ({
  conversation: { id, title: id, created_at: 1, updated_at: 1 },
  active: null,
  events: answers.flatMap((one) => [
    { id: one.replace("evt_", "ask_"), conversation_id: id, role: "user", created_at: 1, status: "completed", segments: [{ id: "s", type: "text", text: one }] },
    answer(one, id),
  ]),
})

let stop = () => undefined as void
afterEach(() => {
  stop()
  history.replaceState(null, "", "/")
})

/** A page at an address, and a gateway with these chats whose streams the test writes. */
function setUp(path: string, ...chats: OpenConversation[]) {
  history.replaceState(null, "", path)
  const gateway = new Map(chats.map((one) => [one.conversation.id, one]))
  const asked: AskBody[] = []
  const reads: string[] = []
  const streams: ReadableStreamDefaultController<Uint8Array>[] = []
  const drafts: [string | null, string][] = []
  const held = new Map<string | null, string>()
  const changes: unknown[] = []
  let refusal: ApiError | null = null
  let hold: Promise<void> | null = null
  let isAway = false
  let failures = 0
  const open = (): OpenStream => ({ date: null, body: new ReadableStream({ start: (one) => void streams.push(one) }) })
  const client = {
    ask: async (body: AskBody) => {
      asked.push(body)
      if (refusal) throw refusal
      return open()
    },
    read: async (id: string) => {
      reads.push(id)
      return open()
    },
    cancel: async (id: string) => ({ id, status: "cancelled" as const }),
    conversation: async (id: string) => {
      await hold
      if (isAway) throw new ApiError(`away ${++failures}`, 0)
      const loaded = gateway.get(id)
      if (!loaded) throw new ApiError("There is no such chat.", 404)
      return loaded
    },
    change: async (id: string, change: object) => {
      changes.push(change)
      return { ...chat(id).conversation, ...change }
    },
    remove: async (id: string) => ({ id }),
  }
  const store = new ChatStore()
  const session = new StreamingSessionManager({ client, store, bus: new StreamingBus(() => undefined), wait: async () => false })
  const controller = new ChatController({
    client,
    store,
    session,
    drafts: { add: (id, { text }) => void drafts.push([id, text]), keep: (id, { text }) => void drafts.push([id, text]), hold: (id, { text }) => void held.set(id, text), release: (id) => void held.delete(id) },
  })
  stop = controller.start({ settings: () => ({ model: "m" }), storeDraft: () => void drafts.push([controller.current().id, "written"]), onSignedOut: () => undefined })
  return {
    gateway, store, session, controller, asked, reads, drafts, held, changes,
    refuse: (code: string | null) => void (refusal = code === null ? null : new ApiError("no", 409, code)),
    fail: (on: boolean) => void (isAway = on),
    failures: () => failures,
    /** Hold the loads of chats until the returned function is called. */
    hold: () => {
      let release = () => undefined as void
      hold = new Promise((resolve) => (release = resolve))
      return () => {
        hold = null
        release()
      }
    },
    write: (...events: object[]) => events.forEach((event) => streams.at(-1)?.enqueue(frame(event))),
    opened: (id: string) => settled(() => expect(threadOf(store.get(), id).length).toBeGreaterThan(0)),
  }
}

const started = (event_id: string, conversation_id: string) => ({ type: "message_started", event_id, conversation_id, model: "m", created_at: 1, view: "raw" })
const final = (event: Answer) => ({ type: "message_final", event })
const question = (text: string): QuestionDraft => ({ text, files: [] })

test("what was begun for a chat ends when another one is shown", async () => {
  const one = setUp("/c/chat_A", chat("chat_A", "evt_1"), chat("chat_B", "evt_2"))
  await one.opened("chat_A")
  one.gateway.set("chat_A", { ...chat("chat_A", "evt_1"), active: "evt_live" })
  const release = one.hold()
  one.controller.onChanged("chat_A")
  goTo("chat_B")
  release()
  await one.opened("chat_B")
  expect(one.reads).toEqual([])
  expect(one.session.current()).toBeNull()
  expect(one.controller.isBusy()).toBe(false)
  expect(location.pathname).toBe("/c/chat_B")
})

test("a chat whose answer is in progress is resumed, and only there the page is busy", async () => {
  const one = setUp("/c/chat_A", { ...chat("chat_A", "evt_1"), active: "evt_live" }, chat("chat_B", "evt_2"))
  await settled(() => expect(one.reads).toEqual(["evt_live"]))
  expect(one.controller.isBusy()).toBe(true)
  goTo("chat_B")
  expect(one.controller.isBusy()).toBe(false)
  one.write(started("evt_live", "chat_A"))
  await one.opened("chat_B")
  expect(location.pathname).toBe("/c/chat_B")
  goTo("chat_A")
  await settled(() => expect(one.reads).toEqual(["evt_live", "evt_live"]))
})

test("a new chat keeps its key, its instructions and its follow-up when it gets an id", async () => {
  const one = setUp("/")
  await one.controller.setInstructions("Be short.")
  one.controller.ask("one")
  one.controller.send(question("two"))
  await settled(() => expect(one.asked).toEqual([{ text: "one", model: "m", instructions: "Be short." }]))
  one.write(started("evt_1", "chat_A"))
  await settled(() => expect(location.pathname).toBe("/c/chat_A"))
  expect(one.controller.current()).toMatchObject({ id: "chat_A", key: 0, instructions: "Be short.", followUp: { text: "two", after: "evt_1" } })
  one.write(final(answer("evt_1", "chat_A")))
  await settled(() => expect(one.asked[1]).toEqual({ text: "two", model: "m", conversation_id: "chat_A", follows: "evt_1" }))
  expect(one.controller.current().followUp).toBeNull()
})

test("a follow-up is sent when its own answer is complete, and waits for its reader otherwise", async () => {
  const one = setUp("/c/chat_A", chat("chat_A", "evt_1"))
  await one.opened("chat_A")
  one.controller.ask("two")
  await settled(() => expect(one.asked).toHaveLength(1))
  one.write(started("evt_2", "chat_A"))
  await settled(() => expect(one.session.current()?.event_id).toBe("evt_2"))
  one.controller.send(question("three"))
  one.controller.send(question("and four"))
  one.write(final(answer("evt_2", "chat_A", "failed")))
  await settled(() => expect(one.session.current()).toBeNull())
  expect(one.asked).toHaveLength(1)
  expect(one.controller.current()).toMatchObject({ ended: "failed", followUp: { text: "three\n\nand four" } })
  one.controller.sendFollowUp()
  await settled(() => expect(one.asked[1]?.text).toBe("three\n\nand four"))
})

test("a follow-up is not sent to a chat that was deleted: a new chat begins with it", async () => {
  const one = setUp("/c/chat_A", chat("chat_A", "evt_1"))
  await one.opened("chat_A")
  // An answer of this page was complete before.
  one.controller.ask("two")
  await settled(() => expect(one.asked).toHaveLength(1))
  one.write(started("evt_2", "chat_A"), final(answer("evt_2", "chat_A")))
  await settled(() => expect(one.session.current()).toBeNull())
  one.gateway.set("chat_A", { ...chat("chat_A", "evt_1", "evt_2"), active: "evt_3" })
  one.controller.onChanged("chat_A")
  await settled(() => expect(one.session.current()?.event_id).toBe("evt_3"))
  one.controller.send(question("follow-up"))
  one.controller.onDeleted("chat_A")
  expect(one.controller.current()).toMatchObject({ followUp: null, failure: { missing: true } })
  expect(one.drafts).toEqual([[null, "follow-up"]])
  expect(one.asked).toHaveLength(1)
})

test("with its chat, a follow-up becomes a draft; without it, it is deleted", async () => {
  const one = setUp("/c/chat_A", { ...chat("chat_A", "evt_1"), active: "evt_2" }, { ...chat("chat_B", "evt_3"), active: "evt_4" })
  await settled(() => expect(one.controller.isBusy()).toBe(true))
  one.controller.send(question("later"))
  goTo("chat_B")
  expect(one.drafts).toEqual([["chat_A", "written"], ["chat_A", "later"]])
  await settled(() => expect(one.controller.isBusy()).toBe(true))
  one.controller.send(question("never"))
  await one.controller.remove("chat_B")
  goTo(null)
  expect(one.drafts.slice(2)).toEqual([["chat_B", ""]])
})

test("a question that another window overtook is sent as a branch of the answer that its reader knew", async () => {
  const one = setUp("/c/chat_A", chat("chat_A", "evt_1"))
  await one.opened("chat_A")
  one.refuse("conversation_moved")
  one.gateway.set("chat_A", chat("chat_A", "evt_1", "evt_2"))
  one.controller.ask("mine")
  await settled(() => expect(threadOf(one.store.get(), "chat_A")).toContain("evt_2"))
  one.refuse(null)
  const refused = one.session.current()
  expect(refused?.conflict).toBe("moved")
  if (refused) await one.controller.sendRefused(refused)
  expect(one.asked[1]).toEqual({ text: "mine", model: "m", conversation_id: "chat_A", replaces: "ask_2" })
})

test("a question that another answer keeps from being asked waits for the end of that one", async () => {
  const one = setUp("/c/chat_A", chat("chat_A", "evt_1"))
  await one.opened("chat_A")
  one.refuse("conversation_busy")
  one.gateway.set("chat_A", { ...chat("chat_A", "evt_1"), active: "evt_2" })
  one.controller.ask("mine")
  await settled(() => expect(one.session.current()?.conflict).toBe("busy"))
  one.refuse(null)
  const refused = one.session.current()
  if (refused) await one.controller.sendRefused(refused)
  expect(one.controller.current().followUp).toMatchObject({ text: "mine", after: "evt_2" })
  await settled(() => expect(one.reads).toEqual(["evt_2"]))
  one.write(final(answer("evt_2", "chat_A")))
  await settled(() => expect(one.asked[1]).toMatchObject({ text: "mine", follows: "evt_2" }))
})

test("a question is held until the gateway has it", async () => {
  const one = setUp("/c/chat_A", chat("chat_A", "evt_1"), chat("chat_B", "evt_2"))
  await one.opened("chat_A")
  one.refuse("too_many_requests")
  one.controller.ask("mine")
  await settled(() => expect(one.session.current()?.phase).toBe("refused"))
  expect([...one.held]).toEqual([["chat_A", "mine"]])
  goTo("chat_B")
  await one.opened("chat_B")
  one.refuse(null)
  one.controller.ask("other")
  one.write(started("evt_3", "chat_B"))
  await settled(() => expect([...one.held]).toEqual([["chat_A", "mine"]]))
  // A question that is asked again is stored already.
  one.write(final(answer("evt_3", "chat_B")))
  await settled(() => expect(one.session.current()).toBeNull())
  one.controller.ask("other", [], "evt_3")
  expect([...one.held.keys()]).toEqual(["chat_A"])
})

test("a conflict says what the other window does now", async () => {
  const one = setUp("/c/chat_A", chat("chat_A", "evt_1"))
  await one.opened("chat_A")
  one.refuse("conversation_busy")
  one.gateway.set("chat_A", { ...chat("chat_A", "evt_1"), active: "evt_2" })
  one.controller.ask("mine")
  await settled(() => expect(one.session.current()?.conflict).toBe("busy"))
  one.gateway.set("chat_A", chat("chat_A", "evt_1", "evt_2"))
  one.controller.onChanged("chat_A")
  await settled(() => expect(one.session.current()?.conflict).toBe("moved"))
  one.gateway.set("chat_A", { ...chat("chat_A", "evt_1", "evt_2"), active: "evt_3" })
  one.controller.onChanged("chat_A")
  await settled(() => expect(one.session.current()?.conflict).toBe("busy"))
})

test("a question that is withdrawn while its reader goes to another chat is a draft of its own chat", async () => {
  const one = setUp("/c/chat_A", chat("chat_A", "evt_1"), chat("chat_B", "evt_2"))
  await one.opened("chat_A")
  one.refuse("conversation_moved")
  one.controller.ask("mine")
  await settled(() => expect(one.session.current()?.phase).toBe("refused"))
  const refused = one.session.current()
  if (!refused) throw new Error("the question was not refused")
  const release = one.hold()
  const withdrawn = one.controller.withdraw(refused)
  goTo("chat_B")
  release()
  expect(await withdrawn).toBeNull()
  expect(one.drafts).toEqual([["chat_A", "mine"]])
})

test("a refresh that fails leaves the chat as it is; a chat that does not exist is reported", async () => {
  const one = setUp("/c/chat_A", chat("chat_A", "evt_1"))
  await one.opened("chat_A")
  one.fail(true)
  one.controller.onChanged("chat_A")
  one.controller.retry()
  goTo("chat_B")
  await settled(() => expect(one.controller.current().failure).toMatchObject({ missing: false }))
  goTo("chat_A")
  await settled(() => expect(one.failures()).toBe(4))
  expect(one.controller.current()).toMatchObject({ id: "chat_A", key: 2, failure: null })
  one.fail(false)
  goTo("chat_C")
  await settled(() => expect(one.controller.current().failure).toMatchObject({ missing: true }))
})
