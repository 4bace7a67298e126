// Manages the answer in progress on this page: asks, passes its frames to the streaming bus, stops it, resumes it after
// a reload, and passes message_final to the store. Reconnection is in answerFrames.ts, the state machine in
// pendingAnswer.ts. Leaving the conversation only stops reading: the gateway continues, and returning resumes.
import { ApiError, errorMessage } from "../api/client"
import type { Client, OpenStream } from "../api/client"
import type { AskBody, OpenConversation, StreamEvent } from "../api/types"
import type { ShownFile } from "../compose/questionFile"
import { linkedAbort, SILENCE_MS, waitForWake } from "../api/wake"
import type { Wake } from "../api/wake"
import { advance, isLive } from "./pendingAnswer"
import type { AnswerEvent, Conflict, PendingAnswer } from "./pendingAnswer"
import { answerFrames } from "./answerFrames"
import type { ConnectionEvent } from "./answerFrames"
import { answerId, eventOf, newestAnswer, questionId, questionText } from "./reducer"
import type { ChatStore, Question } from "./reducer"
import type { StreamingBus } from "./streamingBus"
import { words } from "../words"

export interface Options {
  client: Pick<Client, "ask" | "read" | "cancel" | "conversation">
  bus: StreamingBus
  store: ChatStore
  wait?: (ms: number, signal: AbortSignal) => Promise<boolean>
  now?: () => number
}

/** Callbacks into the page. */
export interface Page {
  /** A conversation got an answer, pending or final: lists should be loaded again. */
  onConversation: (conversationId: string) => void
  /** The user is not, or no longer, signed in. */
  onSignedOut: () => void
}

/** The reader of one answer; it pauses while a retry is offered. */
interface Reading {
  frames: AsyncGenerator<ConnectionEvent, void>
  abort: AbortController
  /** The current connection. */
  connection?: AbortController
  /** When the gateway last sent something. */
  heardAt: number
  /** The connection was given up, so the next one is opened without a pause. */
  isWoken: boolean
  /** The page was left, and may come back: until then there is no connection. */
  isLeft: boolean
}

export class StreamingSessionManager {
  private pending: PendingAnswer | null = null
  private page: Page | null = null
  private reading: Reading | null = null
  private readonly listeners = new Set<() => void>()
  private readonly keys = new Map<string, string>()
  private count = 0

  constructor(private readonly options: Options) {}

  // --- interface for the page

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

  /** The React key of an event; the same before and after its final event. */
  keyOf(eventId: string): string {
    const question = questionId(eventId)
    return this.keys.get(question) ?? question
  }

  // --- user actions

  ask(body: AskBody, files?: readonly ShownFile[]): void {
    this.start(body, files, (signal) => this.options.client.ask(body, signal))
  }

  /** Resume an answer that is in progress. */
  resume(conversation_id: string, event_id: string): void {
    if (this.streaming && this.pending?.event_id === event_id) return
    this.leave()
    this.set({ key: this.keyOf(event_id), phase: "streaming", conversation_id, event_id, stopping: false, skew: 0 })
    this.begin((signal) => this.options.client.read(event_id, null, signal))
  }

  /** Try again after a connection or question failed. */
  retry(): void {
    const pending = this.pending
    if (!pending || isLive(pending)) return
    if (pending.event_id !== null && (pending.phase === "lost" || !pending.body)) {
      this.apply({ type: "retried" })
      if (this.reading) void this.follow(this.reading)
    } else if (pending.body) {
      const { follows: before, instructions, ...again } = pending.body
      const replaces = pending.event_id ?? again.replaces
      const follows = pending.conversation_id === null ? before : newestAnswer(this.options.store.get(), pending.conversation_id)
      const body: AskBody = {
        ...again,
        // Instructions come with the first question of a chat only.
        ...(pending.conversation_id ? { conversation_id: pending.conversation_id } : instructions !== undefined && { instructions }),
        ...(replaces ? { replaces } : follows && { follows }),
      }
      if (pending.event_id === null) this.askUnlessAccepted(body, pending.question?.files)
      else this.ask(body, pending.question?.files)
    }
  }

