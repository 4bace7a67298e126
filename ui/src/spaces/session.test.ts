// A session: envelopes from a socket that may break and from the history over HTTP become one log.
import fc from "fast-check"
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"

import type { History } from "./api"
import type { Envelope } from "./envelope"
import { Fold } from "./fold"
import { SpaceSession } from "./session"
import type { Socket } from "./session"
import { picture, makeEnvelope, scripts } from "./testkit"

class Wire implements Socket {
  onopen: ((event: never) => void) | null = null
  onmessage: ((event: { data: unknown }) => void) | null = null
  onclose: ((event: { code: number; reason: string }) => void) | null = null
  readonly sent: { [name: string]: unknown }[] = []
  send = (text: string) => void this.sent.push(JSON.parse(text) as { [name: string]: unknown })
  close = vi.fn()

  deliver(envelope: Partial<Envelope> & { kind: string }): void {
    const { correlation, ...rest } = envelope
    this.onmessage?.({ data: JSON.stringify({ protocol: "mew/v0.4", ...rest, ...(correlation && { correlation_id: correlation }) }) })
  }

  welcome(head: number): void {
    this.onopen?.(undefined as never)
    this.deliver({ kind: "system/welcome", from: "system:gateway", payload: { you: { id: "mara", capabilities: ["*"] }, participants: [{ id: "ada" }], head } })
  }
}

/** A history that is served in pages of `size` envelopes. */
function pagedHistory(all: readonly Envelope[], size: number): History {
  return {
    page: ({ after = 0, before = Number.POSITIVE_INFINITY, newest = false }) => {
      const matching = all.filter(({ seq }) => seq > after && seq < before)
      const envelopes = newest ? matching.slice(-size) : matching.slice(0, size)
      return Promise.resolve({
        envelopes,
        more: matching.length > envelopes.length,
        first: envelopes[0]?.seq ?? null,
        last: envelopes.at(-1)?.seq ?? null,
      })
    },
    search: () => Promise.resolve({ hits: [], more: false, before: null }),
  }
}

function startSession(all: readonly Envelope[] = [], size = 7) {
  const wires: Wire[] = []
  let count = 0
  const session = new SpaceSession({
    space: "s", token: "secret", gather: 0, history: pagedHistory(all, size), random: () => `mine-${++count}`,
    open: () => {
      wires.push(new Wire())
      return wires.at(-1) as Wire
    },
  })
  session.start()
  return { session, wires, wire: () => wires.at(-1) as Wire }
}

const settle = () => vi.advanceTimersByTimeAsync(5)

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

