import fc from "fast-check"
import { describe, expect, test, vi } from "vitest"

import { ApiError } from "../api/client"
import type { OpenStream } from "../api/client"
import type { OpenConversation } from "../api/types"
import { plans } from "../testing/plans"
import { body, CHAT, cut, EVENT, joined, record } from "../testing/recorded"
import type { Recorded } from "../testing/recorded"
import { ChatStore } from "./reducer"
import type { Action } from "./reducer"
import { liveSteps, liveTexts, StreamingBus } from "./streamingBus"
import { StreamingSessionManager } from "./StreamingSessionManager"
import type { Options } from "./StreamingSessionManager"

const PLAN = [
  { kind: "reasoning" as const, parts: [["Let ", "me ", "see."], ["Yes."]] },
  { kind: "tool" as const, name: "look", args: "{}", result: "seen", logs: ["a", "b"] },
  { kind: "text" as const, deltas: ["It ", "is ", "so."] },
]

const stream = (pieces: readonly Uint8Array[], breaks = false): OpenStream => ({ body: body(pieces, breaks), date: null })
const settled = async (done: () => boolean) => vi.waitFor(() => expect(done()).toBe(true), { timeout: 2000, interval: 1 })

function setUp(client: Partial<Options["client"]>) {
  const bus = new StreamingBus(() => undefined)
  const store = new ChatStore()
  const commits: Action[] = []
  const waits: number[] = []
  const signedOut = vi.fn()
  const manager = new StreamingSessionManager({
    client: {
      ask: () => Promise.reject(new ApiError("not asked", 500)),
      read: () => Promise.reject(new ApiError("not read", 500)),
      cancel: () => Promise.resolve({ id: EVENT, status: "cancelled" }),
      conversation: () => Promise.reject(new ApiError("not opened", 500)),
      ...client,
    },
    bus,
    store,
    wait: (ms) => {
      waits.push(ms)
      return Promise.resolve(false)
    },
    now: () => 1000,
  })
  // The overlay just before the final event.
  const overlays: unknown[] = []
  store.subscribe((action) => {
    commits.push(action)
    if (action.type === "final") overlays.push(overlay(bus, action.event.id))
  })
  manager.connect({ onConversation: () => undefined, onSignedOut: signedOut })
  return { bus, store, manager, commits, overlays, waits, signedOut }
}

function overlay(bus: StreamingBus, eventId: string) {
  const message = bus.message(eventId)
  if (!message) return null
  return {
    steps: liveSteps(message).map((step) => (step.kind === "part" ? [step.key, step.text.text, step.complete] : step.kind === "tool" ? [step.call_id, step.logs.text, step.result] : [step.segment_id])),
    texts: liveTexts(message).map((one) => one.text.text),
  }
}

async function whole({ frames }: Recorded) {
  const one = setUp({ ask: () => Promise.resolve(stream(frames)) })
  one.manager.ask({ text: "Why?" })
  await settled(() => one.commits.length > 0)
  return one
}

