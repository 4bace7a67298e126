// What is drawn of a lane or of the conversation: its items as a flat list of rows, by what is folded and filtered. Flat,
// so that only those near the screen need to be drawn, however deep the trees are.
import { alike, personOf } from "./comings"
import { CANCEL, CONCLUSION, entry, familyOf, textAt, wordsOf } from "./envelope"
import type { Envelope } from "./envelope"
import type { Context, Item, Said } from "./fold"

/** `full`: everything. `folded`: a line or two for each context. `main`: the conversation alone. */
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
  const own = entry(GROUP_OF, kind)
  if (own) return own
  const family = familyOf(kind)
  return family === "reasoning" ? "thoughts" : family === "mcp" ? "tools" : family === "chat" ? "chat" : "notices"
}

export interface Filter {
  view: SpaceView
  /** Who is not shown. */
  without: ReadonlySet<string>
  /** What is not shown. */
  hidden: ReadonlySet<Group>
  /** Only what has these words, folded to lower case; empty: everything. */
  text: string
}

export const ALL: Filter = { view: "full", without: new Set(), hidden: new Set(), text: "" }

/** What was folded or opened by hand, by key. */
export type Folds = ReadonlyMap<string, boolean>

export type Row =
  | { type: "head"; key: string; context: Context; depth: number; open: boolean; rev: number }
  | {
      type: "said"
      key: string
      said: Said
      depth: number
      rev: number
      /** Others who came or went right before: one line says it of all. */
      before?: readonly Said[]
    }

/** All the words of an envelope that a reader sees, in lower case. */
export function searched(envelope: Envelope): string {
  return `${envelope.from} ${envelope.kind} ${strings(envelope.payload).join(" ")}`.toLowerCase()
}

function strings(value: unknown, depth = 0): string[] {
  if (typeof value === "string") return [value]
  if (depth > 6 || typeof value !== "object" || value === null) return []
  return Object.values(value).flatMap((one) => strings(one, depth + 1))
}

const matches = (said: Said, text: string) =>
  text === "" || searched(said.envelope).includes(text) || (said.response !== null && searched(said.response).includes(text))

const isHit = (context: Context, text: string) => context.start !== null && searched(context.start).includes(text)

/** Whether a context is open that nobody folded or opened by hand. */
function byItself(context: Context, last: boolean, filter: Filter): boolean {
  if (filter.text !== "") return true
  if (filter.view !== "full") return false
  return context.status === "open" ? true : context.parent === null ? last : true
}

/** The rows of a lane: its contexts as trees. */
export function laneRows(items: readonly Item[], filter: Filter, folds: Folds): Row[] {
  const rows: Row[] = []
  const last = items.findLast((item) => item.type === "context")
  for (const item of items) {
    if (item.type === "said") add(rows, item, 0, filter, folds)
    else grow(rows, item, 0, item === last, filter, folds)
  }
  return rows
}

/** The rows of the conversation: of each context one, which leads to its lane. */
export function mainRows(items: readonly Item[], filter: Filter): Row[] {
  const rows: Row[] = []
  for (const item of items) {
    if (item.type === "said") {
      if (add(rows, item, 0, filter, NO_FOLDS)) gather(rows)
    } else if (filter.view !== "main" && !filter.without.has(item.owner) && (filter.text === "" || isHit(item, filter.text))) {
      rows.push({ type: "head", key: item.key, context: item, depth: 0, open: false, rev: item.rev })
    }
  }
  return rows
}

const NO_FOLDS: Folds = new Map()
const MOST_GATHERED = 100
const MOST_NAMED = 12

/** The last two rows become one where both say that somebody came or went. */
function gather(rows: Row[]): void {
  const [before, last] = rows.slice(-2)
  if (before?.type !== "said" || last?.type !== "said") return
  const [a, b] = [before.said.envelope, last.said.envelope]
  if (!alike(a, b)) return
  const gathered = [...(before.before ?? []), before.said]
  const who = new Set(gathered.map((one) => personOf(one.envelope)))
  if (gathered.length >= MOST_GATHERED || who.add(personOf(b)).size > MOST_NAMED) return
  rows.splice(-2, 2, { ...last, before: gathered, rev: last.rev + gathered.length })
}

function add(rows: Row[], said: Said, depth: number, filter: Filter, folds: Folds): boolean {
  const { envelope } = said
  if (filter.without.has(envelope.from) || filter.hidden.has(groupOf(envelope.kind)) || !matches(said, filter.text)) return false
  if (said.compressed && filter.text === "" && folds.get(said.compressed.key) !== true) return false
  rows.push({ type: "said", key: said.key, said, depth, rev: said.rev })
  return true
}

/** Whether there is anything of it to be seen. */
function grow(rows: Row[], context: Context, depth: number, last: boolean, filter: Filter, folds: Folds): boolean {
  const open = folds.get(context.key) ?? byItself(context, last, filter)
  const place = rows.length
  rows.push({ type: "head", key: context.key, context, depth, open, rev: context.rev })
  let any = false
  if (open) {
    for (const step of context.steps) {
      const shown = step.type === "said" ? add(rows, step, depth + 1, filter, folds) : grow(rows, step, depth + 1, true, filter, folds)
      any = any || shown
    }
  } else {
    // Whatever somebody has to act on is in sight, folded or not.
    for (const said of context.waiting) any = add(rows, said, depth + 1, filter, folds) || any
    // What is folded and has the words is found all the same.
    if (filter.text !== "" && !any) any = holds(context, filter.text)
  }
  if (filter.text !== "" && !any && !isHit(context, filter.text)) {
    rows.length = place
    return false
  }
  return true
}

const holds = (context: Context, text: string): boolean =>
  context.steps.some((step) => (step.type === "said" ? matches(step, text) : isHit(step, text) || holds(step, text)))

/** The key of the row in which an item stands, and those of the contexts that must be open for it to be seen. */
export function placeOf(item: Item): { key: string; lane: string | null; within: Context[] } {
  const chain: Context[] = []
  for (let one = item.type === "said" ? item.context : item.parent; one; one = one.parent) chain.push(one)
  const root = chain.at(-1) ?? (item.type === "context" ? item : null)
  return { key: item.key, lane: root?.owner ?? null, within: chain }
}

/** What a context is called: what its start says, or where it stands. */
export function titleOf(context: Context): string {
  if (context.start?.erased) return "(erased)"
  const said = context.start ? wordsOf(context.start) || (textAt(context.start.payload, "goal") ?? "") : ""
  return said.split("\n", 1)[0]?.slice(0, 300) || context.path.slice(context.path.lastIndexOf("/") + 1)
}

export const isNotice = (envelope: Envelope) => groupOf(envelope.kind) === "notices"

