// The rows of a lane or of the conversation: its items as a flat list, folded and filtered. Because the list is flat,
// only rows near the visible area need to be rendered, however deep the trees are.
import { mayShareLine, participantOf } from "./presence"
import { CANCEL, CONCLUSION, REQUEST, ownEntry, familyOf, textAt, textOf } from "./envelope"
import type { Envelope } from "./envelope"
import type { Context, Item, EnvelopeItem, Lane } from "./fold"
import { words } from "../words"

/** `full`: everything. `folded`: one or two lines for each context. `main`: only the conversation. */
export type SpaceView = "full" | "folded" | "main"

export const GROUPS = ["thoughts", "questions", "observations", "hypotheses", "conclusions", "tools", "chat", "notices"] as const
export type Group = (typeof GROUPS)[number]

const GROUP_OF: Record<string, Group> = {
  "reasoning/question": "questions",
  "reasoning/observation": "observations",
  "reasoning/hypothesis": "hypotheses",
  [CONCLUSION]: "conclusions",
  [CANCEL]: "conclusions",
}

export function groupOf(kind: string): Group {
  const own = ownEntry(GROUP_OF, kind)
  if (own) return own
  const family = familyOf(kind)
  return family === "reasoning" ? "thoughts" : family === "mcp" ? "tools" : family === "chat" ? "chat" : "notices"
}

export interface Filter {
  view: SpaceView
  /** Hidden participants. */
  without: ReadonlySet<string>
  /** Hidden kinds. */
  hidden: ReadonlySet<Group>
  /** Only rows that contain this text, in lower case; empty: all rows. */
  text: string
}

export const ALL: Filter = { view: "full", without: new Set(), hidden: new Set(), text: "" }

/** Contexts that the user folded or opened, by key. */
export type Folds = ReadonlyMap<string, boolean>

export type Row =
  | { type: "head"; key: string; context: Context; depth: number; open: boolean; rev: number }
  | {
      type: "item"
      key: string
      item: EnvelopeItem
      depth: number
      rev: number
      /** Preceding presence notices that are merged into this row. */
      before?: readonly EnvelopeItem[]
      /** The row stands for so many requests that only ask what there is; they follow if it is open. */
      discovery?: { count: number; open: boolean }
    }

/** All text of an envelope that a reader sees, in lower case. */
export function searchableText(envelope: Envelope): string {
  return `${envelope.from} ${envelope.kind} ${strings(envelope.payload).join(" ")}`.toLowerCase()
}

function strings(value: unknown, depth = 0): string[] {
  if (typeof value === "string") return [value]
  if (depth > 6 || typeof value !== "object" || value === null) return []
  return Object.values(value).flatMap((one) => strings(one, depth + 1))
}

const matches = (item: EnvelopeItem, text: string) =>
  text === "" || searchableText(item.envelope).includes(text) || (item.response !== null && searchableText(item.response).includes(text))

const startMatches = (context: Context, text: string) => context.start !== null && searchableText(context.start).includes(text)

/** Whether a context is open by default. */
function isOpenByDefault(context: Context, last: boolean, filter: Filter): boolean {
  if (filter.text !== "") return true
  if (filter.view !== "full") return false
  return context.status === "open" ? true : context.parent === null ? last : true
}

/** The rows of a lane: its contexts as trees. */
export function laneRows(items: readonly Item[], filter: Filter, folds: Folds): Row[] {
  const rows: Row[] = []
  const last = items.findLast((item) => item.type === "context")
  for (const item of items) {
    if (item.type === "envelope") addItem(rows, item, 0, filter, folds)
    else addContext(rows, item, 0, item === last, filter, folds)
  }
  return foldDiscovery(rows, filter, folds)
}

/** The rows of the conversation: one for each context, which links to its lane. */
export function mainRows(items: readonly Item[], filter: Filter, folds: Folds = NO_FOLDS): Row[] {
  const rows: Row[] = []
  for (const item of items) {
    if (item.type === "envelope") {
      if (addItem(rows, item, 0, filter, NO_FOLDS)) mergePresence(rows)
    } else if (filter.view !== "main" && !filter.without.has(item.owner) && (filter.text === "" || startMatches(item, filter.text))) {
      rows.push({ type: "head", key: item.key, context: item, depth: 0, open: false, rev: item.rev })
    }
  }
  return foldDiscovery(rows, filter, folds)
}

/** Requests of MCP that only ask what there is, or begin a session. */
const DISCOVERY = /^(initialize|ping|completion\/complete|(tools|prompts|resources|resources\/templates|roots)\/list|notifications\/(initialized|\w+\/list_changed))$/

export const isDiscovery = ({ envelope: { kind, payload } }: EnvelopeItem) => kind === REQUEST && typeof payload["method"] === "string" && DISCOVERY.test(payload["method"])

export const discoveryKey = (item: EnvelopeItem) => `discovery:${item.key}`

