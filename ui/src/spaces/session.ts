// One participant's sitting in a space: the socket, the envelopes that came, where in the history the page stands, and
// what is being said. Whoever draws it subscribes, and reads `snapshot`.
//
// * It joins by its first frame: the token is in no address. What the socket brings has numbers from the welcome on; what
//   was said before is read over HTTP. Both end up in one log, so a gap that the gateway tells of is read the same way.
// * A socket that breaks is opened again, from the last number on. What was sent and not heard is sent again under its
//   id, which the gateway knows.
// * What comes is folded a few times a second, not envelope by envelope.
import { ApiError } from "../api/client"
import type { Json } from "../api/types"
import { historyOf } from "./api"
import type { History, Results } from "./api"
import { CANCEL, PRESENCE, REJECT, REQUEST, WITHDRAW, readFrame, wordsOf } from "./envelope"
import type { Envelope } from "./envelope"
import { Fold } from "./fold"
import type { Context, Said } from "./fold"
import { Log } from "./log"
import { atOf, LIVE, played, stepped } from "./scrub"
import type { Scrub, Speed } from "./scrub"

/** What of a WebSocket is used here. */
export interface Socket {
  onopen: ((event: never) => void) | null
  onmessage: ((event: { data: unknown }) => void) | null
  onclose: ((event: { code: number; reason: string }) => void) | null
  send: (text: string) => void
  close: () => void
}

export interface Person {
  id: string
  present: boolean
}

export interface Pending {
  id: string
  text: string
  /** What was wrong with it; absent: it is on its way. */
  failure?: string
}

export interface Snapshot {
  phase: "joining" | "open" | "reconnecting" | "refused"
  /** Why it was refused, or what else went wrong. */
  problem: string | null
  me: string | null
  capabilities: readonly unknown[]
  people: readonly Person[]
  head: number
  /** From which number on all is here. */
  from: number
  reading: boolean
  scrub: Scrub
  speed: Speed
  fold: Fold
  /** What the fold is of; for the picture of it. */
  list: readonly Envelope[]
  pending: readonly Pending[]
  /** The clock of the gateway minus ours. */
  skew: number
}

export interface Parts {
  space: string
  token: string
  open: () => Socket
  history?: History
  /** Frames are gathered for so many milliseconds. */
  gather?: number
  random?: () => string
}

/** What the gateway gives at once, and how far back is read without a jump. */
const PAGE = 500
const NEAR = 8 * PAGE
const SLOWEST = 10_000
const TICK = 50
/** Why nothing is tried again: no frame it took for a join, a token that is not taken, sent away, no such space. */
const FINAL = new Set([4400, 4401, 4403, 4404])

const LOST = "What was said earlier could not be read."
const ANEW = "The space that was here before is gone. This is another one by its name."

export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return `p-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`
}

export class SpaceSession {
  readonly space: string
  readonly #parts: Parts
  readonly #history: History
  #log = new Log()
  /** A piece of the history far from what is here, while the page stands in it. */
  #away: Log | null = null
  #fold = new Fold()
  #then: { fold: Fold; log: Log } | null = null
  #socket: Socket | null = null
  #frames: Envelope[] = []
  #flush: ReturnType<typeof setTimeout> | undefined
  #again: ReturnType<typeof setTimeout> | undefined
  #ticker: ReturnType<typeof setInterval> | undefined
  #tries = 0
  #joined = false
  #left = false
  #reading = 0
  #asked = 0
  #people = new Map<string, boolean>()
  #sent = new Map<string, string>()
  #listeners = new Set<() => void>()
  #state: Snapshot