describe("the session", () => {
  test("a conversation that another client continued is loaded, and a retry asks after its last answer", async () => {
    const bodies: unknown[] = []
    const one = setUp({
      ask: (body) => {
        bodies.push(body)
        return Promise.reject(new ApiError("the conversation has moved on", 409, "conversation_moved"))
      },
      conversation: (id) => Promise.resolve({ ...moved, conversation: { ...moved.conversation, id } }),
    })
    const { final } = record(PLAN)
    const moved: OpenConversation = { conversation: { id: CHAT, title: "Rain", created_at: 1, updated_at: 1 }, events: [{ ...final, id: "evt_new" }], active: null }
    one.manager.ask({ text: "Why?", conversation_id: CHAT, follows: "evt_old" })
    await settled(() => one.manager.current()?.phase === "refused")
    await settled(() => one.commits.length === 1)
    expect(one.manager.current()?.conflict).toBe("moved")
    one.manager.retry()
    await settled(() => bodies.length === 2)
    expect(bodies[1]).toEqual({ text: "Why?", conversation_id: CHAT, follows: "evt_new" })
  })

  test("a connection that may be dead is opened again after its last frame, and only then", async () => {
    const { frames } = record(PLAN)
    const reads: (string | null)[] = []
    let opened = 0
    // Two frames, and then nothing any more.
    const silent = (signal: AbortSignal): OpenStream => ({
      date: null,
      body: new ReadableStream({
        start(controller) {
          opened++
          frames.slice(0, 2).forEach((frame) => controller.enqueue(frame))
          signal.addEventListener("abort", () => controller.error(signal.reason))
        },
      }),
    })
    const one = setUp({
      ask: (_, signal) => Promise.resolve(silent(signal)),
      read: (_, after, signal) => {
        reads.push(after)
        return Promise.resolve(reads.length === 1 ? silent(signal) : stream(frames))
      },
    })
    one.manager.ask({ text: "Why?" })
    await settled(() => one.manager.current()?.phase === "streaming")
    one.manager.wake("visible")
    expect(reads).toEqual([])
    one.manager.wake("online")
    await settled(() => opened === 2)
    one.manager.wake("online")
    await settled(() => one.commits.length === 1)
    expect(reads).toEqual(["1", "1"])
    expect(one.waits).toEqual([])
  })

  test("an answer is written to the store once, by message_final, and leaves nothing in the bus", async () => {
    const recorded = record(PLAN)
    const one = await whole(recorded)
    expect(one.commits).toEqual([{ type: "final", event: recorded.final, question: { text: "Why?", created_at: 1000 } }])
    expect(one.manager.current()).toBeNull()
    expect(one.bus.message(EVENT)).toBeUndefined()
  })

  test("any split of the bytes gives the same result", async () => {
    await fc.assert(
      fc.asyncProperty(plans, fc.array(fc.nat(4000), { maxLength: 20 }), async (plan, places) => {
        const recorded = record(plan)
        const straight = await whole(recorded)
        const split = await whole({ ...recorded, frames: cut(joined(recorded.frames), places) })
        expect(split.commits).toEqual(straight.commits)
        expect(split.overlays).toEqual(straight.overlays)
      }),
      { numRuns: 60 },
    )
  })

  test("a stream that is interrupted anywhere, repeatedly, and resumed gives the same result", async () => {
    await fc.assert(
      fc.asyncProperty(plans, fc.array(fc.tuple(fc.nat(3000), fc.boolean(), fc.nat(3)), { minLength: 1, maxLength: 5 }), async (plan, cuts) => {
        const recorded = record(plan, "completed")
        const straight = await whole(recorded)
        // The first connection delivers message_started at least: without it there is nothing to resume.
        const start = recorded.frames[0]?.length ?? 0
        let connection = 0
        const answer = (from: number) => {
          const left = joined(recorded.frames.slice(from))
          const [place = left.length, breaks = false] = cuts[connection++] ?? []
          const end = Math.min(left.length, connection === 1 ? start + place : place)
          return Promise.resolve(stream(cut(left.subarray(0, end), [7, 100, 1000]), breaks))
        }
        const one = setUp({
          ask: () => answer(0),
          // A server that repeats some frames does no harm.
          read: (_, after) => answer(after === null ? 0 : Math.max(0, Number(after) + 1 - (cuts[connection]?.[2] ?? 0))),
        })
        one.manager.ask({ text: "Why?" })
        await settled(() => one.commits.length > 0)
        expect(one.commits).toEqual(straight.commits)
        expect(one.overlays).toEqual(straight.overlays)
      }),
      { numRuns: 150 },
    )
  })

  test("a page that was reloaded reads from the beginning", async () => {
    const recorded = record(PLAN)
    const resumedAfter: (string | null)[] = []
    const one = setUp({
      read: (_, after) => {
        resumedAfter.push(after)
        return Promise.resolve(stream(recorded.frames))
      },
    })
    one.manager.resume(CHAT, EVENT)
    await settled(() => one.commits.length > 0)
    expect(resumedAfter).toEqual([null])
    expect(one.commits).toEqual([{ type: "final", event: recorded.final }])
    expect(one.overlays).toEqual((await whole(recorded)).overlays)
  })

  test("the React key stays the same from the question to the final event", async () => {
    const one = setUp({ ask: () => Promise.resolve(stream(record(PLAN).frames)) })
    one.manager.ask({ text: "Why?" })
    const key = one.manager.current()?.key
    await settled(() => one.commits.length > 0)
    expect(one.manager.keyOf(EVENT)).toBe(key)
    expect(one.manager.keyOf("ask_1")).toBe(key)
  })

  test("stop is sent to the gateway once, as soon as the answer has an id", async () => {
    const { frames, final } = record(PLAN, "cancelled")
    let begin = () => undefined as void
    const cancelled: string[] = []
    const one = setUp({
      ask: () =>
        Promise.resolve({
          date: null,
          body: new ReadableStream<Uint8Array>({
            start(controller) {
              begin = () => controller.enqueue(frames[0] ?? new Uint8Array())
              setTimeout(() => undefined)
            },
          }),
        }),
      cancel: (id) => {
        cancelled.push(id)
        return Promise.resolve({ id, status: "cancelled" })
      },
    })
    one.manager.ask({ text: "Why?" })
    one.manager.stop()
    expect(cancelled).toEqual([])
    begin()
    await settled(() => cancelled.length > 0)
    one.manager.stop()
    expect(cancelled).toEqual([final.id])
    expect(one.manager.current()?.stopping).toBe(true)
  })

  test("a failed or stopped answer is final too", async () => {
    for (const status of ["failed", "cancelled"] as const) {
      const one = await whole(record(PLAN, status))
      expect(one.commits).toMatchObject([{ event: { status } }])
    }
  })

  test("after an error without message_final, the answer could not be saved, and a retry replaces it", async () => {
    const { frames } = record(PLAN, "failed")
    const bodies: unknown[] = []
    const one = setUp({
      ask: (body) => {
        bodies.push(body)
        return Promise.resolve(stream(frames.slice(0, -1)))
      },
      read: () => Promise.resolve(stream([])),
    })
    one.manager.ask({ text: "Why?" })
    await settled(() => one.manager.current()?.phase === "refused")
    expect(one.manager.current()?.error).toBe("The model broke.")
    expect(one.manager.streaming).toBe(false)
    one.manager.retry()
    expect(bodies[1]).toEqual({ text: "Why?", conversation_id: CHAT, replaces: EVENT })
  })

  test("a rejected question shows the reason; a retry asks again", async () => {
    let tries = 0
    const one = setUp({
      ask: () => (++tries === 1 ? Promise.reject(new ApiError("An answer is still being written here.", 409, "conversation_busy")) : Promise.resolve(stream(record(PLAN).frames))),
    })
    one.manager.ask({ text: "Why?", conversation_id: CHAT })
    await settled(() => one.manager.current()?.phase === "refused")
    expect(one.manager.current()?.error).toBe("An answer is still being written here.")
    one.manager.retry()
    await settled(() => one.commits.length === 1)
  })

  test("a 401 reports that the user is signed out", async () => {
    const one = setUp({ ask: () => Promise.reject(new ApiError("No.", 401)) })
    one.manager.ask({ text: "Why?" })
    await settled(() => one.signedOut.mock.calls.length > 0)
  })

  test("reconnecting waits longer each time, stops after some attempts, and a retry continues", async () => {
    const { frames } = record(PLAN)
    let up = false
    const after: (string | null)[] = []
    const one = setUp({
      ask: () => Promise.resolve(stream(frames.slice(0, 4), true)),
      read: (_, last) => {
        after.push(last)
        return up ? Promise.resolve(stream(frames.slice(4))) : Promise.reject(new ApiError("away", 0))
      },
    })
    one.manager.ask({ text: "Why?" })
    await settled(() => one.manager.current()?.phase === "lost")
    expect(one.waits.length).toBeGreaterThan(5)
    expect(Math.max(...one.waits)).toBeLessThanOrEqual(10_000)
    expect(new Set(after)).toEqual(new Set(["3"]))
    up = true
    one.manager.retry()
    await settled(() => one.commits.length === 1)
    expect(one.overlays).toEqual((await whole(record(PLAN))).overlays)
  })

  test("a question without a response is looked up in its conversation, and not asked twice", async () => {
    const recorded = record(PLAN)
    const ask = vi.fn(() => Promise.resolve(stream([], true)))
    const loaded: OpenConversation = {
      conversation: { id: CHAT, title: "Rain", created_at: 1, updated_at: 1 },
      events: [
        { id: "ask_1", conversation_id: CHAT, role: "user", created_at: 1, status: "completed", segments: [{ id: "t", type: "text", text: "Why?" }] },
        { ...recorded.final, status: "in_progress", segments: [] },
      ],
      active: EVENT,
    }
    const one = setUp({ ask, conversation: () => Promise.resolve(loaded), read: () => Promise.resolve(stream(recorded.frames)) })
    one.manager.ask({ text: "Why?", conversation_id: CHAT })
    await settled(() => one.commits.length === 1)
    expect(ask).toHaveBeenCalledTimes(1)
    const other = setUp({ ask: () => Promise.resolve(stream([], true)), conversation: () => Promise.resolve(loaded) })
    other.manager.ask({ text: "Something else", conversation_id: CHAT })
    await settled(() => other.manager.current()?.phase === "refused")
  })

  test.each([
    ["that the page does not have", false, 1],
    ["to an earlier question with the same text", true, 2],
  ])("a retry first looks for an answer to the question: one %s", async (_, has, times) => {
    const recorded = record(PLAN)
    let up = false
    const questionEventId = recorded.final.id.replace("evt_", "ask_")
    const ask = vi.fn(() => (up ? Promise.resolve(stream(recorded.frames)) : Promise.reject(new ApiError("away", 0))))
    const loaded: OpenConversation = {
      conversation: { id: CHAT, title: "Rain", created_at: 1, updated_at: 1 },
      events: [
        { id: questionEventId, conversation_id: CHAT, role: "user", created_at: 1, status: "completed", segments: [{ id: "t", type: "text", text: "Why?" }] },
        recorded.final,
      ],
      active: null,
    }
    const one = setUp({
      ask,
      conversation: () => (up ? Promise.resolve(loaded) : Promise.reject(new ApiError("away", 0))),
      read: () => Promise.resolve(stream(recorded.frames)),
    })
    if (has) one.store.dispatch({ type: "opened", loaded })
    one.commits.length = 0
    one.manager.ask({ text: "Why?", conversation_id: CHAT })
    await settled(() => one.manager.current()?.phase === "refused")
    up = true
    one.manager.retry()
    await settled(() => one.commits.length === 1)
    expect(ask).toHaveBeenCalledTimes(times)
  })

  test("an answer that was stopped before it had an id is stopped once it is found in its conversation", async () => {
    const recorded = record(PLAN, "cancelled")
    const cancel = vi.fn(() => Promise.resolve({ id: EVENT, status: "cancelled" as const }))
    const loaded: OpenConversation = {
      conversation: { id: CHAT, title: "Rain", created_at: 1, updated_at: 1 },
      events: [
        { id: "ask_1", conversation_id: CHAT, role: "user", created_at: 1, status: "completed", segments: [{ id: "t", type: "text", text: "Why?" }] },
        { ...recorded.final, status: "in_progress", segments: [] },
      ],
      active: EVENT,
    }
    const one = setUp({
      cancel,
      ask: () => Promise.resolve(stream([], true)),
      conversation: () => Promise.resolve(loaded),
      read: () => Promise.resolve(stream(recorded.frames)),
    })
    one.manager.ask({ text: "Why?", conversation_id: CHAT })
    one.manager.stop()
    await settled(() => one.commits.length === 1)
    expect(cancel.mock.calls).toEqual([[EVENT]])
  })

  test("an answer that does not exist is reported, and can be retried", async () => {
    let there = false
    const one = setUp({ read: () => (there ? Promise.resolve(stream(record(PLAN).frames)) : Promise.reject(new ApiError("There is no such event.", 404))) })
    one.manager.resume(CHAT, EVENT)
    await settled(() => one.manager.current()?.phase === "refused")
    expect(one.waits).toEqual([])
    there = true
    one.manager.retry()
    await settled(() => one.commits.length === 1)
  })

  test("leaving a conversation only stops reading", async () => {
    let cancelled = false
    const first = record(PLAN).frames[0] ?? new Uint8Array()
    const cancel = vi.fn()
    const one = setUp({
      cancel,
      ask: (_, signal) => {
        const open = new ReadableStream<Uint8Array>({
          start(controller) {
            controller.enqueue(first)
            signal.addEventListener("abort", () => {
              cancelled = true
              controller.error(new DOMException("aborted", "AbortError"))
            })
          },
        })
        return Promise.resolve({ body: open, date: null })
      },
    })
    one.manager.ask({ text: "Why?" })
    await settled(() => one.manager.current()?.event_id === EVENT)
    one.manager.leave()
    expect(one.manager.current()).toBeNull()
    await settled(() => cancelled)
    expect(one.bus.message(EVENT)).toBeUndefined()
    expect(cancel).not.toHaveBeenCalled()
    expect(one.commits).toEqual([])
  })
})
