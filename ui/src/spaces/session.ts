// The session of one participant in a space: the socket, the envelopes, the position in the history, and pending
// messages. Components subscribe and read `snapshot`.
//
// * The first frame joins; the token is in no URL. The socket delivers envelopes from the welcome on; earlier ones are
//   read over HTTP. Both go into one log, so a gap that the gateway reports is filled the same way.
// * A broken socket is opened again from the last number on. Messages that were sent but not echoed are sent again
//   under the same id, which the gateway recognizes.
// * A socket can be dead without a sign of it. It is replaced when the network is back, and when it has been silent
//   although there is something that it should have delivered.
// * Envelopes are folded in batches, a few times a second.
import { ApiError } from "../api/client"
import type { Json } from "../api/types"
import { historyOf } from "./api"
import type { History, SearchResults } from "./api"
import { CANCEL, DIALECT, REJECT, REQUEST, WITHDRAW, readFrame, textOf } from "./envelope"
import type { Envelope } from "./envelope"
import { Fold } from "./fold"
import type { Context, EnvelopeItem } from "./fold"
import { Log, countUpTo } from "./log"
import { seqAt, LIVE, advancePlayback, nextSeq } from "./playback"
import type { Position, Speed } from "./playback"
import { presenceChange } from "./presence"
import { SILENCE_MS } from "../api/wake"
import type { Wake } from "../api/wake"
import { words } from "../words"

/** The part of WebSocket that is used here. */
export interface Socket {
  onopen: ((event: never) => void) | null
  onmessage: ((event: { data: unknown }) => void) | null
  onclose: ((event: { code: number; reason: string }) => void) | null
  send: (text: string) => void
  close: () => void
}

export interface Participant {
  id: string
  present: boolean
}

export interface Pending {
  id: string
  text: string
  /** Why it failed; absent while it is on its way. */
  failure?: string
}

export interface Snapshot {
  phase: "joining" | "open" | "reconnecting" | "refused"
  /** Why the session was rejected, or another error. */
  problem: string | null
  me: string | null
  capabilities: readonly unknown[]
  participants: readonly Participant[]
  head: number
  /** The number from which on everything is loaded. */
  from: number
  reading: boolean
  scrub: Position
  speed: Speed
  fold: Fold
  /** The envelopes of the fold, for the activity bars. */
  list: readonly Envelope[]
  pending: readonly Pending[]
  /** The gateway's clock minus the browser's, in milliseconds. */
  skew: number
}

export interface Options {
  space: string
  token: string
  open: () => Socket
  history?: History
  /** Frames are collected for this time before they are folded, in milliseconds. */
  gather?: number
  random?: () => string
}

/** The page size of the gateway, and how far back is read page by page without a jump. */
const PAGE = 500
const NEAR = 8 * PAGE
const MAX_RETRY_MS = 10_000
const TICK_MS = 50
/** Close codes without a retry: invalid join frame, invalid token, removed from the space, no such space. */
const FINAL = new Set([4400, 4401, 4403, 4404])

export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return `p-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`
}

export class SpaceSession {
  readonly space: string
  readonly token: string
  readonly #options: Options
  readonly #history: History
  #log = new Log()
  /** A part of the history that is not adjacent to the loaded one, while the page shows it. */
  #distantLog: Log | null = null
  #fold = new Fold()
  #past: { fold: Fold; log: Log } | null = null
  #socket: Socket | null = null
  /** The socket before, while the new one joins: in between, others would see the participant leave. */
  #replaced: Socket | null = null
  /** When the socket last delivered something. */
  #heardAt = 0
  #silenceTimer: ReturnType<typeof setInterval> | undefined
  #frames: Envelope[] = []
  #flushTimer: ReturnType<typeof setTimeout> | undefined
  #reconnectTimer: ReturnType<typeof setTimeout> | undefined
  #ticker: ReturnType<typeof setInterval> | undefined
  #tries = 0
  #joined = false
  #left = false
  #reading = 0
  #generation = 0
  #present = new Map<string, boolean>()
  #sent = new Map<string, string>()
  #listeners = new Set<() => void>()
  #state: Snapshot

