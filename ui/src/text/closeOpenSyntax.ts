// The end of a text that is still being written, made whole for the moment: open emphasis and code are closed, half
// links show their words, a table stands from its first row on, a lone list sign waits. So nothing flickers.
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

/** Signs of a list, a heading, a quote or an underline that nothing follows yet. */
const LONE = /(^|\n)[ \t]*(?:[-*+]|\d{1,9}[.)]?|#{1,6}|>|=+|-{2,}|\|)[ \t]*$/
const ROW = /^ {0,3}\|[^\n]*$/
const HALF_RULE = /^( {0,3}\|[^\n]*)\n[ \t]*[|:\- \t]*$/
/** Signs of emphasis or code of which nothing is emphasised yet. */
const EMPTY = /(^|[\s(])(?:\*{1,3}|_{1,3}|~{1,2}|`{1,2}|!?\[)$/
/** A formula that is not closed yet. */
const HALF_FORMULA = /(?:\$\$|\\\[|\\\()(?:(?!\$\$|\\\]|\\\))[\s\S])*$/

function rule(header: string): string {
  const cells = header.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "").split(/(?<!\\)\|/).length
  return `|${" - |".repeat(cells)}`
}

/** The last block of a growing text, as it should look now. */
export function closeOpenSyntax(raw: string): string {
  const text = raw.trimEnd()
  if (ROW.test(text)) return text.length > 1 ? `${text}\n${rule(text)}` : ""
  const half = HALF_RULE.exec(raw)
  if (half?.[1]) return `${half[1]}\n${rule(half[1])}`
  const shown = text.replace(LONE, "$1").replace(EMPTY, "$1")
  if (HALF_FORMULA.test(shown)) return shown
  return remend(shown, OPTIONS)
}
