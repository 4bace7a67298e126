import fc from "fast-check"
import { describe, expect, test, vi } from "vitest"

import type { Answer, StreamEvent } from "../api/types"
import { plans } from "../testing/plans"
import { EVENT, record } from "../testing/recorded"
import { liveSteps, liveTexts, StreamingBus, topics } from "./streamingBus"

/** A bus whose animation frames the test triggers. */
function bus() {
  const waiting: (() => void)[] = []
  const made = new StreamingBus((flush) => waiting.push(flush))
  return { bus: made, waiting, frame: () => waiting.splice(0).forEach((flush) => flush()) }
}

interface Shown {
  steps: { sequence: number; [name: string]: unknown }[]
  texts: string[]
}

/** What an overlay shows, without transient state. */
function shown(of: StreamingBus): Shown {
  const message = of.message(EVENT)
  if (!message) return { steps: [], texts: [] }
  return {
    steps: liveSteps(message).map((step) =>
      step.kind === "part"
        ? { segment: step.segment_id, index: step.summary_index, sequence: step.sequence_number, text: step.text.text, complete: step.complete }
        : step.kind === "tool"
          ? { call: step.call_id, name: step.name, args: step.args_preview, result: step.result, status: step.status, sequence: step.sequence_number }
          : { segment: step.segment_id, sequence: step.sequence_number },
    ),
    texts: liveTexts(message).map((one) => one.text.text),
  }
}

function persisted(event: Answer): Shown {
  const steps = event.segments.flatMap((segment): Shown["steps"] => {
    if (segment.type === "reasoning") {
      if (segment.parts.length === 0) return [{ segment: segment.id, sequence: segment.sequence_number }]
      return segment.parts.map((part) => ({ segment: segment.id, index: part.summary_index, sequence: part.sequence_number, text: part.text, complete: part.is_complete }))
    }
    if (segment.type !== "tool_call") return []
    return [{ call: segment.call_id, name: segment.name, args: `${segment.args}`, result: segment.result, status: segment.status, sequence: segment.sequence_number }]
  })
  return { steps, texts: event.segments.flatMap((segment) => (segment.type === "text" ? [segment.text] : [])) }
}

