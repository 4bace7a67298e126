// The one answer under way on this page: asks, hands its frames to the streaming bus, stops it, takes it up again after
// a reload, and hands message_final to the store. How it is read over lost connections is in answerFrames, what becomes
// of it in advance. Leaving the conversation only stops reading: the gateway goes on, and coming back takes it up again.
import { ApiError } from "../api/client"
import type { Client, OpenStream } from "../api/client"
import type { AskBody, OpenConversation, StreamEvent } from "../api/types"
import { advance, isLive } from "./pendingAnswer"
import type { AnswerEvent, PendingAnswer } from "./pendingAnswer"
import { answerFrames, waitUntilOnline } from "./answerFrames"
import type { ConnectionEvent } from "./answerFrames"
import { answerId, questionId, questionText } from "./reducer"
import type { Action, Question } from "./reducer"
import type { StreamingBus } from "./streamingBus"

export interface Options {
  client: Pick<Client, "ask" | "read" | "cancel" | "conversation">
  bus: StreamingBus
  wait?: (ms: number, signal: AbortSignal) => Promise<void>
  now?: () => number
}

/** What the page does with what comes. */
export interface Page {
  /** Writes to the store; the page shows it when this returns. */
  commit: (action: Action) => void
  /** Whether the store has this event. */
  has?: (eventId: string) => boolean
  /** The last answer of the conversation, as the page shows it. */
  newest?: (conversationId: string) => string | undefined
  /** The conversation is not as the page has it: somebody else went on in it. */
  onMoved?: (conversationId: string) => void
  /** A conversation has got an answer under way or a final one: lists may be read again. */
  onConversation?: (conversationId: string) => void
  /** Who asks is not, or no longer, signed in. */
  onSignedOut?: () => void
}

/** The reading of one answer; it stands still while a retry is offered. */
interface Reading {
  frames: AsyncGenerator<ConnectionEvent, void>
  abort: AbortController
}

export class StreamingSessionManager {
  private pending: PendingAnswer | null = null
  private page: Page | null = null
  private reading: Reading | null = null
  private readonly listeners = new Set<() => void>()
  private readonly keys = new Map<string, string>()
  private count = 0

  constructor(private readonly options: Options) {}

  // --- what the page asks