  constructor(parts: Parts) {
    this.#parts = parts
    this.space = parts.space
    this.#history = parts.history ?? historyOf(parts.space, parts.token)
    this.#state = {
      phase: "joining", problem: null, me: null, capabilities: [], people: [], head: 0, from: Number.POSITIVE_INFINITY,
      reading: false, scrub: LIVE, speed: 1, fold: this.#fold, list: this.#log.list, pending: [], skew: 0,
    }
  }

  readonly subscribe = (told: () => void) => {
    this.#listeners.add(told)
    return () => void this.#listeners.delete(told)
  }

  readonly snapshot = () => this.#state

  start(): void {
    this.#left = false
    this.#connect()
  }

  leave(): void {
    this.#left = true
    for (const timer of [this.#flush, this.#again, this.#ticker]) clearTimeout(timer)
    this.#asked++
    const socket = this.#socket
    this.#socket = null
    socket?.close()
  }

  // --- where the page stands

  live(): void {
    this.#away = null
    this.#stand(LIVE)
  }

  /** Stand still at that number. What is not here is read. */
  goTo(seq: number): void {
    const at = Math.max(1, Math.min(seq, this.#state.head))
    this.#stand({ mode: "paused", at })
    void this.#reach(at)
  }

  step(by: 1 | -1): void {
    const at = stepped(atOf(this.#state.scrub, this.#state.head), this.#here.list, by)
    if (by > 0 && at >= this.#state.head) this.live()
    else this.goTo(at)
  }

  play(): void {
    const { scrub, head } = this.#state
    const at = scrub.mode === "live" || scrub.at >= head ? Math.max(0, (this.#here.list[0]?.seq ?? 1) - 1) : scrub.at
    this.#stand({ mode: "playing", at, waited: 0 })
  }

  pause(): void {
    const { scrub, head } = this.#state
    this.#stand({ mode: "paused", at: Math.max(1, atOf(scrub, head)) })
  }

  pace(speed: Speed): void {
    this.#tell({ speed })
  }

  /** Read what was said before the first that is here. */
  async earlier(): Promise<void> {
    const log = this.#here
    if (this.#reading > 0 || log.from <= 1) return
    await this.#read(() => this.#before(log))
  }

  get #here(): Log {
    return this.#away ?? this.#log
  }

  #stand(scrub: Scrub): void {
    clearInterval(this.#ticker)
    if (scrub.mode === "playing") {
      let before = performance.now()
      this.#ticker = setInterval(() => {
        const now = performance.now()
        this.#tick(now - before)
        before = now
      }, TICK)
    }
    this.#tell({ scrub })
  }

  #tick(passed: number): void {
    if (this.#reading > 0) return
    const log = this.#here
    const { scrub, ended } = played(this.#state.scrub, log.list, passed, this.#state.speed)
    if (ended && this.#away) void this.#on(this.#away)
    else if (ended) return this.live()
    if (scrub.mode !== "live" && this.#state.scrub.mode !== "live" && scrub.at === this.#state.scrub.at) {
      // Nothing to be seen of it, but the pause goes on.
      this.#state = { ...this.#state, scrub }
      return
    }
    this.#tell({ scrub })
  }

  async #reach(at: number): Promise<void> {
    const mine = ++this.#asked
    if (at >= this.#log.from) {
      if (this.#away) {
        this.#away = null
        this.#tell({})
      }
      return
    }
    const away = this.#away
    if (away && at >= away.from && at <= away.to) return
    await this.#read(async () => {
      if (this.#log.from - at <= NEAR) {
        this.#away = null
        while (at < this.#log.from && this.#log.from > 1 && mine === this.#asked) await this.#before(this.#log)
        return
      }
      const log = new Log()
      const page = await this.#history.page({ before: at + 1, limit: PAGE, newest: true })
      if (mine !== this.#asked) return
      log.put(page.envelopes)
      log.from = page.more ? (page.first ?? page.envelopes[0]?.seq ?? at) : 1
      log.to = at
      this.#away = log
    })
  }

  /** The end of the history: so much that contexts have their beginnings, as a rule. */
  async #begin(): Promise<void> {
    await this.#before(this.#log)
    if (this.#log.from > 1) await this.#before(this.#log)
  }

  /** One page before the first that is here. */
  async #before(log: Log): Promise<void> {
    const page = await this.#history.page({ before: Number.isFinite(log.from) ? log.from : this.#state.head + 1, limit: PAGE, newest: true })
    if (log.put(page.envelopes) !== "nothing") this.#again_(log)
    log.from = page.more ? Math.min(log.from, page.first ?? page.envelopes[0]?.seq ?? 1) : 1
  }

  /** One page after the last of a piece that is far away, until it meets the rest. */
  async #on(log: Log): Promise<void> {
    await this.#read(async () => {
      const page = await this.#history.page({ after: log.to, limit: PAGE })
      log.put(page.envelopes)
      log.to = Math.max(log.to, page.last ?? log.to)
      if (!page.more || log.to >= this.#log.from - 1) {
        if (this.#log.put(log.list) !== "nothing") this.#again_(this.#log)
        this.#log.from = Math.min(this.#log.from, log.from)
        if (this.#away === log) this.#away = null
      }
    })
  }

  /** Envelopes came that do not stand at the end: what was folded is of no use. */
  #again_(log: Log): void {
    if (log === this.#log) this.#fold = Fold.of(log.list)
    if (this.#then?.log === log) this.#then = null
  }

  async #read(work: () => Promise<void>): Promise<void> {
    this.#reading++
    this.#tell({})
    try {
      await work()
    } catch (error) {
      if (!this.#left) this.#tell({ problem: error instanceof ApiError ? `${LOST} ${error.message}` : LOST })
    } finally {
      this.#reading--
      if (!this.#left) this.#tell({})
    }
  }

  /** The page as it was, or is, where it stands. */
  #shown(scrub: Scrub): Fold {
    if (scrub.mode === "live") {
      this.#then = null
      return this.#fold
    }
    const log = this.#here
    const upTo = log.count(scrub.at)
    const then = this.#then
    if (then && then.log === log && then.fold.at <= scrub.at) {
      for (let index = log.count(then.fold.at); index < upTo; index++) then.fold.feed(log.list[index] as Envelope)
      return then.fold
    }
    const fold = Fold.of(log.list.slice(0, upTo))
    this.#then = { fold, log }
    return fold
  }

  // --- the socket

  #connect(): void {
    clearTimeout(this.#again)
    if (this.#left || this.#socket) return
    const socket = this.#parts.open()
    this.#socket = socket
    const after = this.#joined ? { after_seq: Math.max(this.#log.to, 0) } : {}
    socket.onopen = () =>
      socket.send(JSON.stringify({ type: "join", space: this.space, token: this.#parts.token, view: "full", dialect: "mew/v0.4", ...after }))
    socket.onmessage = ({ data }) => {
      const envelope = typeof data === "string" ? readFrame(data) : null
      if (envelope && this.#socket === socket) this.#hear(envelope)
    }
    socket.onclose = ({ code, reason }) => {
      if (this.#socket !== socket) return
      this.#socket = null
      this.#flushNow()
      if (this.#left) return
      if (FINAL.has(code)) {
        // Before it was in, the gateway said why; afterwards the reason is a sentence.
        const why = this.#joined ? reason : (this.#state.problem ?? reason)
        this.#tell({ phase: "refused", problem: why || "The gateway did not take this token." })
        return
      }
      this.#tell({ phase: this.#joined ? "reconnecting" : "joining", ...(this.#joined ? {} : { problem: "The gateway cannot be reached. Trying again …" }) })
      const wait = Math.min(SLOWEST, 400 * 2 ** this.#tries++) * (0.7 + Math.random() * 0.6)
      this.#again = setTimeout(() => this.#connect(), wait)
    }
  }

  /** Now, not when its time has come: the network is there again, or somebody looks. */
  readonly hurry = () => {
    if (!this.#left && !this.#socket && this.#state.phase !== "refused") this.#connect()
  }

  #hear(envelope: Envelope): void {
    if (envelope.kind === "system/welcome") return this.#welcome(envelope)
    if (envelope.kind === "system/error") return this.#wrong(envelope)
    if (envelope.kind === "system/gap") return this.#gap(envelope)
    if (envelope.seq === 0) return
    this.#frames.push(envelope)
    this.#flush ??= setTimeout(() => this.#flushNow(), this.#parts.gather ?? 40)
  }

  #welcome({ payload, ts }: Envelope): void {
    const you = payload["you"] as { id?: unknown; capabilities?: unknown } | undefined
    const people = Array.isArray(payload["participants"]) ? payload["participants"] : []
    const head = payload["head"]
    const fresh = this.#state.phase !== "open"
    this.#joined = true
    this.#tries = 0
    const anew = payload["unknown_after_seq"] !== undefined
    if (anew) this.#forget()
    const me = typeof you?.id === "string" ? you.id : this.#state.me
    this.#people.clear()
    if (me !== null) this.#people.set(me, true)
    for (const one of people) {
      const id = (one as { id?: unknown } | null)?.id
      const present = (one as { present?: unknown } | null)?.present
      if (typeof id === "string") this.#people.set(id, present !== false)
    }
    this.#tell({
      phase: "open",
      problem: anew ? ANEW : null,
      me,
      capabilities: Array.isArray(you?.capabilities) ? you.capabilities : [],
      head: Math.max(this.#state.head, typeof head === "number" ? head : 0),
      skew: ts > 0 ? ts - Date.now() : 0,
    })
    // A welcome that only says that somebody may do more brings nothing else.
    if (fresh) for (const text of this.#sent.values()) this.#socket?.send(text)
    if (!Number.isFinite(this.#log.from)) void this.#read(() => this.#begin())
  }

  /** Nothing of what was here is of this space. */
  #forget(): void {
    this.#asked++
    this.#log = new Log()
    this.#fold = new Fold()
    this.#away = this.#then = null
    this.#frames = []
    this.#state = { ...this.#state, head: 0 }
    if (this.#state.scrub.mode !== "live") this.live()
  }

  #wrong(envelope: Envelope): void {
    const message = wordsOf(envelope) || "The gateway refused this."
    // Of what is too large, only the beginning is looked into: if its id is not there, its size tells which it was.
    const about = envelope.correlation.find((id) => this.#sent.has(id)) ?? (envelope.payload["code"] === "too_large" ? this.#largest() : undefined)
    if (about === undefined) {
      this.#tell({ problem: message })
      return
    }
    this.#sent.delete(about)
    const pending = this.#state.pending.map((one) => (one.id === about ? { ...one, failure: message } : one))
    // What has no words of its own (a cancel, say) is told of where everything is.
    this.#tell(pending.some((one) => one.id === about) ? { pending } : { problem: message })
  }

  #largest(): string | undefined {
    return [...this.#sent].toSorted((a, b) => b[1].length - a[1].length)[0]?.[0]
  }

  #gap({ payload }: Envelope): void {
    const { after_seq: after, before_seq: before } = payload
    if (typeof after !== "number" || typeof before !== "number") return
    void this.#read(async () => {
      for (let from = after; ; ) {
        const page = await this.#history.page({ after: from, before, limit: PAGE })
        if (this.#log.put(page.envelopes) !== "nothing") this.#again_(this.#log)
        const last = page.last ?? page.envelopes.at(-1)?.seq
        if (!page.more || last === undefined || last <= from) return
        from = last
      }
    })
  }

  #flushNow(): void {
    clearTimeout(this.#flush)
    this.#flush = undefined
    const batch = this.#frames
    if (batch.length === 0) return
    this.#frames = []
    const known = this.#log.list.length
    const put = this.#log.put(batch)
    if (put === "appended") for (const envelope of this.#log.list.slice(known)) this.#fold.feed(envelope)
    else if (put === "rebuilt") this.#again_(this.#log)
    let heard = false
    for (const envelope of batch) {
      if (envelope.kind === PRESENCE) this.#presence(envelope)
      if (envelope.from === this.#state.me && this.#sent.delete(envelope.id)) heard = true
    }
    this.#tell({
      head: Math.max(this.#state.head, this.#log.to),
      ...(heard && { pending: this.#state.pending.filter((one) => this.#sent.has(one.id) || one.failure !== undefined) }),
    })
  }

  #presence({ payload }: Envelope): void {
    const who = payload["participant"] as { id?: unknown } | undefined
    if (typeof who?.id === "string" && (payload["event"] === "join" || payload["event"] === "leave")) this.#people.set(who.id, payload["event"] === "join")
  }

  // --- saying something

  say(text: string, more: { to?: string; answers?: string } = {}): void {
    const id = this.#send("chat", { text }, { ...(more.to && { to: [more.to] }), ...(more.answers && { correlation_id: [more.answers] }) })
    this.#tell({ pending: [...this.#state.pending, { id, text }] })
  }

  /** What failed is taken away again. */
  forget(id: string): void {
    this.#tell({ pending: this.#state.pending.filter((one) => one.id !== id) })
  }

  cancel(context: Context, reason = "Cancelled by a reader"): void {
    this.#send(CANCEL, { reason }, { context: context.path })
  }

  approve(proposal: Said): void {
    const { envelope } = proposal
    const { method, params } = envelope.payload
    const id = this.#parts.random?.() ?? newId()
    this.#send(
      REQUEST,
      { jsonrpc: "2.0", id, ...(method !== undefined && { method }), ...(params !== undefined && { params }) },
      { correlation_id: [envelope.id], ...(envelope.context !== null && { context: envelope.context }), ...this.#others(envelope) },
      id,
    )
  }

  refuse(proposal: Said): void {
    const { envelope } = proposal
    const mine = envelope.from === this.#state.me
    this.#send(mine ? WITHDRAW : REJECT, { reason: mine ? "no_longer_needed" : "disagree" }, { correlation_id: [envelope.id] })
  }

  dismiss(): void {
    this.#tell({ problem: null })
  }

  #others({ to }: Envelope): { to?: string[] } {
    const others = to.filter((one) => one !== this.#state.me)
    return others.length > 0 ? { to: others } : {}
  }

  #send(kind: string, payload: Record<string, Json>, more: Record<string, Json>, id = this.#parts.random?.() ?? newId()): string {
    const text = JSON.stringify({ protocol: "mew/v0.4", id, ts: new Date(Date.now() + this.#state.skew).toISOString(), kind, ...more, payload })
    this.#sent.set(id, text)
    if (this.#state.phase === "open") this.#socket?.send(text)
    return id
  }

  readonly search = (query: string, before: number | null, signal: AbortSignal): Promise<Results> =>
    this.#history.search(query, before, signal)

  #tell(change: Partial<Snapshot>): void {
    const next = { ...this.#state, ...change }
    const log = next.scrub.mode === "live" ? this.#log : this.#here
    this.#state = {
      ...next,
      fold: this.#shown(next.scrub),
      list: log.list,
      from: log.from,
      reading: this.#reading > 0,
      people: people(this.#people, next.scrub.mode === "live" ? null : this.#shown(next.scrub)),
    }
    for (const told of this.#listeners) told()
  }
}

function people(now: ReadonlyMap<string, boolean>, then: Fold | null): Person[] {
  const all = new Map(then ? [...now.keys()].map((id) => [id, false] as const) : now)
  for (const [id, present] of then?.present ?? []) all.set(id, present)
  return [...all].map(([id, present]) => ({ id, present })).toSorted((a, b) => Number(b.present) - Number(a.present) || a.id.localeCompare(b.id))
}