describe("a session", () => {
  it("joins with its first frame, and loads the end of the history", async () => {
    const all = Array.from({ length: 40 }, (_, index) => makeEnvelope({ seq: index + 1 }))
    const { session, wire } = startSession(all)
    wire().welcome(40)
    await settle()
    expect(wire().sent).toEqual([{ type: "join", space: "s", token: "secret", view: "full", dialect: "mew/v0.4" }])
    expect(session.snapshot()).toMatchObject({ phase: "open", me: "mara", head: 40, from: 27 })
    await session.earlier()
    expect(session.snapshot().from).toBe(20)
    session.leave()
  })

  it("has each envelope once, in order, whichever connection breaks and when", async () => {
    await fc.assert(
      fc.asyncProperty(scripts, fc.array(fc.nat(6), { minLength: 1 }), fc.nat(), async (all, pieces, start) => {
        const head = all.length === 0 ? 0 : start % all.length
        let stored = all.slice(0, head)
        const history: History = { ...pagedHistory(all, 3), page: (query) => pagedHistory(stored, 3).page(query) }
        const wires: Wire[] = []
        const session = new SpaceSession({ space: "s", token: "t", gather: 0, history, open: () => (wires.push(new Wire()), wires.at(-1) as Wire) })
        session.start()
        wires[0]?.welcome(stored.at(-1)?.seq ?? 0)
        let index = head
        for (const [turn, piece] of pieces.entries()) {
          const wire = wires.at(-1) as Wire
          for (const one of all.slice(index, index + piece)) wire.deliver(one)
          index = Math.min(all.length, index + piece)
          stored = all.slice(0, index)
          if (turn % 3 === 2) {
            wire.onclose?.({ code: 1006, reason: "" })
            await vi.advanceTimersByTimeAsync(30_000)
            const next = wires.at(-1) as Wire
            next.welcome(stored.at(-1)?.seq ?? 0)
            const after = Number(next.sent[0]?.["after_seq"])
            for (const one of stored) if (one.seq > after) next.deliver(one)
          }
          await settle()
        }
        while (session.snapshot().from > 1 && stored.length > 0) await session.earlier()
        await settle()
        expect(session.snapshot().list).toEqual(stored)
        expect(picture(session.snapshot().fold)).toEqual(picture(Fold.of(stored)))
        session.leave()
      }),
      { numRuns: 40 },
    )
  })

  it("replaces a silent socket that misses something, and one that may be dead because the network was away", async () => {
    const all = Array.from({ length: 9 }, (_, index) => makeEnvelope({ seq: index + 1 }))
    const { session, wires } = startSession(all)
    wires[0]?.welcome(9)
    await settle()
    // Nobody says anything: that is no reason.
    await vi.advanceTimersByTimeAsync(120_000)
    expect(wires).toHaveLength(1)
    all.push(makeEnvelope({ seq: 10 }))
    await vi.advanceTimersByTimeAsync(30_000)
    expect(wires).toHaveLength(2)
    // Until the new one has joined, others see the participant present by the old one.
    expect(wires[0]?.close).not.toHaveBeenCalled()
    wires[1]?.welcome(10)
    expect(wires[1]?.sent).toMatchObject([{ type: "join", after_seq: 9 }])
    expect(wires[0]?.close).toHaveBeenCalledOnce()
    for (const one of all.slice(9)) wires[1]?.deliver(one)
    await settle()
    expect(session.snapshot()).toMatchObject({ phase: "open", head: 10 })
    session.wake("visible")
    await settle()
    expect(wires).toHaveLength(2)
    session.wake("online")
    expect(wires).toHaveLength(3)
    session.leave()
    await vi.advanceTimersByTimeAsync(120_000)
    expect(wires.map((wire) => wire.close.mock.calls.length)).toEqual([1, 1, 1])
  })

  it("replaces a socket that does not echo a message, and sends it again", async () => {
    const { session, wires } = startSession()
    wires[0]?.welcome(0)
    session.sendMessage("Hello")
    await vi.advanceTimersByTimeAsync(60_000)
    expect(wires).toHaveLength(2)
    wires[1]?.welcome(0)
    const [first, again] = [wires[0]?.sent.at(-1), wires[1]?.sent.at(-1)]
    expect(first).toMatchObject({ kind: "chat", payload: { text: "Hello" } })
    expect(again).toEqual(first)
    session.leave()
  })

  it("reads the envelopes of a gap", async () => {
    const all = Array.from({ length: 30 }, (_, index) => makeEnvelope({ seq: index + 1 }))
    const { session, wire } = startSession(all)
    wire().welcome(4)
    for (const one of all.slice(4, 8)) wire().deliver(one)
    wire().deliver({ kind: "system/gap", payload: { after_seq: 8, before_seq: 28, missed: 19 } })
    for (const one of all.slice(27)) wire().deliver(one)
    await settle()
    expect(session.snapshot().list.map(({ seq }) => seq)).toEqual(all.map(({ seq }) => seq))
    session.leave()
  })

  it("starts again if the space was replaced by another with the same name, and reports it once", async () => {
    const before = Array.from({ length: 9 }, (_, index) => makeEnvelope({ seq: index + 1, id: `old-${index}` }))
    const stored = [...before]
    const wires: Wire[] = []
    const history: History = { ...pagedHistory([], 7), page: (query) => pagedHistory(stored, 7).page(query) }
    const session = new SpaceSession({ space: "s", token: "t", gather: 0, history, open: () => (wires.push(new Wire()), wires.at(-1) as Wire) })
    session.start()
    wires[0]?.welcome(9)
    await settle()
    session.goTo(4)
    const after = [1, 2].map((seq) => makeEnvelope({ seq, id: `new-${seq}` }))
    stored.splice(0, stored.length, ...after)
    wires[0]?.onclose?.({ code: 1006, reason: "" })
    session.wake("visible")
    const wire = wires.at(-1) as Wire
    wire.onopen?.(undefined as never)
    expect(wire.sent[0]).toMatchObject({ after_seq: 9 })
    const welcome = { you: { id: "mara", capabilities: ["*"] }, participants: [], head: 2 }
    wire.deliver({ kind: "system/welcome", from: "system:gateway", payload: { ...welcome, unknown_after_seq: 9 } })
    for (const one of after) wire.deliver(one)
    await settle()
    expect(session.snapshot()).toMatchObject({ phase: "open", head: 2, from: 1, scrub: { mode: "live" } })
    expect(session.snapshot().list.map(({ id }) => id)).toEqual(["new-1", "new-2"])
    expect(session.snapshot().problem).toMatch(/another one/)
    expect(picture(session.snapshot().fold)).toEqual(picture(Fold.of(after)))
    wire.deliver(makeEnvelope({ seq: 3 }))
    wire.deliver({ kind: "system/welcome", from: "system:gateway", payload: { ...welcome, head: 3 } })
    await settle()
    expect(session.snapshot()).toMatchObject({ head: 3, problem: null })
    session.leave()
  })

  it("does not retry with a rejected token, and shows the reason", async () => {
    const { session, wires, wire } = startSession()
    wire().onopen?.(undefined as never)
    wire().deliver({ kind: "system/error", payload: { error: "unauthorized", message: "no such space or token" } })
    wire().onclose?.({ code: 4401, reason: "invalid_token" })
    await vi.advanceTimersByTimeAsync(60_000)
    expect(session.snapshot()).toMatchObject({ phase: "refused", problem: "no such space or token" })
    expect(wires).toHaveLength(1)
  })
})

