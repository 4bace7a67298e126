// The state of a space at a position of its history, folded from the envelopes up to there: the conversation, a lane
// for each participant, the contexts as trees, and the outcomes of requests and proposals.
//
// The rules of contexts are the gateway's (docs/spaces.md). Envelopes that it rejected are not in the history, so
// nothing is validated here. A history may begin in the middle: an envelope or a conclusion in a context without its
// start creates an implicit context.
//
// Items are changed in place; `rev` is incremented with each change, and renderers compare it. Feeding one by one or
// all at once, from the beginning or from any state, gives the same result.
import {
  CANCEL, CONCLUSION, GATEWAY, PROPOSAL, REJECT, REQUEST, RESPONSE, SHARE, START, WITHDRAW,
  compressedIds, confidenceOf, ownEntry, familyOf, isFailure, isRequestCancellation, textAt, uncertaintyOf, expectsResponse,
} from "./envelope"
import type { Envelope, Range } from "./envelope"
import { presenceChange } from "./presence"

export type Status = "open" | "concluded" | "cancelled" | "abandoned"
export type ProposalStatus = "open" | "fulfilled" | "rejected" | "withdrawn"

/** An envelope, with its response or its outcome. */
export interface EnvelopeItem {
  readonly type: "envelope"
  readonly key: string
  readonly envelope: Envelope
  /** The context it belongs to; null: the conversation. */
  readonly context: Context | null
  /** The contexts that led to it. */
  readonly origins: readonly Context[]
  /** The item that it replies to, if it is loaded. */
  readonly repliesTo: EnvelopeItem | null
  /** The response to a request. */
  response: Envelope | null
  /** The envelope with which the sender cancelled the request. */
  cancellation: Envelope | null
  proposal: { status: ProposalStatus; by: Envelope | null } | null
  /** The thought that summarizes this one. */
  compressed: EnvelopeItem | null
  /** The number of thoughts that this one summarizes. */
  compresses: number
  rev: number
}

/** A context of reasoning, with its envelopes and sub-contexts. */
export interface Context {
  readonly type: "context"
  readonly key: string
  readonly path: string
  readonly parent: Context | null
  /** The sender of its start; in an implicit context, of its first envelope. */
  owner: string
  /** null if the context is implicit, or its start is not loaded. */
  start: Envelope | null
  status: Status
  triggers: readonly string[]
  /** Times are the envelopes' timestamps, in milliseconds. */
  opened: number
  active: number
  ended: number | null
  endedBy: Envelope | null
  awaitsConclusion: boolean
  conclusion: Envelope | null
  answer: EnvelopeItem | null
  answeredAfterEnd: boolean
  ledTo: EnvelopeItem[]
  participants: string[]
  /** Who may read it, by its newest envelope; empty: everyone. */
  audience: readonly string[]
  confidence: number | undefined
  uncertainty: Range | undefined
  /** The number of envelopes in it and in its sub-contexts. */
  count: number
  /** Requests without a response and open proposals, in it and in its sub-contexts. */
  waiting: Set<EnvelopeItem>
  steps: Item[]
  rev: number
}

export type Item = EnvelopeItem | Context

export interface Lane {
  readonly id: string
  /** The contexts that it opened, and its requests and messages outside of contexts. */
  items: Item[]
  /** The participant reasons or calls tools; it does not only send messages. */
  hasActivity: boolean
  /** It has opened a context. */
  hasReasoned: boolean
  open: Set<Context>
  waiting: Set<EnvelopeItem>
  rev: number
}

type ContextState = "unseen" | "implicit" | "open" | "stopped" | "closed"
type Role = "start" | "step" | "conclusion" | "cancel" | "share" | "word"
type Transition = "open" | "nest" | "imply" | "stay" | "conclude" | "cancel" | "close" | "none"

