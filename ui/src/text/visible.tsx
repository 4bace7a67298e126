// Makes invisible characters visible: control characters, overrides of the writing direction, tags, and characters
// without width, which can make a text look different from what it is. Characters are kept where scripts and emoji need
// them: LRM and RLM; joiners, except after Latin letters, digits and signs; the spaces without width between words of
// Thai, Lao, Khmer and Myanmar; one variation selector after a character.
import type { ReactNode } from "react"
import { words } from "../words"

const ALWAYS =
  String.raw`[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u034F\u115F\u1160\u17B4\u17B5\u180E\u202A-\u202E\u2060-\u206F\u3164\uFEFF\uFFA0` +
  String.raw`\uFFF9-\uFFFB\u{1D173}-\u{1D17A}\u{E0001}-\u{E007F}]`
const SPACE = String.raw`(?<![\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}])\u200B`
const JOINER = String.raw`(?<=^|[\u0000-\u024F\u200B-\u200D\u2060\uFEFF])[\u200C\u200D]`
const SELECTOR = String.raw`(?<=^|[\uFE00-\uFE0F\u{E0100}-\u{E01EF}])[\uFE00-\uFE0F\u{E0100}-\u{E01EF}]`
const HIDDEN = new RegExp(`${ALWAYS}|${SPACE}|${JOINER}|${SELECTOR}`, "u")
const EACH = new RegExp(HIDDEN.source, "gu")
/** The maximum number of named characters in one text; later ones are only replaced. */
const MAX_NAMED = 200
// The flag of a region (England, Scotland …) is a black flag followed by tags.
const FLAG = /\u{1F3F4}[\u{E0020}-\u{E007E}]{2,8}\u{E007F}/gu

function mark(character: string, times: number, key: number): ReactNode {
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
  let run = { character: "", from: 0, to: -1 }
  const close = () => {
    if (run.to < 0) return
    if (run.from > from) nodes.push(text.slice(from, run.from))
    nodes.push(mark(run.character, (run.to - run.from) / run.character.length, run.from))
    from = run.to
  }
  for (const { 0: character, index } of text.matchAll(EACH)) {
    if (flags.has(index)) continue
    if (index === run.to && character === run.character) {
      run.to += character.length
      continue
    }
    close()
    if (++named > MAX_NAMED) return [...nodes, text.slice(from).replace(EACH, "\uFFFD")]
    run = { character, from: index, to: index + character.length }
  }
  close()
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
