// The one answer under way on this page: asks, reads its frames into the streaming bus, stops it, takes it up again
// after a lost connection or a reload, and hands message_final to the store. A frame that was seen is never taken
// twice. Leaving the conversation only stops reading: the gateway goes on, and coming back takes it up again.
import { ApiError } from "../api/client"
import type { Client, OpenStream } from "../api/client"
import { frames } from "../api/sse"
import type { Frame } from "../api/sse"
import type { AskBody, OpenConversation, StreamEvent } from "../api/types"
import { questionId } from "./reducer"
import type { Action, Question } from "./reducer"
import type { StreamingBus } from "./streamingBus"

export type Phase =
  /** Sent; nothing came back yet. */
  | "asking"
  /** The model is not free yet. */
  | "queued"
  | "streaming"
  | "reconnecting"
  /** Given up for now; a retry reads on. */
  | "lost"
  /** The gateway did not take the question, or could not keep or find the answer: a retry asks again. */
  | "refused"

export interface Turn {
  /** Stays the same from the question to the final event and after. */
  key: string
  phase: Phase
  conversation_id: string | null
  event_id: string | null
  /** What this page asked; absent where the answer was found under way. */
  question?: Question
  /** The body, to ask again. */
  body?: AskBody
  stopping: boolean
  error?: string
  /** Our clock minus the server's. */
  skew: number
}

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
  /** A conversation has got an answer under way or a final one: lists may be read again. */
  onConversation?: (conversationId: string) => void
  /** Who asks is not, or no longer, signed in. */
  onSignedOut?: () => void
}

const LIVE: ReadonlySet<Phase> = new Set(["asking", "queued", "streaming", "reconnecting"])
const TRIES = 8

export class StreamingSessionManager {
  private turn: Turn | null = null
  private page: Page | null = null
  private abort: AbortController | null = null
  private last: string | null = null
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

  readonly current = (): Turn | null => this.turn

  get streaming(): boolean {
    return this.turn !== null && LIVE.has(this.turn.phase)
  }

  /** What an event's place on the page is called; the same before and after its final event. */
  keyOf(eventId: string): string {
    const question = questionId(eventId)
    return this.keys.get(question) ?? question
  }

  // --- what people do

  ask(body: AskBody): void {
    const question: Question = { text: body.text, created_at: this.now(), ...(body.replaces && { replaces: body.replaces }) }
    const turn = this.begin({ conversation_id: body.conversation_id ?? null, event_id: null, question, body })
    void this.follow(turn, (signal) => this.options.client.ask(body, signal))
  }

  /** Takes up an answer that was found under way. */
  resume(conversationId: string, eventId: string): void {
    if (this.streaming && this.turn?.event_id === eventId) return
    const turn = this.begin({ conversation_id: conversationId, event_id: eventId })
    void this.follow(turn, this.reading(turn))
  }

  /** After a failure of the connection or of the question itself. */
  retry(): void {
    const turn = this.turn
    if (!turn || LIVE.has(turn.phase)) return
    if (turn.event_id !== null && (turn.phase === "lost" || !turn.body)) {
      this.change({ phase: "reconnecting", error: undefined })
      void this.follow(turn, this.reading(turn))
    } else if (turn.body) {
      const replaces = turn.event_id ?? turn.body.replaces
      this.ask({
        ...turn.body,
        ...(turn.conversation_id && { conversation_id: turn.conversation_id }),
        ...(replaces && { replaces }),
      })
    }
  }

  stop(): void {
    const turn = this.turn
    if (!turn || !LIVE.has(turn.phase) || turn.stopping) return
    this.change({ stopping: true })
    if (turn.event_id !== null) void this.cancel(turn.event_id)
  }

  /** Stops reading; the answer goes on without this page. */
  leave(): void {
    this.abort?.abort()
    this.abort = null
    const eventId = this.turn?.event_id
    this.set(null)
    if (eventId) this.options.bus.clear(eventId)
  }

  // --- how it is read

  private begin(fields: Pick<Turn, "conversation_id" | "event_id" | "question" | "body">): Turn {
    this.leave()
    this.last = null
    const key = fields.event_id === null ? `turn-${++this.count}` : this.keyOf(fields.event_id)
    const turn: Turn = { key, phase: fields.event_id === null ? "asking" : "streaming", stopping: false, skew: 0, ...fields }
    this.set(turn)
    return turn
  }

  private reading(turn: Turn) {
    return (signal: AbortSignal) => {
      const eventId = this.turn?.event_id ?? turn.event_id
      if (eventId === null) throw new ApiError("The answer is not known.", 404)
      return this.options.client.read(eventId, this.last, signal)
    }
  }

