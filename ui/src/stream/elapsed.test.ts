// The time of reasoning and of tools while an answer streams is that of the final event.
import { describe, expect, test } from "vitest"

import type { Answer, StreamEvent } from "../api/types"
import { reasoningTime, toolTime } from "../chat/format"
import { CHAT, EVENT } from "../testing/recorded"
import { reasoningElapsed, toolElapsed } from "./elapsed"
import { StreamingBus } from "./streamingBus"

const segment = (id: string, sequence_number: number, created_at: number): StreamEvent => ({ type: "reasoning_segment_meta", event_id: EVENT, segment_id: id, sequence_number, output_index: sequence_number, created_at })
const part = (id: string, index: number, at: number): StreamEvent => ({ type: "reasoning_part_started", event_id: EVENT, segment_id: id, summary_index: index, sequence_number: 100 + index, created_at: at })
const done = (id: string, index: number, at: number): StreamEvent => ({ type: "reasoning_part_completed", event_id: EVENT, segment_id: id, summary_index: index, is_complete: true, completed_at: at })

function play(events: readonly [StreamEvent, arrival: number][]) {
  let now = 0
  const bus = new StreamingBus(() => undefined, () => now)
  for (const [event, arrival] of events) {
    now = arrival
    bus.push(event)
  }
  const message = bus.message(EVENT)
  if (!message) throw new Error("no message")
  return message
}

describe("the elapsed time", () => {
  test("of reasoning is the sum of its segments, without tools, and equals that of the final event", () => {
    const message = play([
      [segment("a", 0, 1_000), 91_000], [part("a", 0, 1_200), 91_200], [done("a", 0, 3_000), 93_000],
      [part("a", 1, 3_900), 93_900], [done("a", 1, 4_600), 94_600],
      [{ type: "tool_call_started", event_id: EVENT, call_id: "c", name: "look", args_preview: "", sequence_number: 5, created_at: 4_700 }, 94_700],
      [{ type: "tool_result", event_id: EVENT, call_id: "c", result: 1, completed_at: 9_800 }, 99_900],
      [segment("b", 6, 9_900), 99_900], [part("b", 0, 9_900), 99_900], [done("b", 0, 11_300), 101_300],
    ])
    expect(reasoningElapsed(message, 90_000)).toEqual({ done: 5_000, since: null })
    const tool = message.tools.get("c")
    expect(tool && toolElapsed(tool, true, 90_000)).toEqual({ done: 5_100, since: null })
    const call = { id: "fc", type: "tool_call", call_id: "c", name: "look", args: {}, status: "completed", created_at: 4_700, sequence_number: 5, output_index: 1 } as const
    const thoughts = ["a", "b"].map((id, index) => ({ id, type: "reasoning" as const, parts: [], streaming: false as const, output_index: index, combined_text: "", sequence_number: index }))
    const timeline = [{ segment_id: "a", started_at: 1_000, ended_at: 4_600 }, { segment_id: "fc", started_at: 4_700, ended_at: 9_800 }, { segment_id: "b", started_at: 9_900, ended_at: 11_300 }]
    const final: Answer = { id: EVENT, conversation_id: CHAT, role: "assistant", model: "m", created_at: 0, status: "completed", segments: [...thoughts, call], timeline }
    expect(reasoningTime(final)).toBe(5_000)
    expect(toolTime(final, call)).toBe(5_100)
  })

  test("of reasoning that another model summarizes ends with the reasoning, not with its summary", () => {
    const ended: StreamEvent = { type: "reasoning_segment_meta", event_id: EVENT, segment_id: "a", completed_at: 3_000, summary: { author: "b" } }
    const events: [StreamEvent, number][] = [[segment("a", 0, 1_000), 1_000], [ended, 3_000]]
    expect(reasoningElapsed(play(events), 0)).toEqual({ done: 2_000, since: null })
    expect(reasoningElapsed(play([...events, [part("a", 0, 12_000), 12_000], [done("a", 0, 12_500), 12_500]]), 0)).toEqual({ done: 2_000, since: null })
  })

  test("of what goes on counts from when it was seen; if the stream is resumed, from the gateway's time", () => {
    expect(reasoningElapsed(play([[segment("a", 0, 1_000), 1_700], [part("a", 0, 1_000), 1_700]]), 0)).toEqual({ done: 0, since: 1_700 })
    expect(reasoningElapsed(play([[segment("a", 0, 1_000), 60_000], [part("a", 0, 1_000), 60_000]]), 0)).toEqual({ done: 0, since: 1_000 })
    expect(reasoningElapsed(play([[segment("a", 0, 1_000), 11_000], [part("a", 0, 1_000), 11_000]]), 5_000)).toEqual({ done: 0, since: 6_000 })
  })

  test("of sealed reasoning ends with the next step, or with the text", () => {
    expect(reasoningElapsed(play([[segment("a", 0, 1_000), 1_000]]), 0)).toEqual({ done: 0, since: 1_000 })
    expect(reasoningElapsed(play([[segment("a", 0, 1_000), 1_000], [segment("b", 1, 3_500), 3_500]]), 0)).toEqual({ done: 2_500, since: 3_500 })
    expect(reasoningElapsed(play([[segment("a", 0, 1_000), 1_000], [{ type: "text_delta", event_id: EVENT, text_delta: "x", output_index: 1 }, 4_000]]), 0)).toEqual({ done: 3_000, since: null })
  })
})
