// The Markdown grammar: GFM by marked, with formulas and without HTML. HTML is plain text here, so no token holds
// markup; tokens are rendered as React elements only.
import { Lexer, Marked, Tokenizer } from "marked"
import type { Links, Token, Tokens } from "marked"

import { LIMITS } from "./limits"

export interface Formula extends Tokens.Generic {
  type: "formula"
  tex: string
  display: boolean
  /** The formula is not closed (yet). */
  open?: boolean
}

class Inert extends Tokenizer {
  override html(): undefined {
    return undefined
  }

  override tag(source: string): Tokens.Tag | undefined {
    const br = /^<br *\/?>/i.exec(source)
    return br ? ({ type: "br", raw: br[0] } as unknown as Tokens.Tag) : undefined
  }

  /** One line only: a line of dashes must not turn several preceding lines into a heading. */
  override lheading(source: string): Tokens.Heading | undefined {
    const heading = super.lheading(source)
    return heading && !heading.text.includes("\n") ? heading : undefined
  }

  override del(source: string, mask: string, previous?: string): Tokens.Del | undefined {
    return source.startsWith("~~") ? super.del(source, mask, previous) : undefined
  }
}

// A formula contains no empty line (TeX does not allow one). An unclosed one ends at the next empty line, so that its
// lines are never parsed as lists or rules while it is written, and the split into blocks stays stable.
const DOLLARS = String.raw`\$\$(?!\$)((?:[^\n$]|\$(?!\$)|\n(?![ \t]*\n))+)`
const BRACKETS = String.raw`\\\[((?:[^\n\\]|\\(?!\])|\n(?![ \t]*\n))+)`
const BLOCK = new RegExp(String.raw`^ {0,3}(?:${DOLLARS}\$\$|${BRACKETS}\\\])[ \t]*(?:\n|$)`)
const OPEN = new RegExp(String.raw`^ {0,3}(?:${DOLLARS}|${BRACKETS})(?=\n[ \t]*\n|\n?$)`)
const INLINE = [
  /^\$\$((?:[^$]|\$(?!\$)){1,4000})\$\$/,
  /^\\\[((?:[^\\]|\\(?!\])){1,4000})\\\]/,
  /^\\\(((?:[^\\]|\\(?!\))){1,4000})\\\)/,
  /^\$(?![\s$]|\d[\d.,]*[kKmM]?,? +[A-Za-z]{2})((?:[^$\\\n`]|\\[\s\S]|\n(?!\n))*?[^\s$\\`]|[^\s$\\`])\$(?![\d$])/,
]

const reader = new Marked({
  gfm: true,
  extensions: [
    {
      name: "formula",
      level: "block",
      start: (source: string) => {
        // This is called for each paragraph, with the whole rest of the text.
        const paragraph = source.slice(0, /\n[ \t]*\n/.exec(source)?.index)
        const at = /\n {0,3}(?:\$\$|\\\[)/.exec(paragraph)?.index
        return at === undefined ? undefined : at + 1
      },
      tokenizer(source: string): Formula | undefined {
        if (!/^ {0,3}(?:\$\$|\\\[)/.test(source)) return undefined
        const whole = BLOCK.exec(source)
        const match = whole ?? OPEN.exec(source)
        const tex = match?.[1] ?? match?.[2]
        return match && tex?.trim() ? { type: "formula", raw: match[0], tex: tex.trim(), display: true, open: !whole } : undefined
      },
    },
    {
      name: "formula",
      level: "inline",
      start: (source: string) => /(?<![\p{L}\p{N}])\$|\\[([]/u.exec(source)?.index,
      tokenizer(source: string): Formula | undefined {
        if (source[0] !== "$" && source[0] !== "\\") return undefined
        for (const [index, rule] of INLINE.entries()) {
          const match = rule.exec(source)
          if (match?.[1]?.trim()) return { type: "formula", raw: match[0], tex: match[1].trim(), display: index < 2 }
        }
        return undefined
      },
    },
  ],
})

function lexer(links?: Links): Lexer {
  const made = new Lexer({ ...reader.defaults, tokenizer: new Inert() })
  if (links) made.tokens.links = links
  return made
}

// Markers of quotes and lists at the beginning of a line, and deep indentation.
const DEEP = new RegExp(`^(?:[ \\t]*(?:>|[-*+](?=[ \\t])|\\d{1,9}[.)](?=[ \\t]))){${LIMITS.depth + 8},}|^[ \\t]{${LIMITS.depth * 8},}(?:>|[-*+] |\\d{1,9}[.)] )`, "m")

/** Whether the text is nested more deeply than the limit. */
function tooDeep(text: string): boolean {
  return DEEP.test(text)
}

/** Parse a text into blocks, without their inline content. Null if it exceeds the limits. */
export function readBlocks(text: string, links?: Links): { tokens: Token[]; links: Links } | null {
  if (tooDeep(text)) return null
  try {
    const made = lexer(links)
    const tokens = made.blockTokens(text, [])
    return { tokens, links: made.tokens.links }
  } catch {
    return null
  }
}

/** Signs that may begin or end emphasis, a link or a formula. The time to parse them grows with the square of their number. */
const SIGNS = /[*_~[]|\\[([]/g

const hasTooManySigns = (text: string) => text.length > LIMITS.signs && (text.match(SIGNS)?.length ?? 0) > LIMITS.signs

/** Parse emphasis, code, links and formulas of an inline text. */
export function readInline(text: string, links?: Links): Token[] {
  if (text.length > LIMITS.inline || hasTooManySigns(text)) return [{ type: "text", raw: text, text, escaped: false }]
  try {
    return lexer(links).inlineTokens(text, [])
  } catch {
    return [{ type: "text", raw: text, text, escaped: false }]
  }
}