describe("the page at any position", () => {
  it("equals the fold of the envelopes up to there, however it is reached", async () => {
    await fc.assert(
      fc.asyncProperty(scripts, fc.array(fc.nat(), { maxLength: 8 }), async (all, jumps) => {
        const { session, wire } = startSession(all, 5)
        const head = all.at(-1)?.seq ?? 0
        wire().welcome(head)
        await settle()
        for (const jump of jumps) {
          const at = 1 + (jump % Math.max(head, 1))
          session.goTo(at)
          await settle()
          const shown = session.snapshot()
          expect(shown.from <= at || shown.from === 1 || all.length === 0).toBe(true)
          expect(picture(shown.fold)).toEqual(picture(Fold.of(shown.list.filter(({ seq }) => seq <= at))))
        }
        session.live()
        expect(picture(session.snapshot().fold)).toEqual(picture(Fold.of(session.snapshot().list)))
        session.leave()
      }),
      { numRuns: 60 },
    )
  })

  it("far from the loaded part, is loaded separately, and plays until it meets the rest", async () => {
    const all = Array.from({ length: 9_000 }, (_, index) => makeEnvelope({ seq: index + 1, ts: 1_000 }))
    const { session, wire } = startSession(all, 500)
    wire().welcome(9_000)
    await settle()
    expect(session.snapshot().from).toBe(8_001)
    session.goTo(1_200)
    await settle()
    expect(session.snapshot()).toMatchObject({ from: 701, scrub: { mode: "paused", at: 1_200 } })
    expect(session.snapshot().fold.at).toBe(1_200)
    session.play()
    await vi.advanceTimersByTimeAsync(3_000)
    expect(session.snapshot()).toMatchObject({ scrub: { mode: "live" }, from: 701, head: 9_000 })
    expect(session.snapshot().list).toHaveLength(8_300)
    session.leave()
  })

  it("continues to receive while the page is paused", async () => {
    const all = Array.from({ length: 5 }, (_, index) => makeEnvelope({ seq: index + 1 }))
    const { session, wire } = startSession(all)
    wire().welcome(5)
    await settle()
    session.goTo(3)
    wire().deliver(makeEnvelope({ seq: 6 }))
    await settle()
    expect(session.snapshot()).toMatchObject({ head: 6, fold: { at: 3 } })
    session.live()
    expect(session.snapshot().fold.at).toBe(6)
    session.leave()
  })
})

