// What a space looks like at a place of its history: a fold of the envelopes up to there. The conversation, a lane for
// each participant, the contexts of reasoning as trees, and what became of requests and proposals.
//
// The rules of contexts are the gateway's own (docs/spaces.md): what it refused is not in the history, so nothing is
// judged here. A history that begins in the middle is read too: what stands in a context whose start is not in it makes
// an implicit one, and so does a conclusion.
//
// What is folded is changed in place, and says so by its `rev`: whoever draws it compares that. To feed one by one or all
// at once, from the beginning or from wherever the fold stands, gives the same.
import {
  CANCEL, CONCLUSION, GATEWAY, PRESENCE, PROPOSAL, REJECT, REQUEST, RESPONSE, START, WITHDRAW,
  compressedIds, confidenceOf, ownEntry, familyOf, isFailure, isRequestCancellation, textAt, uncertaintyOf, expectsResponse,
} from "./envelope"
import type { Envelope, Range } from "./envelope"

export type Status = "open" | "concluded" | "cancelled" | "abandoned"
export type ProposalStatus = "open" | "fulfilled" | "rejected" | "withdrawn"

/** Something that was said, and what became of it. */
export interface EnvelopeItem {
  readonly type: "envelope"
  readonly key: string
  readonly envelope: Envelope
  /** Where it stands; null: in the conversation. */
  readonly context: Context | null
  /** The contexts that it came out of. */
  readonly from: readonly Context[]
  /** What it answers, where that is here. */
  readonly answers: EnvelopeItem | null
  /** What came back to a request. */
  response: Envelope | null
  /** That whoever asked waits no more. */
  cancellation: Envelope | null
  proposal: { status: ProposalStatus; by: Envelope | null } | null
  /** The thought that stands for this one. */
  compressed: EnvelopeItem | null
  /** How many thoughts this one stands for. */
  compresses: number
  rev: number
}

/** A context of reasoning, with all that was said in it, and the contexts inside it where they were opened. */
export interface Context {
  readonly type: "context"
  readonly key: string
  readonly path: string
  readonly parent: Context | null
  /** Who started it; of an implicit one, who first spoke in it. */
  owner: string
  /** null: nobody started it, or its start is not here. */
  start: Envelope | null
  status: Status
  triggers: readonly string[]
  /** By the envelopes' own times. */
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
  confidence: number | undefined
  uncertainty: Range | undefined
  /** How many envelopes stand in it, and in those inside it. */
  count: number
  /** Requests in it, or inside it, to which nothing came back, and proposals that are open. */
  waiting: Set<EnvelopeItem>
  steps: Item[]
  rev: number
}

export type Item = EnvelopeItem | Context

export interface Lane {
  readonly id: string
  /** Contexts that it opened, what it asked for outside of any, and what it said. */
  items: Item[]
  /** It reasons or acts, rather than only speaks. */
  works: boolean
  open: Set<Context>
  waiting: Set<EnvelopeItem>
  rev: number
}

type ContextState = "unseen" | "implicit" | "open" | "stopped" | "closed"
type Role = "start" | "step" | "conclusion" | "cancel" | "word"
type Transition = "open" | "nest" | "imply" | "stay" | "conclude" | "cancel" | "close" | "none"

const TRANSITIONS: Record<ContextState, Record<Role, Transition>> = {
  unseen: { start: "open", step: "imply", conclusion: "imply", cancel: "none", word: "imply" },
  implicit: { start: "open", step: "stay", conclusion: "conclude", cancel: "cancel", word: "stay" },
  open: { start: "nest", step: "stay", conclusion: "conclude", cancel: "cancel", word: "stay" },
  stopped: { start: "none", step: "none", conclusion: "close", cancel: "none", word: "none" },
  closed: { start: "none", step: "none", conclusion: "none", cancel: "none", word: "none" },
}

const ROLES: Record<string, Role> = { [START]: "start", [CONCLUSION]: "conclusion", [CANCEL]: "cancel" }
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

/** The one at that path, or the nearest that it stands in. */
function nearest(among: ReadonlyMap<string, Context>, path: string): Context | null {
  for (const one of [path, ...ancestors(path)]) {
    const context = among.get(one)
    if (context) return context
  }
  return null
}

