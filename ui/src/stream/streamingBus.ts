// The state of answers before message_final: buffers of reasoning by (event_id, segment_id, summary_index), of tools by
// call_id, of text by event_id; and their listeners. A listener is called at most once in an animation frame. Nothing
// here is written to the store; message_final clears it.
import type { Json, StreamEvent, ToolResult, ToolStarted, ToolUpdate } from "../api/types"
import { TextBuffer } from "./textBuffer"

export interface LivePart {
  kind: "part"
  key: string
  segment_id: string
  summary_index: number
  sequence_number: number
  created_at: number
  complete: boolean
  completed_at: number | undefined
  text: TextBuffer
}

export interface LiveSegment {
  segment_id: string
  sequence_number: number | undefined
  created_at: number | undefined
  /** When the reasoning ended, if summaries of it may still come. */
  completed_at: number | undefined
  /** The model that writes its summaries, if it is another one. */
  author: string | undefined
  /** When its first event arrived, by the browser's clock. */
  seen_at: number
}

export type ToolKind = "tool_call" | "web_search_call" | "code_interpreter_call"

export interface LiveTool {
  kind: "tool"
  type: ToolKind
  call_id: string
  name: string
  args_preview: string
  /** `arguments` → `running` → `completed` or `failed`, or another status of the provider. */
  status: string
  progress: number | null
  logs: TextBuffer
  result: Json | undefined
  error: string | undefined
  sequence_number: number
  created_at: number
  completed_at: number | undefined
  /** When its first event arrived, by the browser's clock. */
  seen_at: number
}

/** A sealed reasoning item has no parts, but the page shows that the model is thinking. */
export interface LiveSealed {
  kind: "sealed"
  segment_id: string
  sequence_number: number
  created_at: number
}

export type LiveStep = LivePart | LiveTool | LiveSealed

export interface LiveText {
  output_index: number
  text: TextBuffer
  /** When its first event arrived, by the browser's clock. */
  seen_at: number
}

export interface LiveMessage {
  event_id: string
  segments: Map<string, LiveSegment>
  parts: Map<string, LivePart>
  tools: Map<string, LiveTool>
  texts: Map<number, LiveText>
  error: string | undefined
  cancelled: boolean
}

const partKey = (segmentId: string, summaryIndex: number) => `${segmentId}/${summaryIndex}`

/** Topics: the list of an answer's steps, the text of one part, one tool, the text of the answer. */
export const topics = {
  steps: (eventId: string) => `steps ${eventId}`,
  part: (eventId: string, segmentId: string, summaryIndex: number) =>
    `part ${eventId} ${partKey(segmentId, summaryIndex)}`,
  tool: (eventId: string, callId: string) => `tool ${eventId} ${callId}`,
  text: (eventId: string) => `text ${eventId}`,
}

type Listener = () => void
/** Call `flush` once, in the next animation frame. */
export type Schedule = (flush: () => void) => void

// A page in the background gets no animation frames, so it uses a timer.
const nextFrame: Schedule = (flush) => {
  if (typeof requestAnimationFrame === "function" && document.visibilityState === "visible") requestAnimationFrame(flush)
  else setTimeout(flush, 250)
}

const TOOL_EVENT = /^(tool|web_search|code_interpreter)(?:_call)?_(started|update|result)$/

export class StreamingBus {
  private readonly messages = new Map<string, LiveMessage>()
  private readonly listeners = new Map<string, Set<Listener>>()
  private readonly versions = new Map<string, number>()
  private readonly dirty = new Set<string>()
  /** Topics of cleared answers. */
  private readonly cleared = new Set<string>()
  private scheduled = false

  constructor(
    private readonly schedule: Schedule = nextFrame,
    private readonly clock: () => number = Date.now,
  ) {}

  message(eventId: string): LiveMessage | undefined {
    return this.messages.get(eventId)
  }