describe("sending", () => {
  it("keeps a message pending until its echo, repeats it with the same id after a reconnect, and reports a rejection", async () => {
    const { session, wires, wire } = startSession()
    wire().welcome(0)
    await settle()
    session.sendMessage("hello", { to: "ada", repliesTo: "q" })
    expect(wire().sent.at(-1)).toMatchObject({ id: "mine-1", kind: "chat", to: ["ada"], correlation_id: ["q"], payload: { text: "hello" } })
    expect(session.snapshot().pending).toEqual([{ id: "mine-1", text: "hello" }])
    const first = wire().sent.at(-1)
    wire().onclose?.({ code: 1006, reason: "" })
    expect(session.snapshot().phase).toBe("reconnecting")
    session.wake("visible")
    wire().welcome(0)
    expect(wires).toHaveLength(2)
    expect(wire().sent.slice(1)).toEqual([first])
    wire().deliver(makeEnvelope({ seq: 1, id: "mine-1", from: "mara" }))
    await settle()
    expect(session.snapshot().pending).toEqual([])
    session.sendMessage("again")
    wire().deliver({ kind: "system/error", correlation: ["mine-2"], payload: { error: "rate_limited", message: "too fast" } })
    expect(session.snapshot().pending).toEqual([{ id: "mine-2", text: "again", failure: "too fast" }])
    session.sendMessage("short")
    session.sendMessage("the longest of all")
    wire().deliver({ kind: "system/error", correlation: ["mine-3"], payload: { error: "too_large", code: "too_large", message: "too long" } })
    expect(session.snapshot().pending.filter(({ failure }) => failure === "too long")).toMatchObject([{ id: "mine-3" }])
    wire().deliver({ kind: "system/error", payload: { error: "too_large", code: "too_large", message: "too long" } })
    expect(session.snapshot().pending.filter(({ failure }) => failure === "too long")).toMatchObject([{ id: "mine-3" }, { id: "mine-4" }])
    session.discard("mine-3")
    session.discard("mine-4")
    session.discard("mine-2")
    expect(session.snapshot().pending).toEqual([])
    session.leave()
  })

  it("names the context in a cancel, and repeats the proposed call in an approval", async () => {
    const { session, wire } = startSession()
    wire().welcome(0)
    wire().deliver(makeEnvelope({ seq: 1, id: "s", kind: "reasoning/start", from: "ada" }))
    wire().deliver(makeEnvelope({ seq: 2, id: "p", kind: "mcp/proposal", from: "ada", payload: { method: "tools/call", params: { name: "deploy" } } }))
    await settle()
    const { fold } = session.snapshot()
    const [context, proposal] = [fold.context("s"), fold.itemById("p")]
    if (!context || !proposal) throw new Error("neither is there")
    session.cancel(context)
    expect(wire().sent.at(-1)).toMatchObject({ kind: "reasoning/cancel", context: "s" })
    session.approve(proposal)
    expect(wire().sent.at(-1)).toMatchObject({ kind: "mcp/request", correlation_id: ["p"], payload: { jsonrpc: "2.0", method: "tools/call", params: { name: "deploy" } } })
    session.reject(proposal)
    expect(wire().sent.at(-1)).toMatchObject({ kind: "mcp/reject", correlation_id: ["p"] })
    session.leave()
  })
})
