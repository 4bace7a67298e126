// The subset of Markdown that reasoning uses, parsed line by line in one pass: headings (also a line that is bold as a
// whole, as in providers' summaries), lists, quotes, fences, bold, emphasis and code. Everything else is text.

export type Line =
  | { kind: "heading" | "paragraph" | "quote" | "code"; text: string }
  | { kind: "item"; text: string; sign: string; depth: number }

const HEADING = /^ {0,3}#{1,6}[ \t]+(\S.*?)[ \t#]*$/
const BOLD_LINE = /^[ \t]*\*\*([^*\n]{1,200})\*\*[ \t]*:?[ \t]*$/
const ITEM = /^([ \t]*)([-*+•]|\d{1,9}[.)])[ \t]+(?=\S)/
/** The line that opens or closes a code fence. */
export const FENCE = /^ {0,3}(?:```|~~~)/

export function readLines(text: string, fenced: boolean): Line[] {
  const lines: Line[] = []
  let open = fenced
  let joined = false
  const add = (line: Line, join: boolean) => {
    lines.push(line)
    joined = join
  }
  for (const raw of text.split("\n")) {
    if (FENCE.test(raw)) {
      open = !open
      joined = false
      continue
    }
    const last = lines.at(-1)
    if (open) {
      if (joined && last?.kind === "code") last.text += `\n${raw}`
      else add({ kind: "code", text: raw }, true)
      continue
    }
    if (raw.trim() === "") {
      joined = false
      continue
    }
    const heading = HEADING.exec(raw)?.[1] ?? BOLD_LINE.exec(raw)?.[1]
    if (heading) {
      add({ kind: "heading", text: heading.replace(/^\*\*(.+)\*\*$/, "$1") }, false)
      continue
    }
    const item = ITEM.exec(raw)
    if (item) {
      const depth = Math.min(Math.floor((item[1] ?? "").replaceAll("\t", "    ").length / 2), 4)
      add({ kind: "item", text: raw.slice(item[0].length), sign: /\d/.test(item[2] ?? "") ? (item[2] ?? "") : "•", depth }, true)
      continue
    }
    if (raw.startsWith(">")) {
      const quoted = raw.replace(/^>+[ \t]?/, "")
      if (joined && last?.kind === "quote") last.text += `\n${quoted}`
      else add({ kind: "quote", text: quoted }, true)
      continue
    }
    if (joined && last && last.kind !== "code") last.text += `\n${raw}`
    else add({ kind: "paragraph", text: raw }, true)
  }
  return lines
}

export interface Span {
  kind: "text" | "strong" | "em" | "code"
  text: string
}

// All repetitions are bounded and no two rules begin alike, so parsing takes one pass.
const SPAN = /`([^`\n]{1,400})`|\*\*(?=[^\s*])([^*\n]{1,400}?)\*\*|(?<![\p{L}\p{N}*])\*(?=[^\s*])([^*\n]{1,400}?)\*(?![\p{L}\p{N}*])/gu

/** The maximum number of spans in one paragraph. */
const MAX_SPANS = 400

export function readSpans(text: string): Span[] {
  const spans: Span[] = []
  let from = 0
  for (const match of text.matchAll(SPAN)) {
    if (spans.length >= MAX_SPANS) break
    if (match.index > from) spans.push({ kind: "text", text: text.slice(from, match.index) })
    const [whole, code, strong, em] = match
    if (code !== undefined) spans.push({ kind: "code", text: code })
    else if (strong !== undefined) spans.push({ kind: "strong", text: strong })
    else spans.push({ kind: "em", text: em ?? "" })
    from = match.index + whole.length
  }
  if (from < text.length) spans.push({ kind: "text", text: text.slice(from) })
  return spans
}
