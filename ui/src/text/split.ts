// Splits a growing Markdown text into blocks. The beginning of a block may turn out to continue the previous one, and
// that one too; but a block that REACH others follow is final, so only the text after it is parsed again. The raw texts
// of the blocks, joined, are the text.
import type { Links } from "marked"

import { readBlocks } from "./grammar"
import { LIMITS } from "./limits"

export interface Block {
  start: number
  raw: string
  /** Too deep or too long to parse: shown as source. */
  plain: boolean
}

export interface Split {
  text: string
  blocks: readonly Block[]
  /** Link reference definitions; a new object when there is a new one. */
  links: Links
}

const REACH = 3

export const EMPTY_SPLIT: Split = { text: "", blocks: [], links: {} }

const FENCE = /^ {0,3}(`{3,}(?=[^`\n]*(?:\n|$))|~{3,})/

/**
 * Whether the block is a fence that is open at its end. A fence ends with the first line that closes it, so only its
 * last line counts.
 */
export function openFence(raw: string): boolean {
  const fence = FENCE.exec(raw.slice(0, 1_000))?.[1]
  if (!fence) return false
  const last = /\n {0,3}(`{3,}|~{3,})$/.exec(raw.trimEnd().slice(-300))?.[1]
  return !(last && last[0] === fence[0] && last.length >= fence.length)
}

function cut(text: string, start: number, links: Links): { blocks: Block[]; links: Links } {
  const read = readBlocks(text)
  if (!read) return cutPlain(text, start, links)
  const blocks: Block[] = []
  let at = 0
  for (const token of read.tokens) {
    // What was parsed is as long as the token's raw text, although white space at its end may differ.
    const raw = text.slice(at, at + token.raw.length)
    if (raw.trimEnd() !== token.raw.trimEnd()) return cutPlain(text, start, links)
    const last = blocks.at(-1)
    if (last && (token.type === "space" || last.raw.trim() === "")) last.raw += raw
    else {
      const bounded = token.type === "code" || token.type === "table" || raw.length <= LIMITS.block
      blocks.push({ start: start + at, raw, plain: !bounded })
    }
    at += raw.length
  }
  if (at < text.length) {
    const last = blocks.at(-1)
    if (last) last.raw += text.slice(at)
    else blocks.push({ start, raw: text, plain: false })
  }
  const hasNewLinks = Object.keys(read.links).some((name) => links[name]?.href !== read.links[name]?.href)
  return { blocks, links: hasNewLinks ? { ...links, ...read.links } : links }
}

/**
 * A text that cannot be parsed as a whole is parsed paragraph by paragraph; paragraphs that cannot be parsed stay
 * plain.
 */
function cutPlain(text: string, start: number, links: Links): { blocks: Block[]; links: Links } {
  const end = /\n[ \t]*\n+/.exec(text)
  if (!end || end.index + end[0].length >= text.length) return { blocks: [{ start, raw: text, plain: true }], links }
  const blocks: Block[] = []
  let at = 0
  let known = links
  for (const piece of text.split(/(?<=\n[ \t]*\n+)(?=[^\n])/)) {
    const read = readBlocks(piece) ? cut(piece, start + at, known) : null
    if (read) {
      known = read.links
      blocks.push(...read.blocks)
    } else {
      const last = blocks.at(-1)
      if (last?.plain && last.raw.length < LIMITS.block) last.raw += piece
      else blocks.push({ start: start + at, raw: piece, plain: true })
    }
    at += piece.length
  }
  return { blocks, links: known }
}

/**
 * Whether `text` continues `before`. While it grows, only both ends are compared: a full comparison of a megabyte is
 * slow.
 */
function continues(before: string, text: string, growing: boolean): boolean {
  if (!growing || before.length < 1_000) return text.startsWith(before)
  const at = before.length - 500
  return text.startsWith(before.slice(0, 200)) && text.startsWith(before.slice(at), at)
}

/** The blocks of `text`, reusing those of the text that it continues. */
export function continueSplit(before: Split, text: string, growing = false): Split {
  if (text === before.text) return before
  const last = before.blocks.at(-1)
  if (!last || !continues(before.text, text, growing)) return { text, ...cut(text, 0, {}) }
  if (!last.plain && openFence(last.raw)) {
    // Only a fence at the beginning of a line can close an open fence.
    const line = before.text.lastIndexOf("\n") + 1
    if (line > last.start && !/^ {0,3}(?:`|~)/m.test(text.slice(line))) {
      const grown = { ...last, raw: text.slice(last.start) }
      return { text, blocks: [...before.blocks.slice(0, -1), grown], links: before.links }
    }
  }
  const settled = before.blocks.slice(0, -REACH)
  const known = before.blocks.slice(-REACH)
  const from = known[0] ?? last
  const tail = cut(text.slice(from.start), from.start, before.links)
  const blocks = tail.blocks.map((block, index) => {
    const previous = known[index]
    return previous && previous.raw === block.raw && previous.plain === block.plain ? previous : block
  })
  return { text, blocks: [...settled, ...blocks], links: tail.links }
}