  private async follow(turn: Turn, first: (signal: AbortSignal) => Promise<OpenStream>): Promise<void> {
    this.abort?.abort()
    const abort = new AbortController()
    this.abort = abort
    const { signal } = abort
    let open = first
    let failures = 0
    while (!signal.aborted) {
      let fresh = 0
      let failure: unknown = null
      try {
        const stream = await open(signal)
        if (signal.aborted) return void stream.body.cancel().catch(() => undefined)
        this.clock(stream.date)
        for await (const batch of frames(stream.body)) {
          if (signal.aborted) return
          for (const one of batch) {
            if (one.kind === "comment") this.comment(one.text)
            else if (this.isNew(one)) {
              fresh += 1
              failures = 0
              if (this.take(one)) return
            }
          }
        }
      } catch (error) {
        if (signal.aborted) return
        failure = error
      }
      if (signal.aborted) return
      const now = this.turn
      if (!now) return
      if (failure instanceof ApiError && isFinal(failure.status)) return this.refused(failure)
      if (now.event_id === null) {
        if (!(await this.found(now, signal))) {
          if (!signal.aborted) this.refused(failure)
          return
        }
      } else if (failure === null && fresh === 0 && this.options.bus.message(now.event_id)?.error !== undefined) {
        // Nothing follows the error: the answer could not be kept.
        return this.change({ phase: "refused", error: this.options.bus.message(now.event_id)?.error })
      }
      if (++failures > TRIES) {
        return this.change({ phase: "lost", error: "The connection to the gateway was lost." })
      }
      if (this.turn?.phase !== "reconnecting") this.change({ phase: "reconnecting" })
      if (failure !== null || failures > 1) await this.wait(backoff(failures), signal)
      open = this.reading(turn)
    }
  }

  private isNew(frame: Frame): boolean {
    if (frame.id === null || frame.id === "") return true
    if (this.last !== null && Number(frame.id) <= Number(this.last)) return false
    this.last = frame.id
    return true
  }

  /** Whether it was the end. */
  private take(frame: Frame): boolean {
    let event: StreamEvent
    try {
      event = JSON.parse(frame.data) as StreamEvent
    } catch {
      return false
    }
    const turn = this.turn
    if (!turn || typeof event !== "object" || event === null) return false
    if (event.type === "message_final") {
      this.finish(event.event)
      return true
    }
    if (event.type === "message_started") this.started(turn, event.event_id, event.conversation_id)
    else if (turn.phase !== "streaming") this.change({ phase: "streaming" })
    this.options.bus.push(event)
    return false
  }

  private started(turn: Turn, eventId: string, conversationId: string) {
    this.keys.set(questionId(eventId), turn.key)
    this.change({ event_id: eventId, conversation_id: conversationId, phase: "streaming" })
    this.page?.onConversation?.(conversationId)
    if (turn.stopping && turn.event_id === null) void this.cancel(eventId)
  }

  private finish(event: Extract<StreamEvent, { type: "message_final" }>["event"]) {
    const question = this.turn?.question
    if (this.turn) this.keys.set(questionId(event.id), this.turn.key)
    this.page?.commit({ type: "final", event, ...(question && { question }) })
    this.abort = null
    this.set(null)
    this.options.bus.clear(event.id)
    this.page?.onConversation?.(event.conversation_id)
  }

  /** The question was sent, but no answer came back: has the gateway taken it? */
  private async found(turn: Turn, signal: AbortSignal): Promise<boolean> {
    if (turn.conversation_id === null) return false
    let loaded: OpenConversation
    try {
      loaded = await this.options.client.conversation(turn.conversation_id, undefined, signal)
    } catch {
      return false
    }
    const asked = loaded.active === null ? undefined : loaded.events.find((one) => one.id === questionId(loaded.active ?? ""))
    if (signal.aborted || loaded.active === null || asked?.role !== "user") return false
    if (asked.segments.map((segment) => segment.text).join("\n\n") !== turn.question?.text) return false
    this.change({ event_id: loaded.active })
    return true
  }

  private refused(failure: unknown) {
    if (failure instanceof ApiError && failure.status === 401) this.page?.onSignedOut?.()
    const said = failure instanceof ApiError ? failure.message : "The connection was lost before the answer began."
    this.change({ phase: "refused", error: said })
  }

  private async cancel(eventId: string): Promise<void> {
    try {
      await this.options.client.cancel(eventId)
    } catch {
      if (this.turn?.event_id === eventId) this.change({ stopping: false })
    }
  }

  private comment(text: string) {
    if (text === "queued" && this.turn?.phase === "asking") this.change({ phase: "queued" })
  }

  private clock(date: number | null) {
    const skew = date === null ? 0 : this.now() - date
    if (Math.abs(skew) > 2000) this.change({ skew })
  }

  private now(): number {
    return (this.options.now ?? Date.now)()
  }

  private wait(ms: number, signal: AbortSignal): Promise<void> {
    return (this.options.wait ?? waited)(ms, signal)
  }

  private change(fields: Partial<Turn>) {
    if (this.turn) this.set({ ...this.turn, ...fields })
  }

  private set(turn: Turn | null) {
    if (this.turn === turn) return
    this.turn = turn
    for (const listener of this.listeners) listener()
  }
}

/** Whether asking once more would give the same answer. */
const isFinal = (status: number) => status >= 400 && status < 500 && status !== 408 && status !== 425 && status !== 429

const backoff = (failures: number) => Math.min(8000, 250 * 2 ** failures) * (0.75 + Math.random() / 2)

/** That long, or until the machine is on line again. */
function waited(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer)
      removeEventListener("online", done)
      signal.removeEventListener("abort", done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    addEventListener("online", done)
    signal.addEventListener("abort", done)
  })
}