/** Put one row before each run of discovery, and leave the run out unless it is open. */
function foldDiscovery(rows: Row[], filter: Filter, folds: Folds): Row[] {
  if (filter.text !== "") return rows
  const folded: Row[] = []
  for (let from = 0; from < rows.length; ) {
    const first = rows[from] as Row
    if (first.type !== "item" || !isDiscovery(first.item)) {
      folded.push(first)
      from++
      continue
    }
    const run = [first]
    for (let next = rows[from + run.length]; next?.type === "item" && next.depth === first.depth && isDiscovery(next.item); next = rows[from + run.length]) run.push(next)
    const key = discoveryKey(first.item)
    const open = folds.get(key) ?? run.some(({ item }) => folds.get(discoveryKey(item)) === true)
    // A half more tells the open state apart.
    const rev = run.reduce((sum, row) => sum + row.rev, run.length) + (open ? 0.5 : 0)
    folded.push({ type: "item", key, item: first.item, depth: first.depth, rev, discovery: { count: run.length, open } }, ...(open ? run : []))
    from += run.length
  }
  return folded
}

/** Lanes in an order that does not depend on what is loaded: by name; those without reasoning (people's) last. */
export const orderedLanes = (lanes: Iterable<Lane>): Lane[] =>
  [...lanes].toSorted((a, b) => Number(b.hasReasoned) - Number(a.hasReasoned) || a.id.localeCompare(b.id))

const NO_FOLDS: Folds = new Map()
const MAX_MERGED_NOTICES = 100
const MAX_NAMES = 12

/** Merge the last two rows if both are presence notices. */
function mergePresence(rows: Row[]): void {
  const [before, last] = rows.slice(-2)
  if (before?.type !== "item" || last?.type !== "item") return
  const [a, b] = [before.item.envelope, last.item.envelope]
  if (!mayShareLine(a, b)) return
  const merged = [...(before.before ?? []), before.item]
  const who = new Set(merged.map((one) => participantOf(one.envelope)))
  if (merged.length >= MAX_MERGED_NOTICES || who.add(participantOf(b)).size > MAX_NAMES) return
  rows.splice(-2, 2, { ...last, before: merged, rev: last.rev + merged.length })
}

function addItem(rows: Row[], item: EnvelopeItem, depth: number, filter: Filter, folds: Folds): boolean {
  const { envelope } = item
  if (filter.without.has(envelope.from) || filter.hidden.has(groupOf(envelope.kind)) || !matches(item, filter.text)) return false
  if (item.compressed && filter.text === "" && folds.get(item.compressed.key) !== true) return false
  rows.push({ type: "item", key: item.key, item, depth, rev: item.rev })
  return true
}

/** Add a context and its steps; return whether anything of it is visible. */
function addContext(rows: Row[], context: Context, depth: number, last: boolean, filter: Filter, folds: Folds): boolean {
  const open = folds.get(context.key) ?? isOpenByDefault(context, last, filter)
  const start = rows.length
  rows.push({ type: "head", key: context.key, context, depth, open, rev: context.rev })
  let any = false
  if (open) {
    for (const step of context.steps) {
      const shown = step.type === "envelope" ? addItem(rows, step, depth + 1, filter, folds) : addContext(rows, step, depth + 1, true, filter, folds)
      any = any || shown
    }
  } else {
    // Items that wait for an action are visible, even if the context is folded.
    for (const waiting of context.waiting) any = addItem(rows, waiting, depth + 1, filter, folds) || any
    // A folded context that contains the text is a match, too.
    if (filter.text !== "" && !any) any = containsText(context, filter.text)
  }
  if (filter.text !== "" && !any && !startMatches(context, filter.text)) {
    rows.length = start
    return false
  }
  return true
}

const containsText = (context: Context, text: string): boolean =>
  context.steps.some((step) => (step.type === "envelope" ? matches(step, text) : startMatches(step, text) || containsText(step, text)))

/** The key of an item's row, its lane, and the contexts that must be open for it to be visible. */
export function placeOf(item: Item): { key: string; lane: string | null; within: Context[] } {
  const chain: Context[] = []
  for (let one = item.type === "envelope" ? item.context : item.parent; one; one = one.parent) chain.push(one)
  const root = chain.at(-1) ?? (item.type === "context" ? item : null)
  return { key: item.key, lane: root?.owner ?? null, within: chain }
}

/** The title of a context: the text of its start, or the last segment of its path. */
export function titleOf(context: Context): string {
  if (context.start?.erased) return words.spaces.step.erased
  const text = context.start ? textOf(context.start) || (textAt(context.start.payload, "goal") ?? "") : ""
  return text.split("\n", 1)[0]?.slice(0, 300) || context.path.slice(context.path.lastIndexOf("/") + 1)
}

export const isNotice = (envelope: Envelope) => groupOf(envelope.kind) === "notices"