const TRANSITIONS: Record<ContextState, Record<Role, Transition>> = {
  unseen: { start: "open", step: "imply", conclusion: "imply", cancel: "none", share: "none", word: "imply" },
  implicit: { start: "open", step: "stay", conclusion: "conclude", cancel: "cancel", share: "stay", word: "stay" },
  open: { start: "nest", step: "stay", conclusion: "conclude", cancel: "cancel", share: "stay", word: "stay" },
  stopped: { start: "none", step: "none", conclusion: "close", cancel: "none", share: "none", word: "none" },
  closed: { start: "none", step: "none", conclusion: "none", cancel: "none", share: "none", word: "none" },
}

const ROLES: Record<string, Role> = { [START]: "start", [CONCLUSION]: "conclusion", [CANCEL]: "cancel", [SHARE]: "share" }
const ANSWERS = new Set(["chat", RESPONSE])
const LINKED = new Set([...ANSWERS, PROPOSAL, REQUEST])
const SEGMENT = /^[A-Za-z0-9_-][A-Za-z0-9_.:@+~=-]*$/
const MAX_TRIGGERS = 16

const leaf = (path: string) => path.slice(path.lastIndexOf("/") + 1)
const within = (path: string | null, of: string) => path !== null && (path === of || path.startsWith(`${of}/`))

function ancestors(path: string): string[] {
  const paths: string[] = []
  for (let end = path.lastIndexOf("/"); end > 0; end = path.lastIndexOf("/", end - 1)) paths.push(path.slice(0, end))
  return paths
}

/** The context at that path, or its nearest ancestor. */
function nearest(among: ReadonlyMap<string, Context>, path: string): Context | null {
  for (const one of [path, ...ancestors(path)]) {
    const context = among.get(one)
    if (context) return context
  }
  return null
}

export class Fold {
  /** The number and the time of the last envelope. */
  at = 0
  now = 0
  rev = 0
  /** The conversation: envelopes outside of contexts, and each root context at the place where it was opened. */
  readonly main: Item[] = []
  readonly lanes = new Map<string, Lane>()
  /** Presence of participants, as far as it is loaded. */
  readonly present = new Map<string, boolean>()

  /** `#contexts`: contexts that can be referenced, by path. `#trees`: where their envelopes are shown. */
  readonly #contexts = new Map<string, Context>()
  readonly #trees = new Map<string, Context>()
  readonly #names = new Map<string, string>()
  readonly #triggers = new Map<string, string>()
  readonly #byId = new Map<string, EnvelopeItem>()
  readonly #bySeq = new Map<number, Item>()
  readonly #open = new Set<Context>()

  static of(envelopes: Iterable<Envelope>): Fold {
    const fold = new Fold()
    for (const envelope of envelopes) fold.feed(envelope)
    return fold
  }

  /** The item of a sequence number: the envelope, the context that it opened, or the request that it responds to. */
  find(seq: number): Item | undefined {
    return this.#bySeq.get(seq)
  }

  /** The context with that path, or with the id of its start. */
  context(name: string): Context | undefined {
    return this.#contexts.get(this.#resolve(name))
  }

  itemById(id: string): EnvelopeItem | undefined {
    return this.#byId.get(id)
  }

  get openContexts(): ReadonlySet<Context> {
    return this.#open
  }