export class Fold {
  /** The number of the last envelope, and its time. */
  at = 0
  now = 0
  rev = 0
  /** The conversation: what stands in no context, and each outermost context where it was opened. */
  readonly main: Item[] = []
  readonly lanes = new Map<string, Lane>()
  /** Who came and went, as far as it is here. */
  readonly present = new Map<string, boolean>()

  /** Those that can be spoken of, by path; and where what is said in them is shown. */
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

  /** Where the envelope of that number stands: itself, the context that it opened, or the request that it answers. */
  find(seq: number): Item | undefined {
    return this.#bySeq.get(seq)
  }

  /** The context that is called so, by its path or the id of its start. */
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
    if (envelope.kind === PRESENCE) this.#presence(envelope)

    const role = ownEntry(ROLES, envelope.kind) ?? (familyOf(envelope.kind) === "reasoning" && envelope.from !== GATEWAY ? "step" : "word")
    const path = envelope.context === null ? null : this.#resolve(envelope.context)
    const [state, current] = path === null ? (["unseen", undefined] as const) : this.#stateOf(path)
    const transition = path === null && role !== "start" ? "none" : TRANSITIONS[state][role]
    const links = this.#links(envelope, path)

    let context: Context | null = null
    if (role === "start" && (path !== null || SEGMENT.test(envelope.id))) {
      const opens = path === null ? envelope.id : state === "unseen" || state === "implicit" ? path : `${path}/${envelope.id}`
      context = this.#openContext(opens, envelope)
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
        lane.open.delete(implicit)
        lane.rev++
        for (const one of implicit.waiting) lane.waiting.delete(one)
        const next = this.#lane(start.from)
        next.items.push(implicit)
        next.open.add(implicit)
        next.works = true
        next.rev++
        for (const one of implicit.waiting) next.waiting.add(one)
      }
      implicit.owner = start.from
      implicit.start = start
    }
    const named = textAt(start.payload, "triggered_by")
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
      lane.works = true
      lane.rev++
      this.main.push(context)
    }
    return context
  }

  #end(context: Context, status: Status, by: Envelope): void {
    for (const one of this.#open) {
      if (one === context || !one.path.startsWith(`${context.path}/`)) continue
      if (one.start === null) {
        // It was never begun, and does not end otherwise: it is over with what it stands in.
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

  /** Something was said in it. */
  #recordActivity(context: Context, envelope: Envelope): void {
    if (envelope.kind === CONCLUSION) context.conclusion = envelope
    // Who only did what it was asked for did not think along.
    const thinks = envelope.kind !== RESPONSE && envelope.from !== GATEWAY
    if (thinks && !context.participants.includes(envelope.from)) context.participants.push(envelope.from)
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

  /** It and what it stands in are to be drawn anew. */
  #markChanged(context: Context): void {
    let root = context
    for (let one: Context | null = context; one; one = one.parent) {
      one.rev++
      root = one
    }
    this.#lane(root.owner).rev++
  }

  // --- what is said

  #lane(id: string): Lane {
    let lane = this.lanes.get(id)
    if (!lane) this.lanes.set(id, (lane = { id, items: [], works: false, open: new Set(), waiting: new Set(), rev: 0 }))
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
      from: links,
      answers: referenced.find((one) => one.envelope.from !== envelope.from || one.envelope.kind === PROPOSAL) ?? null,
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
      if (envelope.kind === REQUEST || envelope.kind === PROPOSAL) lane.works = true
    }
    if ((envelope.kind === REQUEST && expectsResponse(envelope)) || envelope.kind === PROPOSAL) this.#addWaiting(item)
    return item
  }

  /** The response to what fulfilled a proposal is known by its own id too. */
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

  #presence(envelope: Envelope): void {
    const { event, participant } = envelope.payload
    const id = typeof participant === "object" && participant !== null && !Array.isArray(participant) ? participant["id"] : undefined
    if (typeof id === "string" && (event === "join" || event === "leave")) this.present.set(id, event === "join")
  }

  // --- what came out of what

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

/** Whether anything came back, and how it went. */
export function outcomeOf(item: EnvelopeItem): "waiting" | "done" | "failed" | "given-up" | "none" {
  if (item.response) return isFailure(item.response) ? "failed" : "done"
  if (item.cancellation) return "given-up"
  return item.envelope.kind === REQUEST && expectsResponse(item.envelope) ? "waiting" : "none"
}