describe("the streaming bus", () => {
  test("the overlay shows the steps of message_final", () => {
    fc.assert(
      fc.property(plans, (plan) => {
        const { events, final } = record(plan)
        const one = bus()
        for (const event of events) one.bus.push(event)
        expect(shown(one.bus)).toEqual(persisted(final))
      }),
    )
  })

  test("parts of several segments are separate, in the order of their numbers", () => {
    const { bus: one } = bus()
    const part = (segment_id: string, summary_index: number, sequence_number: number): StreamEvent => ({
      type: "reasoning_part_started", event_id: EVENT, segment_id, summary_index, sequence_number, created_at: 1,
    })
    const delta = (segment_id: string, summary_index: number, text_delta: string): StreamEvent => ({
      type: "reasoning_part_delta", event_id: EVENT, segment_id, summary_index, text_delta,
    })
    for (const event of [part("b", 0, 5), part("a", 1, 2), part("a", 0, 1), delta("a", 1, "second"), delta("a", 0, "first"), delta("b", 0, "third")]) one.push(event)
    one.push({ type: "tool_call_started", event_id: EVENT, call_id: "c", name: "t", args_preview: "", sequence_number: 3, created_at: 1 })
    expect(shown(one).steps.map((step) => step.sequence)).toEqual([1, 2, 3, 5])
  })

  test("built-in tools have their own type, from start to result", () => {
    const { bus: one } = bus()
    for (const kind of ["web_search_call", "code_interpreter_call"] as const) {
      const call = { event_id: EVENT, call_id: kind }
      one.push({ type: `${kind}_started`, ...call, name: "search", args_preview: "q", sequence_number: 1, created_at: 1 })
      one.push({ type: `${kind}_update`, ...call, status: "running", progress: 0.5, logs_delta: "a" })
      expect(one.message(EVENT)?.tools.get(kind)).toMatchObject({ type: kind, status: "running", progress: 0.5, args_preview: "q" })
      one.push({ type: `${kind}_result`, ...call, result: null, error: "It broke." })
      expect(one.message(EVENT)?.tools.get(kind)).toMatchObject({ status: "failed", error: "It broke." })
    }
  })

  test("a listener is called at most once in a frame, however many of its topics changed", () => {
    const { bus: one, frame, waiting } = bus()
    const both = vi.fn()
    const other = vi.fn()
    one.subscribe(topics.text(EVENT), both)
    one.subscribe(topics.steps(EVENT), both)
    one.subscribe(topics.text("evt_2"), other)
    for (let n = 0; n < 100; n++) one.push({ type: "text_delta", event_id: EVENT, text_delta: "x", output_index: 0 })
    expect(waiting).toHaveLength(1)
    expect(both).not.toHaveBeenCalled()
    frame()
    expect(both).toHaveBeenCalledTimes(1)
    expect(other).not.toHaveBeenCalled()
    one.push({ type: "text_delta", event_id: EVENT, text_delta: "x", output_index: 0 })
    frame()
    expect(both).toHaveBeenCalledTimes(2)
  })

  test("a delta notifies its own part only, not the list of steps", () => {
    const { bus: one, frame } = bus()
    for (const event of record([{ kind: "reasoning", parts: [["a"], ["b"]] }]).events) one.push(event)
    frame()
    const calls: string[] = []
    one.subscribe(topics.part(EVENT, "rs_0", 0), () => calls.push("first"))
    one.subscribe(topics.part(EVENT, "rs_0", 1), () => calls.push("second"))
    one.subscribe(topics.steps(EVENT), () => calls.push("steps"))
    one.push({ type: "reasoning_part_delta", event_id: EVENT, segment_id: "rs_0", summary_index: 1, text_delta: "c" })
    frame()
    expect(calls).toEqual(["second"])
  })

  test("cleared answers are removed, and their listeners are called", () => {
    const { bus: one, frame } = bus()
    for (const event of record([{ kind: "reasoning", parts: [["a"]] }, { kind: "text", deltas: ["b"] }]).events) one.push(event)
    const listener = vi.fn()
    one.subscribe(topics.text(EVENT), listener)
    one.clear(EVENT)
    expect(one.message(EVENT)).toBeUndefined()
    frame()
    expect(listener).toHaveBeenCalledTimes(1)
  })

  test("a change between render and subscription is noticed", () => {
    const { bus: one, frame } = bus()
    const looked = one.version(topics.text(EVENT))
    one.push({ type: "text_delta", event_id: EVENT, text_delta: "x", output_index: 0 })
    frame()
    expect(one.version(topics.text(EVENT))).not.toBe(looked)
  })

  test("no state of ended answers remains", () => {
    const { bus: one, frame } = bus()
    for (let n = 0; n < 3; n++) {
      const leave = one.subscribe(topics.text(EVENT), () => undefined)
      for (const event of record([{ kind: "reasoning", parts: [["a"]] }, { kind: "text", deltas: ["b"] }]).events) one.push(event)
      frame()
      one.clear(EVENT)
      if (n === 1) leave()
      frame()
      if (n !== 1) leave()
    }
    const internals = one as unknown as Record<string, { size: number }>
    for (const name of ["messages", "listeners", "versions", "dirty", "cleared"]) expect(internals[name]?.size).toBe(0)
  })

  test("an unsubscribed listener is not called, and an unknown event type is ignored", () => {
    const { bus: one, frame } = bus()
    const listener = vi.fn()
    one.subscribe(topics.text(EVENT), listener)()
    one.push({ type: "text_delta", event_id: EVENT, text_delta: "x", output_index: 0 })
    one.push({ type: "something_new", event_id: EVENT } as unknown as StreamEvent)
    frame()
    expect(listener).not.toHaveBeenCalled()
    expect(shown(one).texts).toEqual(["x"])
  })
})