  feed(envelope: Envelope): void {
    this.at = envelope.seq
    this.now = Math.max(this.now, envelope.ts)
    this.rev++
    const change = presenceChange(envelope)
    if (change) this.present.set(change.id, change.present)

    const role = ownEntry(ROLES, envelope.kind) ?? (familyOf(envelope.kind) === "reasoning" && envelope.from !== GATEWAY ? "step" : "word")
    const path = envelope.context === null ? null : this.#resolve(envelope.context)
    const [state, current] = path === null ? (["unseen", undefined] as const) : this.#stateOf(path)
    const transition = path === null && role !== "start" ? "none" : TRANSITIONS[state][role]
    const links = this.#links(envelope, path)

    let context: Context | null = null
    if (role === "start" && (path !== null || SEGMENT.test(envelope.id))) {
      const openedPath = path === null ? envelope.id : state === "unseen" || state === "implicit" ? path : `${path}/${envelope.id}`
      context = this.#openContext(openedPath, envelope)
      this.#bySeq.set(envelope.seq, context)
      this.#recordActivity(context, envelope)
      return
    }
    if (path !== null) {
      if (transition === "imply") context = this.#createContext(path, envelope, null)
      else context = nearest(this.#trees, path)
      if (transition === "conclude" && current) this.#end(current, envelope.payload["cancelled"] === true ? "cancelled" : envelope.from === GATEWAY ? "abandoned" : "concluded", envelope)
      else if (transition === "imply" && role === "conclusion" && context) this.#end(context, "concluded", envelope)
      else if (transition === "cancel" && current) this.#end(current, envelope.from === GATEWAY ? "abandoned" : "cancelled", envelope)
      else if (transition === "close" && current) current.awaitsConclusion = false
    }
    const item = this.#addItem(envelope, context, links)
    if (context) this.#recordActivity(context, envelope)
    this.#link(item, links)
  }

  // --- contexts

  #resolve(written: string): string {
    if (this.#contexts.has(written)) return written
    for (const prefix of [written, ...ancestors(written)]) {
      const path = this.#names.get(prefix)
      if (path !== undefined) return path + written.slice(prefix.length)
      if (this.#contexts.has(prefix)) break
    }
    return written
  }

  #stateOf(path: string): [ContextState, Context | undefined] {
    const own = this.#contexts.get(path)
    if (own) {
      if (own.status !== "open") return [own.awaitsConclusion ? "stopped" : "closed", own]
      return [own.start === null ? "implicit" : "open", own]
    }
    const above = nearest(this.#contexts, path)
    return [above && above.status !== "open" ? "closed" : "unseen", above ?? undefined]
  }

  #openContext(path: string, start: Envelope): Context {
    const before = this.#contexts.get(path)
    const implicit = before && before.start === null && before.status === "open" ? before : null
    const context = implicit ?? this.#createContext(path, start, start)
    if (implicit) {
      if (implicit.parent === null && implicit.owner !== start.from) {
        const lane = this.#lane(implicit.owner)
        lane.items = lane.items.filter((one) => one !== implicit)
        lane.hasReasoned = lane.items.some((one) => one.type === "context")
        lane.open.delete(implicit)
        lane.rev++
        for (const one of implicit.waiting) lane.waiting.delete(one)
        const next = this.#lane(start.from)
        next.items.push(implicit)
        next.open.add(implicit)
        next.hasActivity = next.hasReasoned = true
        next.rev++
        for (const one of implicit.waiting) next.waiting.add(one)
      }
      implicit.owner = start.from
      implicit.start = start
    }
    const named = textAt(start.payload, "triggered_by")
    // The envelopes in it that name their recipients do not say who else could read them.
    if (start.to.length > 0) context.audience = [...new Set([start.from, ...start.to])]
    context.triggers = start.correlation.length > 0 ? start.correlation.slice(0, MAX_TRIGGERS) : named !== undefined ? [named] : []
    for (const name of leaf(path) === start.id ? (start.id === path ? [] : [start.id]) : [start.id, `${path}/${start.id}`]) this.#names.set(name, path)
    for (const trigger of context.triggers) {
      const key = `${start.from}\n${trigger}`
      const first = this.#triggers.get(key)
      if (first === undefined || !within(path, first)) this.#triggers.set(key, path)
    }
    return context
  }

  #createContext(path: string, by: Envelope, start: Envelope | null): Context {
    const above = path.lastIndexOf("/")
    const parent = above < 0 ? null : nearest(this.#trees, path.slice(0, above))
    const context: Context = {
      type: "context",
      key: `${path}#${by.seq}`,
      path,
      parent,
      owner: by.from,
      start,
      status: "open",
      triggers: [],
      opened: by.ts,
      active: by.ts,
      ended: null,
      endedBy: null,
      awaitsConclusion: false,
      conclusion: null,
      answer: null,
      answeredAfterEnd: false,
      ledTo: [],
      participants: [],
      audience: [],
      confidence: undefined,
      uncertainty: undefined,
      count: 0,
      waiting: new Set(),
      steps: [],
      rev: 0,
    }
    const replaced = this.#contexts.get(path)
    if (replaced) {
      this.#open.delete(replaced)
      this.#lane(replaced.owner).open.delete(replaced)
    }
    this.#contexts.set(path, context)
    this.#trees.set(path, context)
    this.#open.add(context)
    if (parent) {
      parent.steps.push(context)
    } else {
      const lane = this.#lane(by.from)
      lane.items.push(context)
      lane.open.add(context)
      lane.hasActivity = lane.hasReasoned = true
      lane.rev++
      this.main.push(context)
    }
    return context
  }

  #end(context: Context, status: Status, by: Envelope): void {
    for (const one of this.#open) {
      if (one === context || !one.path.startsWith(`${context.path}/`)) continue
      if (one.start === null) {
        // An implicit context has no end of its own: it ends with its parent.
        this.#contexts.delete(one.path)
        this.#markEnded(one, by)
        continue
      }
      this.#close(one, status === "cancelled" ? "cancelled" : "abandoned", by, true)
    }
    this.#close(context, status, by, by.kind === CANCEL)
  }

