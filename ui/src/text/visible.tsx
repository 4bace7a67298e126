// Makes invisible characters visible: control characters, overrides of the writing direction and tags, which can make a
// text look different from what it is. Characters that scripts and emoji need (joiners, LRM, RLM) are kept.
import type { ReactNode } from "react"
import { words } from "../words"

// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u202A-\u202E\u2066-\u2069\u206A-\u206F\uFFF9-\uFFFB\u{E0001}-\u{E007F}]/u
const RUNS = new RegExp(`(${HIDDEN.source})\\1*`, "gu")
const EACH = new RegExp(HIDDEN.source, "gu")
/** The maximum number of named characters in one text; later ones are only replaced. */
const MAX_NAMED = 200
// The flag of a region (England, Scotland …) is a black flag followed by tags.
const FLAG = /\u{1F3F4}[\u{E0020}-\u{E007E}]{2,8}\u{E007F}/gu

function mark(run: string, key: number): ReactNode {
  const character = String.fromCodePoint(run.codePointAt(0) ?? 0)
  const times = run.length / character.length
  const code = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")
  return (
    <span key={key} className="text-hidden" title={`U+${code}${words.text.hidden[code] ? `, ${words.text.hidden[code]}` : ""}`}>
      {`U+${code}${times > 1 ? ` ×${times}` : ""}`}
    </span>
  )
}

/** The text with all hidden characters made visible; the same string if it has none. */
export function visible(text: string): ReactNode {
  if (!HIDDEN.test(text)) return text
  const flags = new Set<number>()
  for (const match of text.matchAll(FLAG)) {
    for (let at = match.index; at < match.index + match[0].length; at++) flags.add(at)
  }
  const nodes: ReactNode[] = []
  let from = 0
  let named = 0
  for (const match of text.matchAll(RUNS)) {
    if (flags.has(match.index)) continue
    if (++named > MAX_NAMED) return [...nodes, text.slice(from).replace(EACH, "\uFFFD")]
    if (match.index > from) nodes.push(text.slice(from, match.index))
    nodes.push(mark(match[0], match.index))
    from = match.index + match[0].length
  }
  if (from < text.length) nodes.push(text.slice(from))
  return nodes
}

/** The text without hidden characters, for titles and labels. */
export function plain(text: string): string {
  return HIDDEN.test(text) ? text.replace(EACH, "") : text
}

const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}\p{Script=Mandaic}\p{Script=Samaritan}]/u

/**
 * The direction of an element that holds several texts, by its first letter. (dir="auto" does not look into elements
 * that have their own direction.)
 */
export function direction(text: string): "ltr" | "rtl" {
  const letter = /\p{L}/u.exec(text)?.[0]
  return letter && RIGHT_TO_LEFT.test(letter) ? "rtl" : "ltr"
}