  subscribe(topic: string, listener: Listener): () => void {
    let listeners = this.listeners.get(topic)
    if (!listeners) this.listeners.set(topic, (listeners = new Set()))
    listeners.add(listener)
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0 && this.listeners.get(topic) === listeners) {
        this.listeners.delete(topic)
        if (this.cleared.delete(topic)) this.versions.delete(topic)
      }
    }
  }

  /** Changes when the listeners are called, not earlier, so that one frame renders a consistent state. */
  version(topic: string): number {
    return this.versions.get(topic) ?? 0
  }

  /** Add an event to its buffer; message_final has no effect. */
  push(event: StreamEvent): void {
    switch (event.type) {
      case "message_final":
        return
      case "message_started":
        this.open(event.event_id)
        return this.markDirty(topics.steps(event.event_id))
      case "reasoning_part_started": {
        const message = this.open(event.event_id)
        this.part(message, event.segment_id, event.summary_index, event.sequence_number, event.created_at)
        return
      }
      case "reasoning_part_delta": {
        const part = this.part(this.open(event.event_id), event.segment_id, event.summary_index)
        part.text.append(event.text_delta)
        return this.markDirty(topics.part(event.event_id, event.segment_id, event.summary_index))
      }
      case "reasoning_part_completed": {
        const part = this.part(this.open(event.event_id), event.segment_id, event.summary_index)
        if (part.text.length === 0 && event.final_text) part.text.append(event.final_text)
        part.complete = true
        part.completed_at = event.completed_at
        this.markDirty(topics.part(event.event_id, event.segment_id, event.summary_index))
        return this.markDirty(topics.steps(event.event_id))
      }
      case "reasoning_segment_meta": {
        const segment = this.segment(this.open(event.event_id), event.segment_id)
        segment.sequence_number = event.sequence_number ?? segment.sequence_number
        segment.created_at = event.created_at ?? segment.created_at
        segment.completed_at = event.completed_at ?? segment.completed_at
        segment.author = event.summary?.author ?? segment.author
        return this.markDirty(topics.steps(event.event_id))
      }
      case "text_delta": {
        const message = this.open(event.event_id)
        let live = message.texts.get(event.output_index)
        if (!live) {
          message.texts.set(event.output_index, (live = { output_index: event.output_index, text: new TextBuffer(), seen_at: this.clock() }))
          this.markDirty(topics.steps(event.event_id))
        }
        live.text.append(event.text_delta)
        return this.markDirty(topics.text(event.event_id))
      }
      case "message_error":
        this.open(event.event_id).error = event.message
        return this.markDirty(topics.steps(event.event_id))
      case "message_cancelled":
        this.open(event.event_id).cancelled = true
        return this.markDirty(topics.steps(event.event_id))
      default:
        return this.pushTool(event)
    }
  }

  /** Discard the state of an answer. */
  clear(eventId: string): void {
    const message = this.messages.get(eventId)
    if (!message) return
    this.messages.delete(eventId)
    const cleared = [topics.steps(eventId), topics.text(eventId)]
    for (const part of message.parts.values()) cleared.push(topics.part(eventId, part.segment_id, part.summary_index))
    for (const tool of message.tools.values()) cleared.push(topics.tool(eventId, tool.call_id))
    for (const topic of cleared) {
      this.markDirty(topic)
      this.cleared.add(topic)
    }
  }

  private pushTool(event: ToolStarted | ToolUpdate | ToolResult) {
    const match = TOOL_EVENT.exec(event.type)
    if (!match) return // An event type of a newer server.
    const type = `${match[1]}_call` as ToolKind
    const message = this.open(event.event_id)
    let tool = message.tools.get(event.call_id)
    if (!tool) {
      tool = {
        kind: "tool",
        type,
        call_id: event.call_id,
        name: "",
        args_preview: "",
        status: "arguments",
        progress: null,
        logs: new TextBuffer(),
        result: undefined,
        error: undefined,
        sequence_number: Number.MAX_SAFE_INTEGER,
        created_at: 0,
        completed_at: undefined,
        seen_at: this.clock(),
      }
      message.tools.set(event.call_id, tool)
      this.markDirty(topics.steps(event.event_id))
    }
    const { status } = tool
    if ("sequence_number" in event) {
      tool.name = event.name
      tool.args_preview = event.args_preview
      tool.sequence_number = event.sequence_number
      tool.created_at = event.created_at
      this.markDirty(topics.steps(event.event_id))
    } else if ("status" in event) {
      tool.status = event.status
      tool.progress = event.progress
      if (event.logs_delta) tool.logs.append(event.logs_delta)
      tool.args_preview = event.args_preview ?? tool.args_preview
    } else {
      tool.result = event.result
      tool.error = event.error
      tool.completed_at = event.completed_at
      tool.status = event.error === undefined ? "completed" : "failed"
    }
    if (tool.status !== status) this.markDirty(topics.steps(event.event_id))
    this.markDirty(topics.tool(event.event_id, event.call_id))
  }

  private open(eventId: string): LiveMessage {
    let message = this.messages.get(eventId)
    if (!message) {
      message = {
        event_id: eventId,
        segments: new Map(),
        parts: new Map(),
        tools: new Map(),
        texts: new Map(),
        error: undefined,
        cancelled: false,
      }
      this.messages.set(eventId, message)
    }
    return message
  }

  private segment(message: LiveMessage, id: string): LiveSegment {
    let segment = message.segments.get(id)
    if (!segment) {
      segment = { segment_id: id, sequence_number: undefined, created_at: undefined, completed_at: undefined, author: undefined, seen_at: this.clock() }
      message.segments.set(id, segment)
    }
    return segment
  }

  private part(message: LiveMessage, segmentId: string, index: number, sequence?: number, createdAt?: number): LivePart {
    const key = partKey(segmentId, index)
    let part = message.parts.get(key)
    if (!part) {
      this.segment(message, segmentId)
      part = {
        kind: "part",
        key,
        segment_id: segmentId,
        summary_index: index,
        sequence_number: sequence ?? Number.MAX_SAFE_INTEGER,
        created_at: createdAt ?? 0,
        complete: false,
        completed_at: undefined,
        text: new TextBuffer(),
      }
      message.parts.set(key, part)
      this.markDirty(topics.steps(message.event_id))
    }
    return part
  }

  private markDirty(topic: string) {
    this.dirty.add(topic)
    this.cleared.delete(topic)
    if (this.scheduled) return
    this.scheduled = true
    this.schedule(() => this.flush())
  }

  private flush() {
    this.scheduled = false
    const pending = new Set<Listener>()
    for (const topic of this.dirty) {
      const listeners = this.listeners.get(topic)
      // Incremented without listeners, too: a component that is about to subscribe must notice a change since its
      // render.
      if (listeners || !this.cleared.delete(topic)) this.versions.set(topic, this.version(topic) + 1)
      else this.versions.delete(topic)
      for (const listener of listeners ?? []) pending.add(listener)
    }
    this.dirty.clear()
    for (const listener of pending) listener()
  }
}

/** Reasoning parts, sealed reasoning and tools, in the order in which the model began them. */
export function liveSteps(message: LiveMessage): LiveStep[] {
  const steps: LiveStep[] = [...message.parts.values(), ...message.tools.values()]
  const withParts = new Set([...message.parts.values()].map((part) => part.segment_id))
  for (const segment of message.segments.values()) {
    if (withParts.has(segment.segment_id) || segment.sequence_number === undefined) continue
    steps.push({
      kind: "sealed",
      segment_id: segment.segment_id,
      sequence_number: segment.sequence_number,
      created_at: segment.created_at ?? 0,
    })
  }
  return steps.toSorted((a, b) => a.sequence_number - b.sequence_number || indexOf(a) - indexOf(b))
}

const indexOf = (step: LiveStep) => (step.kind === "part" ? step.summary_index : 0)

/** The texts of the answer, in order. */
export function liveTexts(message: LiveMessage): LiveText[] {
  return [...message.texts.values()].toSorted((a, b) => a.output_index - b.output_index)
}
