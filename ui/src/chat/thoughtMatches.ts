// The occurrences of a text in the thoughts of a chat: in the answers, and on the page.
import type { Answer } from "../api/types"

export interface Hit {
  answerId: string
  segmentId: string
  part: number
  /** The number of occurrences in the same part before it. */
  ordinal: number
}

export const MAX_HITS = 1_000

/** A text without the difference of capital and small letters, of the same length. */
export function folded(text: string): string {
  const lower = text.toLowerCase()
  if (lower.length === text.length) return lower
  return Array.from(text, (character) => (character.toLowerCase().length === character.length ? character.toLowerCase() : character)).join("")
}

function* placesOf(text: string, query: string): Generator<number> {
  if (query === "") return
  const whole = folded(text)
  for (let at = whole.indexOf(query); at >= 0; at = whole.indexOf(query, at + query.length)) yield at
}

/** The occurrences in the thoughts of these answers, in the order in which the page shows them. */
export function hitsIn(answers: readonly Answer[], query: string): Hit[] {
  const hits: Hit[] = []
  const sought = folded(query)
  for (const { id, segments } of answers) {
    const thoughts = segments.filter((segment) => segment.type === "reasoning").toSorted((a, b) => a.sequence_number - b.sequence_number)
    for (const { id: segmentId, parts } of thoughts) {
      for (const { summary_index, text } of parts.toSorted((a, b) => a.summary_index - b.summary_index)) {
        let ordinal = 0
        for (const _ of placesOf(text, sought)) {
          if (hits.length >= MAX_HITS) return hits
          hits.push({ answerId: id, segmentId, part: summary_index, ordinal: ordinal++ })
        }
      }
    }
  }
  return hits
}

/** Texts that are no part of a thought: labels, and the source of formulas. */
const SKIPPED = "annotation, button, .code__head, .reasoning__cut"
const BLOCKS = "p,li,td,th,pre,h3,h4,h5,h6,blockquote,math"

/** The occurrences in an element, also across the elements of its text. */
export function rangesIn(element: Element, query: string, most: number): Range[] {
  const sought = folded(query)
  const nodes: { node: Text; start: number }[] = []
  let text = ""
  let block: Element | null = null
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT)
  for (let node = walker.nextNode() as Text | null; node; node = walker.nextNode() as Text | null) {
    if (node.parentElement?.closest(SKIPPED)) continue
    const own = node.parentElement?.closest(BLOCKS) ?? null
    if (own !== block) text += "\n"
    block = own
    nodes.push({ node, start: text.length })
    text += node.data
  }
  const ranges: Range[] = []
  let first = 0
  const point = (at: number): [Text, number] | null => {
    while (first + 1 < nodes.length && (nodes[first + 1]?.start ?? 0) <= at) first++
    const last = nodes[first]
    return last ? [last.node, Math.min(at - last.start, last.node.length)] : null
  }
  for (const at of placesOf(text, sought)) {
    if (ranges.length >= most) break
    const start = point(at)
    const last = point(at + sought.length - 1)
    if (!start || !last || start[1] < 0) continue
    const range = document.createRange()
    range.setStart(...start)
    range.setEnd(last[0], Math.min(last[1] + 1, last[0].length))
    ranges.push(range)
  }
  return ranges
}
