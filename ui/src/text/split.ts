// Splits a growing Markdown text into blocks. The beginning of a block may turn out to continue the previous one, and
// that one too; but a block that REACH others follow is final, so only the text after it is parsed again. Long lists,
// tables and quotes are cut into several blocks, and a cut is final too, so that what is parsed again is never long. The
// raw texts of the blocks, joined, are the text.
import type { Links, Token, Tokens } from "marked"

import { readBlocks } from "./grammar"
import { LIMITS } from "./limits"

export interface Block {
  start: number
  raw: string
  /** Too deep or too long to parse: shown as source. */
  plain: boolean
  /** The rest of a list, table or quote, which was too long for one block, is the next block. */
  cut?: boolean
  /** The head of the table of which this block has more rows. */
  head?: string
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

type Piece = Omit<Block, "start">

/** What has no place for a cut is cut after any line, as source, and its rest is parsed on its own. */
const isCutAfterLine = (type: string) => type === "list" || type === "blockquote"

/** The two lines with which a table begins. */
const headOf = (table: string) => /^[^\n]*\n[^\n]*\n/.exec(table)?.[0] ?? ""

/** Where a list or table is cut: before items or rows whose first line is complete, and so cannot become anything else. */
function cutsOf(token: Token, raw: string, head: string): number[] {
  const cuts: number[] = []
  let from = 0
  let at = 0
  let weight = 0
  const pass = (part: string, isComplete: boolean, own: number) => {
    if (isComplete && (at - from >= LIMITS.piece || weight >= LIMITS.pieceItems)) {
      cuts.push(at)
      from = at
      weight = 0
    }
    at += part.length
    weight += own
  }
  if (token.type === "list") {
    for (const { raw: item } of (token as Tokens.List).items) pass(item, item.includes("\n"), 1)
  } else if (token.type === "table") {
    const own = (token as Tokens.Table).header.length / 5
    const rows = raw.split(/(?<=\n)/)
    for (const [index, row] of rows.entries()) pass(row, (head !== "" || index > 1) && /\S.*\n/.test(row), own)
  }
  return cuts
}

/** The blocks of a token. They are shorter than `raw` if what follows the last one has to be parsed on its own. */
function piecesOf(token: Token, raw: string, head: string): Piece[] {
  const pieces: Piece[] = []
  const max = isCutAfterLine(token.type) ? LIMITS.pieceMax : LIMITS.block
  const ownHead = token.type === "table" ? head || headOf(raw) : ""
  let from = 0
  for (const to of [...cutsOf(token, raw, head), raw.length]) {
    const piece: Piece = { raw: raw.slice(from, to), plain: token.type !== "code" && token.type !== "table" && to - from > max }
    if (ownHead !== "" && (head !== "" || from > 0)) piece.head = ownHead
    if (to < raw.length) piece.cut = true
    const line = isCutAfterLine(token.type) && piece.plain ? piece.raw.indexOf("\n", max) + 1 : 0
    if (line > 0 && line < piece.raw.length) return [...pieces, { ...piece, raw: piece.raw.slice(0, line), cut: true }]
    pieces.push(piece)
    from = to
  }
  return pieces
}

function cut(text: string, start: number, links: Links, head = ""): { blocks: Block[]; links: Links } {
  const read = readBlocks(head + text)
  if (!read) return cutPlain(text, start, links)
  const hasNewLinks = Object.keys(read.links).some((name) => links[name]?.href !== read.links[name]?.href)
  const known = hasNewLinks ? { ...links, ...read.links } : links
  const blocks: Block[] = []
  let at = 0
  for (const [index, token] of read.tokens.entries()) {
    // What was parsed is as long as the token's raw text, although white space at its end may differ.
    const ownHead = index === 0 ? head : ""
    const source = token.raw.slice(ownHead.length)
    const raw = text.slice(at, at + source.length)
    if (raw.trimEnd() !== source.trimEnd()) return cutPlain(text, start, links)
    const last = blocks.at(-1)
    if (last && token.type === "space") {
      last.raw += raw
      at += raw.length
      continue
    }
    // Empty lines at the beginning belong to the first block.
    const blank = last?.raw.trim() === "" ? (blocks.pop()?.raw ?? "") : ""
    const end = at + raw.length
    for (const [number, piece] of piecesOf(token, raw, ownHead).entries()) {
      const before = number === 0 ? blank : ""
      blocks.push({ start: start + at - before.length, ...piece, raw: before + piece.raw })
      at += piece.raw.length
    }
    if (at < end) {
      const rest = cut(text.slice(at), start + at, known)
      return { blocks: [...blocks, ...rest.blocks], links: rest.links }
    }
  }
  if (at < text.length) {
    const last = blocks.at(-1)
    if (last) last.raw += text.slice(at)
    else blocks.push({ start, raw: text, plain: false })
  }
  return { blocks, links: known }
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
  const final = Math.max(before.blocks.length - REACH, before.blocks.findLastIndex((block) => block.cut) + 1, 0)
  const settled = before.blocks.slice(0, final)
  const known = before.blocks.slice(final)
  const from = known[0] ?? last
  const tail = cut(text.slice(from.start), from.start, before.links, from.head)
  const blocks = tail.blocks.map((block, index) => {
    const previous = known[index]
    return previous && previous.raw === block.raw && previous.plain === block.plain && previous.cut === block.cut ? previous : block
  })
  return { text, blocks: [...settled, ...blocks], links: tail.links }
}
