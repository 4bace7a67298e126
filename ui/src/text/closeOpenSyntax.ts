// Completes the end of a text that is still being written, so that nothing flickers: closes open emphasis and code,
// shows the text of unfinished links, shows a table from its first row on, hides a single list marker.
import remend from "remend"

const OPTIONS = {
  comparisonOperators: false,
  htmlTags: false,
  images: true,
  inlineKatex: false,
  katex: false,
  linkMode: "text-only",
  singleTilde: false,
} as const

/** A marker of a list, heading, quote or underline that nothing follows yet. */
const LONE = /(^|\n)[ \t]*(?:[-*+]|\d{1,9}[.)]?|#{1,6}|>|=+|-{2,}|\|)[ \t]*$/
const ROW = /^ {0,3}\|[^\n]*$/
const HALF_RULE = /^( {0,3}\|[^\n]*)\n[ \t]*[|:\- \t]*$/
/** A marker of emphasis or code without content. */
const EMPTY = /(^|[\s(])(?:\*{1,3}|_{1,3}|~{1,2}|`{1,2}|!?\[)$/
/** An unclosed formula. */
const HALF_FORMULA = /(?:\$\$|\\\[|\\\()(?:(?!\$\$|\\\]|\\\))[\s\S])*$/

function rule(header: string): string {
  const cells = header.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "").split(/(?<!\\)\|/).length
  return `|${" - |".repeat(cells)}`
}

/** The last block of a growing text, completed for display. */
export function closeOpenSyntax(raw: string): string {
  const text = raw.trimEnd()
  if (ROW.test(text)) return text.length > 1 ? `${text}\n${rule(text)}` : ""
  const half = HALF_RULE.exec(raw)
  if (half?.[1]) return `${half[1]}\n${rule(half[1])}`
  const shown = text.replace(LONE, "$1").replace(EMPTY, "$1")
  if (HALF_FORMULA.test(shown)) return shown
  return remend(shown, OPTIONS)
}