  connect(page: Page): () => void {
    this.page = page
    return () => {
      if (this.page === page) this.page = null
    }
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  readonly current = (): PendingAnswer | null => this.pending

  get streaming(): boolean {
    return this.pending !== null && isLive(this.pending)
  }

  /** What an event's place on the page is called; the same before and after its final event. */
  keyOf(eventId: string): string {
    const question = questionId(eventId)
    return this.keys.get(question) ?? question
  }

  // --- what people do

  ask(body: AskBody): void {
    this.start(body, (signal) => this.options.client.ask(body, signal))
  }

  /** Takes up an answer that was found under way. */
  resume(conversation_id: string, event_id: string): void {
    if (this.streaming && this.pending?.event_id === event_id) return
    this.leave()
    this.set({ key: this.keyOf(event_id), phase: "streaming", conversation_id, event_id, stopping: false, skew: 0 })
    this.begin((signal) => this.options.client.read(event_id, null, signal))
  }

  /** After a failure of the connection or of the question itself. */
  retry(): void {
    const pending = this.pending
    if (!pending || isLive(pending)) return
    if (pending.event_id !== null && (pending.phase === "lost" || !pending.body)) {
      this.apply({ type: "retried" })
      if (this.reading) void this.follow(this.reading)
    } else if (pending.body) {
      const { follows: before, ...again } = pending.body
      const replaces = pending.event_id ?? again.replaces
      const follows = pending.conversation_id === null ? before : this.page?.newest?.(pending.conversation_id)
      const body: AskBody = {
        ...again,
        ...(pending.conversation_id && { conversation_id: pending.conversation_id }),
        ...(replaces ? { replaces } : follows && { follows }),
      }
      if (pending.event_id === null) this.askUnlessTaken(body)
      else this.ask(body)
    }
  }

  stop(): void {
    this.apply({ type: "stopped" })
  }

  /** Stops reading; the answer goes on without this page. */
  leave(): void {
    this.reading?.abort.abort()
    this.reading = null
    const eventId = this.pending?.event_id
    this.set(null)
    if (eventId) this.options.bus.clear(eventId)
  }

  // --- how it is read

  private start(body: AskBody, open: (signal: AbortSignal) => Promise<OpenStream>): void {
    this.leave()
    const question: Question = { text: body.text, created_at: this.now(), ...(body.replaces && { replaces: body.replaces }) }
    const conversation_id = body.conversation_id ?? null
    this.set({ key: `turn-${++this.count}`, phase: "asking", conversation_id, event_id: null, question, body, stopping: false, skew: 0 })
    this.begin(open)
  }

  /** The gateway may have taken it the first time, unheard: then its answer is read, and nothing is asked twice. */
  private askUnlessTaken(body: AskBody): void {
    this.start(body, async (signal) => {
      const event_id = this.pending && (await this.findTaken(this.pending, signal))
      signal.throwIfAborted()
      if (event_id === null) return this.options.client.ask(body, signal)
      this.apply({ type: "located", event_id })
      return this.options.client.read(event_id, null, signal)
    })
  }

  private begin(open: (signal: AbortSignal) => Promise<OpenStream>): void {
    const abort = new AbortController()
    const { signal } = abort
    const connect = async (one: () => Promise<OpenStream>) => {
      signal.throwIfAborted()
      const stream = await one()
      if (signal.aborted) void stream.body.cancel().catch(() => undefined)
      signal.throwIfAborted()
      this.updateSkew(stream.date)
      return stream
    }
    const frames = answerFrames(
      () => connect(() => open(signal)),
      (after) => connect(() => this.options.client.read(this.pending?.event_id ?? "", after, signal)),
      (ms) => (this.options.wait ?? waitUntilOnline)(ms, signal),
    )
    this.reading = { frames, abort }
    void this.follow(this.reading)
  }

  /** Until it is over, or nothing more comes by itself. */
  private async follow({ frames, abort: { signal } }: Reading): Promise<void> {
    let next = await frames.next()
    while (!next.done && !signal.aborted) {
      let failure: unknown
      try {
        if (await this.handle(next.value, signal)) break
      } catch (error) {
        failure = error
      }
      if (signal.aborted) break
      if (!this.streaming) return
      // A frame that could not be taken is a lost connection: it is read on after it.
      next = await (failure === undefined ? frames.next() : frames.throw(failure))
    }
    await frames.return()
  }

  /** Whether it was the end. */
  private async handle(event: ConnectionEvent, signal: AbortSignal): Promise<boolean> {
    switch (event.kind) {
      case "frame":
        return this.takeFrame(event.data)
      case "comment":
        if (event.text === "queued") this.apply({ type: "queued" })
        return false
      case "broken":
        await this.handleBroken(event.failure, event.fresh, signal)
        return false
      case "lost":
        this.apply({ type: "lost" })
        return false
      case "refused":
        this.handleRefused(event.failure)
        return false
    }
  }

  /** Whether it was the end. */
  private takeFrame(data: string): boolean {
    let event: StreamEvent
    try {
      event = JSON.parse(data) as StreamEvent
    } catch {
      return false
    }
    const pending = this.pending
    if (!pending || typeof event !== "object" || event === null) return false
    if (event.type === "message_final") {
      this.finish(event.event)
      return true
    }
    if (event.type === "message_started") {
      this.keys.set(questionId(event.event_id), pending.key)
      this.apply({ type: "started", event_id: event.event_id, conversation_id: event.conversation_id })
      this.page?.onConversation?.(event.conversation_id)
    } else this.apply({ type: "delta" })
    this.options.bus.push(event)
    return false
  }

  private finish(event: Extract<StreamEvent, { type: "message_final" }>["event"]) {
    const question = this.pending?.question
    if (this.pending) this.keys.set(questionId(event.id), this.pending.key)
    this.page?.commit({ type: "final", event, ...(question && { question }) })
    this.reading = null
    this.set(null)
    this.options.bus.clear(event.id)
    this.page?.onConversation?.(event.conversation_id)
  }

  private async handleBroken(failure: unknown, fresh: boolean, signal: AbortSignal): Promise<void> {
    const pending = this.pending
    if (!pending || signal.aborted) return
    if (pending.event_id === null) {
      const event_id = await this.findTaken(pending, signal)
      if (signal.aborted) return
      if (event_id === null) return this.handleRefused(failure)
      this.apply({ type: "located", event_id })
    } else {
      // Nothing follows the error: the answer could not be kept.
      const error = this.options.bus.message(pending.event_id)?.error
      if (failure === null && !fresh && error !== undefined) return this.apply({ type: "refused", error })
    }
    this.apply({ type: "broken" })
  }

  /** The question was sent, but no answer came back: has the gateway taken it? */
  private async findTaken(pending: PendingAnswer, signal: AbortSignal): Promise<string | null> {
    if (pending.conversation_id === null) return null
    let loaded: OpenConversation
    try {
      loaded = await this.options.client.conversation(pending.conversation_id, signal)
    } catch {
      return null
    }
    const lastQuestion = loaded.events.findLast((one) => one.role === "user")
    if (lastQuestion?.role !== "user" || questionText(lastQuestion) !== pending.question?.text) return null
    const answer = answerId(lastQuestion.id)
    // One that the page has is of an earlier question, which said the same.
    return loaded.active === answer || this.page?.has?.(answer) === false ? answer : null
  }

  private handleRefused(failure: unknown) {
    if (failure instanceof ApiError && failure.status === 401) this.page?.onSignedOut?.()
    const there = this.pending?.conversation_id
    if (failure instanceof ApiError && failure.status === 409 && there) this.page?.onMoved?.(there)
    const error = failure instanceof ApiError ? failure.message : "The connection was lost before the answer began."
    this.apply({ type: "refused", error })
  }

  private async cancel(eventId: string): Promise<void> {
    try {
      await this.options.client.cancel(eventId)
    } catch {
      if (this.pending?.event_id === eventId) this.apply({ type: "unstopped" })
    }
  }

  private updateSkew(date: number | null) {
    const skew = date === null ? 0 : this.now() - date
    if (Math.abs(skew) > 2000) this.apply({ type: "clock", skew })
  }

  private now(): number {
    return (this.options.now ?? Date.now)()
  }

  private apply(event: AnswerEvent) {
    const before = this.pending
    if (!before) return
    const now = advance(before, event)
    this.set(now)
    // What was to be stopped before it had a name can be stopped as soon as it has one.
    if (answerToStop(now) && !answerToStop(before)) void this.cancel(answerToStop(now))
  }

  private set(pending: PendingAnswer | null) {
    if (this.pending === pending) return
    this.pending = pending
    for (const listener of this.listeners) listener()
  }
}

/** The answer that is to be stopped, once it has a name; else empty. */
const answerToStop = (pending: PendingAnswer) => (pending.stopping && pending.event_id) || ""