  #close(context: Context, status: Status, by: Envelope, awaitsConclusion: boolean): void {
    context.status = status
    context.awaitsConclusion = awaitsConclusion
    this.#markEnded(context, by)
  }

  #markEnded(context: Context, by: Envelope): void {
    context.ended = Math.max(context.opened, by.ts)
    context.endedBy = by
    this.#open.delete(context)
    this.#markChanged(context)
    if (context.parent === null) {
      const lane = this.#lane(context.owner)
      lane.open.delete(context)
    }
  }

  /** Update a context with an envelope in it. */
  #recordActivity(context: Context, envelope: Envelope): void {
    if (envelope.kind === CONCLUSION) context.conclusion = envelope
    if (envelope.audience.length > 0) context.audience = envelope.audience
    // A participant that only responded to a request did not take part in the reasoning.
    const contributes = envelope.kind !== RESPONSE && envelope.from !== GATEWAY
    if (contributes && !context.participants.includes(envelope.from)) context.participants.push(envelope.from)
    const confidence = familyOf(envelope.kind) === "reasoning" ? confidenceOf(envelope.payload) : undefined
    if (confidence !== undefined) {
      context.confidence = confidence
      context.uncertainty = uncertaintyOf(envelope.payload)
    }
    for (let one: Context | null = context; one; one = one.parent) {
      one.active = Math.max(one.active, envelope.ts)
      one.count++
    }
    this.#markChanged(context)
  }

  /** Mark the context and its ancestors as changed. */
  #markChanged(context: Context): void {
    let root = context
    for (let one: Context | null = context; one; one = one.parent) {
      one.rev++
      root = one
    }
    this.#lane(root.owner).rev++
  }

  // --- envelopes

  #lane(id: string): Lane {
    let lane = this.lanes.get(id)
    if (!lane) this.lanes.set(id, (lane = { id, items: [], hasActivity: false, hasReasoned: false, open: new Set(), waiting: new Set(), rev: 0 }))
    return lane
  }

  #addItem(envelope: Envelope, context: Context | null, links: readonly Context[]): EnvelopeItem {
    const referenced = envelope.correlation.map((id) => this.#byId.get(id)).filter((one) => one !== undefined)
    if (envelope.kind === RESPONSE) {
      const request = referenced.find((one) => one.envelope.kind === REQUEST && one.response === null)
      if (request) {
        request.response = envelope
        this.#removeWaiting(request)
        this.#bySeq.set(envelope.seq, request)
        this.#registerId(envelope, request)
        return request
      }
    }
    if (isRequestCancellation(envelope)) {
      const request = referenced.find((one) => one.envelope.kind === REQUEST && one.envelope.from === envelope.from && outcomeOf(one) === "waiting")
      if (request) {
        request.cancellation = envelope
        this.#removeWaiting(request)
        this.#bySeq.set(envelope.seq, request)
        return request
      }
    }
    if (envelope.kind === WITHDRAW || envelope.kind === REJECT) {
      const proposal = referenced.find((one) => one.proposal?.status === "open")
      if (proposal) {
        this.#resolveProposal(proposal, envelope.kind === REJECT ? "rejected" : "withdrawn", envelope)
        this.#bySeq.set(envelope.seq, proposal)
        return proposal
      }
    }
    const item: EnvelopeItem = {
      type: "envelope",
      key: `${envelope.seq}`,
      envelope,
      context,
      origins: links,
      repliesTo: referenced.find((one) => one.envelope.from !== envelope.from || one.envelope.kind === PROPOSAL) ?? null,
      response: null,
      cancellation: null,
      proposal: envelope.kind === PROPOSAL ? { status: "open", by: null } : null,
      compressed: null,
      compresses: 0,
      rev: 0,
    }
    this.#bySeq.set(envelope.seq, item)
    if (envelope.id !== "") this.#byId.set(envelope.id, item)
    if (envelope.kind === REQUEST) for (const one of referenced) if (one.proposal?.status === "open") this.#resolveProposal(one, "fulfilled", envelope)
    for (const id of compressedIds(envelope)) {
      const source = this.#byId.get(id)
      if (!source || source === item || source.compressed || source.context !== context || !context) continue
      source.compressed = item
      source.rev++
      item.compresses++
    }
    if (context) {
      context.steps.push(item)
    } else {
      this.main.push(item)
      const lane = this.#lane(envelope.from)
      const family = familyOf(envelope.kind)
      if (family === "chat" || family === "mcp") {
        lane.items.push(item)
        lane.rev++
      }
      if (envelope.kind === REQUEST || envelope.kind === PROPOSAL) lane.hasActivity = true
    }
    if ((envelope.kind === REQUEST && expectsResponse(envelope)) || envelope.kind === PROPOSAL) this.#addWaiting(item)
    return item
  }

  /** The response to a request that fulfilled a proposal can be referenced by its own id. */
  #registerId(envelope: Envelope, item: EnvelopeItem): void {
    if (envelope.id !== "" && !this.#byId.has(envelope.id)) this.#byId.set(envelope.id, item)
  }

  #resolveProposal(proposal: EnvelopeItem, status: ProposalStatus, by: Envelope): void {
    proposal.proposal = { status, by }
    this.#removeWaiting(proposal)
  }

  #laneOf(item: EnvelopeItem): Lane {
    let root = item.context
    while (root?.parent) root = root.parent
    return this.#lane(root?.owner ?? item.envelope.from)
  }

  #addWaiting(item: EnvelopeItem): void {
    for (let one = item.context; one; one = one.parent) one.waiting.add(item)
    this.#laneOf(item).waiting.add(item)
  }

  #removeWaiting(item: EnvelopeItem): void {
    item.rev++
    for (let one = item.context; one; one = one.parent) one.waiting.delete(item)
    const lane = this.#laneOf(item)
    lane.waiting.delete(item)
    lane.rev++
    if (item.context) this.#markChanged(item.context)
  }

  // --- links from contexts to their answers and requests

  #links(envelope: Envelope, path: string | null): Context[] {
    if (!LINKED.has(envelope.kind)) return []
    const links: Context[] = []
    for (const name of envelope.correlation) {
      const triggered = this.#triggers.get(`${envelope.from}\n${name}`)
      for (const context of [this.#contexts.get(this.#names.get(name) ?? name), triggered === undefined ? undefined : this.#contexts.get(triggered)]) {
        if (!context || (context.start === null && context.status === "open") || context.owner !== envelope.from || links.includes(context)) continue
        if (!within(path, context.path)) links.push(context)
        break
      }
    }
    return links
  }

  #link(item: EnvelopeItem, links: readonly Context[]): void {
    for (const context of links) {
      context.ledTo.push(item)
      if (ANSWERS.has(item.envelope.kind) && !context.answeredAfterEnd) {
        context.answer = item
        context.answeredAfterEnd = context.status !== "open"
      }
      this.#markChanged(context)
    }
  }
}

/** Whether a request got a response, and which. */
export function outcomeOf(item: EnvelopeItem): "waiting" | "done" | "failed" | "cancelled" | "sent" {
  if (item.response) return isFailure(item.response) ? "failed" : "done"
  if (item.cancellation) return "cancelled"
  return item.envelope.kind === REQUEST && expectsResponse(item.envelope) ? "waiting" : "sent"
}