  constructor(options: Options) {
    this.#options = options
    this.space = options.space
    this.token = options.token
    this.#history = options.history ?? historyOf(options.space, options.token)
    this.#state = {
      phase: "joining", problem: null, me: null, capabilities: [], participants: [], head: 0, from: Number.POSITIVE_INFINITY,
      reading: false, scrub: LIVE, speed: 1, fold: this.#fold, list: this.#log.list, pending: [], skew: 0,
    }
  }

  readonly subscribe = (listener: () => void) => {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  readonly snapshot = () => this.#state

  start(): void {
    this.#left = false
    this.#silenceTimer = setInterval(() => void this.#replaceIfDead(), SILENCE_MS)
    this.#connect()
  }

  leave(): void {
    this.#left = true
    for (const timer of [this.#flushTimer, this.#reconnectTimer, this.#ticker, this.#silenceTimer]) clearTimeout(timer)
    this.#generation++
    const socket = this.#socket
    this.#socket = null
    socket?.close()
    this.#closeReplaced()
  }

  // --- the position in the history

  live(): void {
    this.#distantLog = null
    this.#moveTo(LIVE)
  }

  /** Stop at that number, and load what is missing. */
  goTo(seq: number): void {
    const at = Math.max(1, Math.min(seq, this.#state.head))
    this.#moveTo({ mode: "paused", at })
    void this.#loadAround(at)
  }

  step(by: 1 | -1): void {
    const at = nextSeq(seqAt(this.#state.scrub, this.#state.head), this.#currentLog.list, by)
    if (by > 0 && at >= this.#state.head) this.live()
    else this.goTo(at)
  }

  play(): void {
    const { scrub, head } = this.#state
    const at = scrub.mode === "live" || scrub.at >= head ? Math.max(0, (this.#currentLog.list[0]?.seq ?? 1) - 1) : scrub.at
    this.#moveTo({ mode: "playing", at, waited: 0 })
  }

  pause(): void {
    const { scrub, head } = this.#state
    this.#moveTo({ mode: "paused", at: Math.max(1, seqAt(scrub, head)) })
  }

  setSpeed(speed: Speed): void {
    this.#update({ speed })
  }

  /** Load the page before the first loaded envelope. */
  async earlier(): Promise<void> {
    const log = this.#currentLog
    if (this.#reading > 0 || log.from <= 1) return
    await this.#whileReading(() => this.#loadBefore(log))
  }

  get #currentLog(): Log {
    return this.#distantLog ?? this.#log
  }

  #moveTo(scrub: Position): void {
    clearInterval(this.#ticker)
    if (scrub.mode === "playing") {
      let before = performance.now()
      this.#ticker = setInterval(() => {
        const now = performance.now()
        this.#tick(now - before)
        before = now
      }, TICK_MS)
    }
    this.#update({ scrub })
  }

  #tick(passed: number): void {
    if (this.#reading > 0) return
    const log = this.#currentLog
    const { scrub, ended } = advancePlayback(this.#state.scrub, log.list, passed, this.#state.speed)
    if (ended && this.#distantLog) void this.#loadAfter(this.#distantLog)
    else if (ended) return this.live()
    if (scrub.mode !== "live" && this.#state.scrub.mode !== "live" && scrub.at === this.#state.scrub.at) {
      // Nothing visible changed; only the pause advanced.
      this.#state = { ...this.#state, scrub }
      return
    }
    this.#update({ scrub })
  }

  async #loadAround(at: number): Promise<void> {
    const generation = ++this.#generation
    if (at >= this.#log.from) {
      if (this.#distantLog) {
        this.#distantLog = null
        this.#update({})
      }
      return
    }
    const distant = this.#distantLog
    if (distant && at >= distant.from && at <= distant.to) return
    await this.#whileReading(async () => {
      if (this.#log.from - at <= NEAR) {
        this.#distantLog = null
        while (at < this.#log.from && this.#log.from > 1 && generation === this.#generation) await this.#loadBefore(this.#log)
        return
      }
      const log = new Log()
      const page = await this.#history.page({ before: at + 1, limit: PAGE, newest: true })
      if (generation !== this.#generation) return
      log.put(page.envelopes)
      log.from = page.more ? (page.first ?? page.envelopes[0]?.seq ?? at) : 1
      log.to = at
      this.#distantLog = log
    })
  }

  /** Load the end of the history: two pages, so that most contexts have their start. */
  async #loadEnd(): Promise<void> {
    await this.#loadBefore(this.#log)
    if (this.#log.from > 1) await this.#loadBefore(this.#log)
  }

  /** Load the page before the first envelope of the log. */
  async #loadBefore(log: Log): Promise<void> {
    const page = await this.#history.page({ before: Number.isFinite(log.from) ? log.from : this.#state.head + 1, limit: PAGE, newest: true })
    if (log.put(page.envelopes) !== "nothing") this.#invalidate(log)
    log.from = page.more ? Math.min(log.from, page.first ?? page.envelopes[0]?.seq ?? 1) : 1
  }

  /** Load the page after the last envelope of a distant part, until it meets the rest. */
  async #loadAfter(log: Log): Promise<void> {
    await this.#whileReading(async () => {
      const page = await this.#history.page({ after: log.to, limit: PAGE })
      log.put(page.envelopes)
      log.to = Math.max(log.to, page.last ?? log.to)
      if (!page.more || log.to >= this.#log.from - 1) {
        if (this.#log.put(log.list) !== "nothing") this.#invalidate(this.#log)
        this.#log.from = Math.min(this.#log.from, log.from)
        if (this.#distantLog === log) this.#distantLog = null
      }
    })
  }

  /** Envelopes were inserted before the end: fold the log again. */
  #invalidate(log: Log): void {
    if (log === this.#log) this.#fold = Fold.of(log.list)
    if (this.#past?.log === log) this.#past = null
  }

  async #whileReading(work: () => Promise<void>): Promise<void> {
    this.#reading++
    this.#update({})
    try {
      await work()
    } catch (error) {
      if (!this.#left) this.#update({ problem: error instanceof ApiError ? `${words.spaces.room.historyFailed} ${error.message}` : words.spaces.room.historyFailed })
    } finally {
      this.#reading--
      if (!this.#left) this.#update({})
    }
  }

  /** The fold at a position. */
  #foldAt(scrub: Position): Fold {
    if (scrub.mode === "live") {
      this.#past = null
      return this.#fold
    }
    const log = this.#currentLog
    const upTo = countUpTo(log.list, scrub.at)
    const past = this.#past
    if (past && past.log === log && past.fold.at <= scrub.at) {
      for (let index = countUpTo(log.list, past.fold.at); index < upTo; index++) past.fold.feed(log.list[index] as Envelope)
      return past.fold
    }
    const fold = Fold.of(log.list.slice(0, upTo))
    this.#past = { fold, log }
    return fold
  }

  // --- the socket

  #connect(): void {
    clearTimeout(this.#reconnectTimer)
    if (this.#left || this.#socket) return
    const socket = this.#options.open()
    this.#socket = socket
    const after = this.#joined ? { after_seq: Math.max(this.#log.to, 0) } : {}
    socket.onopen = () =>
      socket.send(JSON.stringify({ type: "join", space: this.space, token: this.#options.token, view: "full", dialect: DIALECT, ...after }))
    socket.onmessage = ({ data }) => {
      const envelope = typeof data === "string" ? readFrame(data) : null
      if (this.#socket !== socket) return
      this.#heardAt = Date.now()
      if (envelope) this.#receive(envelope)
    }
    socket.onclose = ({ code, reason }) => {
      if (this.#socket !== socket) return
      this.#socket = null
      this.#flushNow()
      if (this.#left) return
      if (FINAL.has(code)) {
        // Before the join succeeded, the gateway sent the reason as an error; afterwards the close reason is a
        // sentence.
        const why = this.#joined ? reason : (this.#state.problem ?? reason)
        this.#update({ phase: "refused", problem: why || words.spaces.join.refused })
        return
      }
      this.#update({ phase: this.#joined ? "reconnecting" : "joining", ...(this.#joined ? {} : { problem: words.spaces.room.unreachable }) })
      const wait = Math.min(MAX_RETRY_MS, 400 * 2 ** this.#tries++) * (0.7 + Math.random() * 0.6)
      this.#reconnectTimer = setTimeout(() => this.#connect(), wait)
    }
  }

  /** The network or the user is back. */
  wake(reason: Wake): void {
    if (this.#left || this.#state.phase === "refused") return
    if (!this.#socket) this.#connect()
    else if (reason === "online") this.#replace()
    else void this.#replaceIfDead()
  }

  /** Replace a silent socket if it has not delivered an envelope that the history has, or the echo of a message. */
  async #replaceIfDead(): Promise<void> {
    const socket = this.#socket
    const isSilent = () => socket !== null && socket === this.#socket && Date.now() - this.#heardAt >= SILENCE_MS
    if (!isSilent() || this.#state.phase !== "open" || document.visibilityState === "hidden") return
    const missesEnvelopes = async () => {
      const { envelopes } = await this.#history.page({ after: this.#log.to, limit: 1 })
      return envelopes.length > 0
    }
    const isDead = this.#sent.size > 0 || (await missesEnvelopes().catch(() => false))
    if (isDead && isSilent()) this.#replace()
  }

  #replace(): void {
    this.#closeReplaced()
    this.#replaced = this.#socket
    this.#socket = null
    this.#flushNow()
    this.#update({ phase: this.#joined ? "reconnecting" : "joining" })
    this.#connect()
  }

  #closeReplaced(): void {
    const socket = this.#replaced
    this.#replaced = null
    socket?.close()
  }

  #receive(envelope: Envelope): void {
    if (envelope.kind === "system/welcome") return this.#welcome(envelope)
    if (envelope.kind === "system/error") return this.#handleError(envelope)
    if (envelope.kind === "system/gap") return this.#gap(envelope)
    if (envelope.seq === 0) return
    this.#frames.push(envelope)
    this.#flushTimer ??= setTimeout(() => this.#flushNow(), this.#options.gather ?? 40)
  }

  #welcome({ payload, ts }: Envelope): void {
    const you = payload["you"] as { id?: unknown; capabilities?: unknown } | undefined
    const participants = Array.isArray(payload["participants"]) ? payload["participants"] : []
    const head = payload["head"]
    const isNewConnection = this.#state.phase !== "open"
    this.#closeReplaced()
    this.#joined = true
    this.#tries = 0
    const isReplaced = payload["unknown_after_seq"] !== undefined
    if (isReplaced) this.#reset()
    const me = typeof you?.id === "string" ? you.id : this.#state.me
    this.#present.clear()
    if (me !== null) this.#present.set(me, true)
    for (const one of participants) {
      const id = (one as { id?: unknown } | null)?.id
      const present = (one as { present?: unknown } | null)?.present
      if (typeof id === "string") this.#present.set(id, present !== false)
    }
    this.#update({
      phase: "open",
      problem: isReplaced ? words.spaces.room.replaced : null,
      me,
      capabilities: Array.isArray(you?.capabilities) ? you.capabilities : [],
      head: Math.max(this.#state.head, typeof head === "number" ? head : 0),
      skew: ts > 0 ? ts - Date.now() : 0,
    })
    // A welcome on an open connection only updates the capabilities.
    if (isNewConnection) for (const text of this.#sent.values()) this.#socket?.send(text)
    if (!Number.isFinite(this.#log.from)) void this.#whileReading(() => this.#loadEnd())
  }

  /** Discard everything: the space was replaced. */
  #reset(): void {
    this.#generation++
    this.#log = new Log()
    this.#fold = new Fold()
    this.#distantLog = this.#past = null
    this.#frames = []
    this.#state = { ...this.#state, head: 0 }
    if (this.#state.scrub.mode !== "live") this.live()
  }

  #handleError(envelope: Envelope): void {
    const message = textOf(envelope) || words.spaces.room.messageRefused
    // The gateway reads only the beginning of a message that is too large; if the id is not in it, the largest one is
    // meant.
    const about = envelope.correlation.find((id) => this.#sent.has(id)) ?? (envelope.payload["code"] === "too_large" ? this.#largest() : undefined)
    if (about === undefined) {
      this.#update({ problem: message })
      return
    }
    this.#sent.delete(about)
    const pending = this.#state.pending.map((one) => (one.id === about ? { ...one, failure: message } : one))
    // What is not a chat message (a cancel, for example) has no pending entry; its error is shown in the banner.
    this.#update(pending.some((one) => one.id === about) ? { pending } : { problem: message })
  }

  #largest(): string | undefined {
    return [...this.#sent].toSorted((a, b) => b[1].length - a[1].length)[0]?.[0]
  }

  #gap({ payload }: Envelope): void {
    const { after_seq: after, before_seq: before } = payload
    if (typeof after !== "number" || typeof before !== "number") return
    void this.#whileReading(async () => {
      for (let from = after; ; ) {
        const page = await this.#history.page({ after: from, before, limit: PAGE })
        if (this.#log.put(page.envelopes) !== "nothing") this.#invalidate(this.#log)
        const last = page.last ?? page.envelopes.at(-1)?.seq
        if (!page.more || last === undefined || last <= from) return
        from = last
      }
    })
  }

  #flushNow(): void {
    clearTimeout(this.#flushTimer)
    this.#flushTimer = undefined
    const batch = this.#frames
    if (batch.length === 0) return
    this.#frames = []
    const known = this.#log.list.length
    const put = this.#log.put(batch)
    if (put === "appended") for (const envelope of this.#log.list.slice(known)) this.#fold.feed(envelope)
    else if (put === "rebuilt") this.#invalidate(this.#log)
    let isEchoed = false
    for (const envelope of batch) {
      const change = presenceChange(envelope)
      if (change) this.#present.set(change.id, change.present)
      if (envelope.from === this.#state.me && this.#sent.delete(envelope.id)) isEchoed = true
    }
    this.#update({
      head: Math.max(this.#state.head, this.#log.to),
      ...(isEchoed && { pending: this.#state.pending.filter((one) => this.#sent.has(one.id) || one.failure !== undefined) }),
    })
  }

  // --- sending

  sendMessage(text: string, more: { to?: string; repliesTo?: string } = {}): void {
    const id = this.#send("chat", { text }, { ...(more.to && { to: [more.to] }), ...(more.repliesTo && { correlation_id: [more.repliesTo] }) })
    this.#update({ pending: [...this.#state.pending, { id, text }] })
  }

  /** Remove a failed message. */
  discard(id: string): void {
    this.#update({ pending: this.#state.pending.filter((one) => one.id !== id) })
  }

  cancel(context: Context, reason = words.spaces.context.cancelReason): void {
    this.#send(CANCEL, { reason }, { context: context.path })
  }

  approve(proposal: EnvelopeItem): void {
    const { envelope } = proposal
    const { method, params } = envelope.payload
    const id = this.#options.random?.() ?? newId()
    this.#send(
      REQUEST,
      { jsonrpc: "2.0", id, ...(method !== undefined && { method }), ...(params !== undefined && { params }) },
      { correlation_id: [envelope.id], ...(envelope.context !== null && { context: envelope.context }), ...this.#others(envelope) },
      id,
    )
  }

  reject(proposal: EnvelopeItem): void {
    const { envelope } = proposal
    const mine = envelope.from === this.#state.me
    this.#send(mine ? WITHDRAW : REJECT, { reason: mine ? "no_longer_needed" : "disagree" }, { correlation_id: [envelope.id] })
  }

  dismiss(): void {
    this.#update({ problem: null })
  }

  #others({ to }: Envelope): { to?: string[] } {
    const others = to.filter((one) => one !== this.#state.me)
    return others.length > 0 ? { to: others } : {}
  }

  #send(kind: string, payload: Record<string, Json>, more: Record<string, Json>, id = this.#options.random?.() ?? newId()): string {
    const text = JSON.stringify({ protocol: DIALECT, id, ts: new Date(Date.now() + this.#state.skew).toISOString(), kind, ...more, payload })
    this.#sent.set(id, text)
    if (this.#state.phase === "open") this.#socket?.send(text)
    return id
  }

  readonly search = (query: string, before: number | null, signal: AbortSignal): Promise<SearchResults> =>
    this.#history.search(query, before, signal)

  #update(change: Partial<Snapshot>): void {
    const next = { ...this.#state, ...change }
    const log = next.scrub.mode === "live" ? this.#log : this.#currentLog
    this.#state = {
      ...next,
      fold: this.#foldAt(next.scrub),
      list: log.list,
      from: log.from,
      reading: this.#reading > 0,
      participants: participantsAt(this.#present, next.scrub.mode === "live" ? null : this.#foldAt(next.scrub)),
    }
    for (const listener of this.#listeners) listener()
  }
}

function participantsAt(now: ReadonlyMap<string, boolean>, then: Fold | null): Participant[] {
  const all = new Map(then ? [...now.keys()].map((id) => [id, false] as const) : now)
  for (const [id, present] of then?.present ?? []) all.set(id, present)
  return [...all].map(([id, present]) => ({ id, present })).toSorted((a, b) => Number(b.present) - Number(a.present) || a.id.localeCompare(b.id))
}
