// A Markdown text on one line, as words: without markup, with a word in place of each formula.
import type { Token, Tokens } from "marked"

import { words } from "../words"
import { readBlocks, readInline } from "./grammar"

/** Characters that are read for a line. */
const READ = 600

function inline(tokens: readonly Token[]): string {
  return tokens
    .map((token) => {
      if (token.type === "formula") return words.text.formula
      if (token.type === "br") return " "
      const inner = (token as Tokens.Text).tokens
      return inner?.length ? inline(inner) : ((token as Tokens.Text).text ?? token.raw)
    })
    .join("")
}

function block(token: Token): string {
  switch (token.type) {
    case "hr":
    case "space":
    case "def":
      return ""
    case "formula":
      return words.text.formula
    case "code":
      return (token as Tokens.Code).text
    case "list":
      return (token as Tokens.List).items.map((item) => item.tokens.map(block).join(" ")).join(", ")
    case "table": {
      const { header, rows } = token as Tokens.Table
      return [header, ...rows].map((cells) => cells.map((cell) => inline(readInline(cell.text))).join(" ")).join(", ")
    }
    case "blockquote":
      return (token.tokens ?? []).map(block).join(" ")
    default:
      return inline(readInline((token as Tokens.Text).text ?? token.raw))
  }
}

/** The beginning of a Markdown text on one line. */
export function lineOf(text: string): string {
  const start = text.slice(0, READ)
  const tokens = readBlocks(start)?.tokens
  return (tokens ? tokens.map(block).join(" ") : start).replace(/\s+/g, " ").trim().slice(0, 200)
}
