// Streams as the gateway writes them, made from a plan: the frames, and the final event.
import type { Answer, Segment, StreamEvent } from "../api/types"

export type Planned =
  | { kind: "reasoning"; parts: string[][] }
  | { kind: "tool"; name: string; args: string; result: string; logs: string[] }
  | { kind: "text"; deltas: string[] }

export interface Recorded {
  events: StreamEvent[]
  final: Answer
  /** The bytes of the frames, in the order of their ids. */
  frames: Uint8Array[]
}

export const EVENT = "evt_1"
export const CHAT = "chat_1"

export function record(plan: readonly Planned[], status: Answer["status"] = "completed", eventId = EVENT): Recorded {
  const events: StreamEvent[] = [
    { type: "message_started", event_id: eventId, conversation_id: CHAT, model: "m", created_at: 1000, view: "raw" },
  ]
  const segments: Segment[] = []
  let sequence = 0
  plan.forEach((one, at) => {
    const own = sequence++
    if (one.kind === "reasoning") {
      const id = `rs_${at}`
      events.push({ type: "reasoning_segment_meta", event_id: eventId, segment_id: id, sequence_number: own, output_index: at, created_at: 1000 + at })
      const parts = one.parts.map((deltas, summary_index) => {
        const number = sequence++
        const of = { event_id: eventId, segment_id: id, summary_index }
        events.push({ type: "reasoning_part_started", ...of, sequence_number: number, created_at: 1000 + at })
        for (const text_delta of deltas) events.push({ type: "reasoning_part_delta", ...of, text_delta })
        events.push({ type: "reasoning_part_completed", ...of, is_complete: true })
        return { text: deltas.join(""), type: "reasoning_text" as const, created_at: 1000 + at, is_complete: true, summary_index, sequence_number: number }
      })
      segments.push({ id, type: "reasoning", parts, streaming: false, output_index: at, combined_text: parts.map((part) => part.text).join("\n\n"), sequence_number: own })
    } else if (one.kind === "tool") {
      const call = { event_id: eventId, call_id: `call_${at}` }
      events.push({ type: "tool_call_started", ...call, name: one.name, args_preview: "", sequence_number: own, created_at: 1000 + at })
      events.push({ type: "tool_call_update", ...call, status: "arguments", progress: null, args_preview: one.args })
      for (const logs_delta of one.logs) events.push({ type: "tool_call_update", ...call, status: "running", progress: 0.5, logs_delta })
      events.push({ type: "tool_result", ...call, result: one.result })
      segments.push({ id: `fc_${at}`, type: "tool_call", call_id: call.call_id, name: one.name, args: one.args, status: "completed", result: one.result, created_at: 1000 + at, sequence_number: own, output_index: at })
    } else {
      for (const text_delta of one.deltas) events.push({ type: "text_delta", event_id: eventId, text_delta, output_index: at })
      segments.push({ id: `msg_${at}`, type: "text", text: one.deltas.join("") })
    }
  })
  if (status === "failed") events.push({ type: "message_error", event_id: eventId, message: "The model broke." })
  if (status === "cancelled") events.push({ type: "message_cancelled", event_id: eventId })
  const final: Answer = { id: eventId, conversation_id: CHAT, role: "assistant", model: "m", created_at: 1000, status, segments }
  events.push({ type: "message_final", event: final })
  return { events, final, frames: events.map((event, id) => frame(event, id)) }
}

const encoder = new TextEncoder()

export const frame = (event: StreamEvent, id: number) =>
  encoder.encode(`id: ${id}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)

export function joined(pieces: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0))
  let at = 0
  for (const piece of pieces) {
    all.set(piece, at)
    at += piece.length
  }
  return all
}

/** Cut the bytes at these positions. */
export function cut(bytes: Uint8Array, places: readonly number[]): Uint8Array[] {
  const sorted = [...new Set(places.map((place) => place % (bytes.length + 1)))].toSorted((a, b) => a - b)
  return [...sorted, bytes.length].map((end, n) => bytes.subarray(n === 0 ? 0 : (sorted[n - 1] ?? 0), end))
}

/** A body that delivers these pieces, and then ends or fails. */
export function body(pieces: readonly Uint8Array[], breaks = false): ReadableStream<Uint8Array> {
  let at = 0
  return new ReadableStream({
    pull(controller) {
      const piece = pieces[at++]
      if (piece) controller.enqueue(piece)
      else if (breaks) controller.error(new TypeError("network error"))
      else controller.close()
    },
  })
}