  /** What another window does now in the chat of a question that was refused because of it. */
  setConflict(conflict: Conflict): void {
    this.apply({ type: "overtaken", conflict })
  }

  stop(): void {
    this.apply({ type: "stopped" })
  }

  /**
   * The network or the user is back: open a connection that may be dead again after the last frame, and try again if
   * the connection was lost.
   */
  wake(reason: Wake): void {
    const { reading, pending } = this
    if (pending?.phase === "lost") return this.retry()
    if (reading?.isLeft) {
      reading.isLeft = false
      reading.isWoken = true
      return
    }
    // Without an id, the question may not have arrived yet; its request is left alone.
    if (!reading || !pending?.event_id || !isLive(pending)) return
    if (reason === "visible" && this.now() - reading.heardAt < SILENCE_MS) return
    reading.isWoken = true
    reading.connection?.abort()
  }

  /** The page was left: close the connection until it is back. A question that may not have arrived yet is left alone. */
  pause(): void {
    const { reading, pending } = this
    if (!reading || !pending?.event_id || !isLive(pending)) return
    reading.isLeft = true
    reading.connection?.abort()
  }

  /** Stop reading; the answer continues without this page. */
  leave(): void {
    this.reading?.abort.abort()
    this.reading = null
    const eventId = this.pending?.event_id
    this.set(null)
    if (eventId) this.options.bus.clear(eventId)
  }

  // --- reading

  private start(body: AskBody, files: readonly ShownFile[] | undefined, open: (signal: AbortSignal) => Promise<OpenStream>): void {
    this.leave()
    const question: Question = {
      text: body.text,
      created_at: this.now(),
      ...(files && files.length > 0 && { files }),
      ...(body.replaces && { replaces: body.replaces }),
    }
    const conversation_id = body.conversation_id ?? null
    this.set({ key: `turn-${++this.count}`, phase: "asking", conversation_id, event_id: null, question, body, stopping: false, skew: 0 })
    this.begin(open)
  }

  /**
   * The gateway may have accepted the first attempt although no response arrived. Then its answer is read, and the
   * question is not asked twice.
   */
  private askUnlessAccepted(body: AskBody, files: readonly ShownFile[] | undefined): void {
    this.start(body, files, async (signal) => {
      const event_id = this.pending && (await this.findAccepted(this.pending, signal))
      signal.throwIfAborted()
      if (event_id === null) return this.options.client.ask(body, signal)
      this.apply({ type: "located", event_id })
      return this.options.client.read(event_id, null, signal)
    })
  }

  private begin(open: (signal: AbortSignal) => Promise<OpenStream>): void {
    const abort = new AbortController()
    const { signal } = abort
    const connect = async (one: (signal: AbortSignal) => Promise<OpenStream>) => {
      signal.throwIfAborted()
      reading.connection = linkedAbort(signal)
      const stream = await one(reading.connection.signal)
      if (signal.aborted) void stream.body.cancel().catch(() => undefined)
      signal.throwIfAborted()
      reading.heardAt = this.now()
      this.updateSkew(stream.date)
      return stream
    }
    const frames = answerFrames(
      () => connect(open),
      (after) => connect((signal) => this.options.client.read(this.pending?.event_id ?? "", after, signal)),
      async (ms) => {
        if (reading.isLeft) await waitForWake(2 ** 30, signal)
        else if (!reading.isWoken) return (this.options.wait ?? waitForWake)(ms, signal)
        reading.isWoken = false
        return true
      },
    )
    const reading: Reading = { frames, abort, heardAt: this.now(), isWoken: false, isLeft: false }
    this.reading = reading
    void this.follow(reading)
  }

  /** Read until the answer has ended, or until a retry is needed. */
  private async follow(reading: Reading): Promise<void> {
    const { frames, abort } = reading
    const { signal } = abort
    let next = await frames.next()
    while (!next.done && !signal.aborted) {
      reading.heardAt = this.now()
      let failure: unknown
      try {
        if (await this.handle(next.value, signal)) break
      } catch (error) {
        failure = error
      }
      if (signal.aborted) break
      if (!this.streaming) return
      // A frame that could not be processed counts as a lost connection: reading continues after it.
      next = await (failure === undefined ? frames.next() : frames.throw(failure))
    }
    await frames.return()
  }

  /** Return whether the answer has ended. */
  private async handle(event: ConnectionEvent, signal: AbortSignal): Promise<boolean> {
    switch (event.kind) {
      case "frame":
        return this.handleFrame(event.data)
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
        this.handleRefused(event.failure, signal)
        return false
    }
  }

  /** Return whether the answer has ended. */
  private handleFrame(data: string): boolean {
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
      this.options.bus.clear(event.event_id) // if it is read from its start again
      this.apply({ type: "started", event_id: event.event_id, conversation_id: event.conversation_id })
      this.page?.onConversation(event.conversation_id)
    } else this.apply({ type: "delta" })
    this.options.bus.push(event)
    return false
  }

  private finish(event: Extract<StreamEvent, { type: "message_final" }>["event"]) {
    const question = this.pending?.question
    if (this.pending) this.keys.set(questionId(event.id), this.pending.key)
    this.options.store.dispatch({ type: "final", event, ...(question && { question }) })
    this.reading = null
    this.set(null)
    this.options.bus.clear(event.id)
    this.page?.onConversation(event.conversation_id)
  }

  private async handleBroken(failure: unknown, fresh: boolean, signal: AbortSignal): Promise<void> {
    const pending = this.pending
    if (!pending || signal.aborted) return
    if (pending.event_id === null) {
      const event_id = await this.findAccepted(pending, signal)
      if (signal.aborted) return
      if (event_id === null) return this.handleRefused(failure, signal)
      this.apply({ type: "located", event_id })
    } else {
      // The stream ended after the error without message_final: the answer could not be saved.
      const error = this.options.bus.message(pending.event_id)?.error
      if (failure === null && !fresh && error !== undefined) return this.apply({ type: "refused", error })
    }
    this.apply({ type: "broken" })
  }

  /** The question was sent, but there was no response: return the answer's id if the gateway accepted it. */
  private async findAccepted(pending: PendingAnswer, signal: AbortSignal): Promise<string | null> {
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
    // An answer that the page already has belongs to an earlier question with the same text.
    return loaded.active === answer || eventOf(this.options.store.get(), answer) === undefined ? answer : null
  }

  private handleRefused(failure: unknown, signal: AbortSignal) {
    const error = failure instanceof ApiError ? failure : undefined
    if (error?.status === 401) this.page?.onSignedOut()
    const conversationId = this.pending?.conversation_id
    const conflict = CONFLICTS[error?.code ?? ""]
    this.apply({ type: "refused", ...(conflict && { conflict }), error: errorMessage(failure, words.gateway.lostBefore) })
    if (error?.status === 409 && conversationId) void this.loadNewer(conversationId, signal)
  }

  /** Load the turns of another client; the refused question is shown after them. */
  private async loadNewer(conversationId: string, signal: AbortSignal): Promise<void> {
    try {
      const loaded = await this.options.client.conversation(conversationId, signal)
      if (signal.aborted) return
      this.options.store.dispatch({ type: "opened", loaded })
      this.setConflict(loaded.active === null ? "moved" : "busy")
    } catch {
      // The question stays refused; a retry reports why the conversation cannot be loaded.
    }
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
    // A stop that was requested before the answer had an id is sent as soon as it has one.
    if (answerToStop(now) && !answerToStop(before)) void this.cancel(answerToStop(now))
  }

  private set(pending: PendingAnswer | null) {
    if (this.pending === pending) return
    this.pending = pending
    for (const listener of this.listeners) listener()
  }
}

const CONFLICTS: Record<string, Conflict> = { conversation_moved: "moved", conversation_busy: "busy" }

/** The id of the answer to stop, or an empty string. */
const answerToStop = (pending: PendingAnswer) => (pending.stopping && pending.event_id) || ""
