// Renders the block tokens of marked as elements. Unchanged items and rows are not rendered again.
import type { Links, Token, Tokens } from "marked"
import { memo } from "react"
import type { ReactNode } from "react"

import { openFence } from "./split"
import { CodeBlock } from "./CodeBlock"
import { FormulaView } from "./FormulaView"
import type { Formula } from "./grammar"
import { Inline } from "./Inline"
import { LIMITS } from "./limits"
import { direction, visible } from "./visible"
import { words } from "../words"

export function Plain({ text }: { text: string }) {
  const source = text.trimEnd()
  if (source.length <= LIMITS.slice) return <p className="text-plain" dir="auto">{visible(source)}</p>
  return <>{slicesOf(source).map((slice, index) => <p key={index} className="text-plain text-plain--slice" dir="auto">{visible(slice)}</p>)}</>
}

/** The pieces of a long source, cut after lines if possible. */
export function slicesOf(source: string): string[] {
  const slices: string[] = []
  for (let at = 0; at < source.length; ) {
    let end = Math.min(source.length, at + LIMITS.slice)
    if (end < source.length) {
      const line = source.lastIndexOf("\n", end - 1)
      if (line > at) end = line + 1
      // Not within a character.
      else if (/[\uD800-\uDBFF]/.test(source[end - 1] ?? "")) end--
    }
    slices.push(source.slice(at, end).replace(/\n$/, ""))
    at = end
  }
  return slices
}

/** A formula without its end is shown as source. */
function Unfinished({ text }: { text: string }) {
  return <p className="formula__tex" dir="ltr">{visible(text.trim())}</p>
}

const Item = memo(
  function Item({ item, links, depth, loose }: { item: Tokens.ListItem; links: Links; depth: number; loose: boolean }) {
    return (
      <li className={item.task ? "list__item list__item--task" : "list__item"} dir={direction(item.text)}>
        {item.task && <input type="checkbox" checked={item.checked ?? false} disabled aria-label={item.checked ? words.text.done : words.text.toDo} />}
        <Blocks tokens={item.tokens} links={links} depth={depth + 1} tight={!loose} />
      </li>
    )
  },
  (a, b) => a.item.raw === b.item.raw && a.item.checked === b.item.checked && a.links === b.links && a.loose === b.loose,
)

const ALIGN = { left: "cell--left", center: "cell--center", right: "cell--right" } as const

const Row = memo(
  function Row({ cells, links, head }: { cells: Tokens.TableCell[]; links: Links; head: boolean }) {
    const Cell = head ? "th" : "td"
    return (
      <tr>
        {cells.map((cell, index) => (
          <Cell key={index} dir="auto" className={cell.align ? ALIGN[cell.align] : undefined} scope={head ? "col" : undefined}>
            <Inline text={cell.text} links={links} />
          </Cell>
        ))}
      </tr>
    )
  },
  (a, b) =>
    a.links === b.links &&
    a.cells.length === b.cells.length &&
    a.cells.every((cell, index) => cell.text === b.cells[index]?.text && cell.align === b.cells[index]?.align),
)

function Table({ table, links }: { table: Tokens.Table; links: Links }) {
  if (table.rows.length * table.header.length > LIMITS.cells) {
    return <CodeBlock code={table.raw.trimEnd()} language="" />
  }
  return (
    // A scrolling box must be reachable by keyboard.
    <section className="table" tabIndex={0} aria-label={words.text.table}>
      <table dir={direction(table.raw)}>
        <thead>
          <Row cells={table.header} links={links} head />
        </thead>
        <tbody>
          {table.rows.map((cells, index) => (
            <Row key={index} cells={cells} links={links} head={false} />
          ))}
        </tbody>
      </table>
    </section>
  )
}

function block(token: Token, key: number, links: Links, depth: number, tight: boolean): ReactNode {
  switch (token.type) {
    case "space":
    case "def":
    case "checkbox":
      return null
    case "hr":
      return <hr key={key} />
    case "heading": {
      const heading = token as Tokens.Heading
      // The page's own headings are at higher levels.
      const Level = `h${Math.min(heading.depth + 2, 6)}` as "h3"
      return <Level key={key} className={`heading heading--${heading.depth}`} dir="auto"><Inline text={heading.text} links={links} /></Level>
    }
    case "code": {
      const code = token as Tokens.Code
      const language = /^[^\s{,:]*/.exec(code.lang ?? "")?.[0].toLowerCase() ?? ""
      return <CodeBlock key={key} code={code.text} language={language} open={openFence(code.raw)} />
    }
    case "blockquote":
      return <blockquote key={key} dir={direction(token.raw)}><Blocks tokens={token.tokens ?? []} links={links} depth={depth + 1} /></blockquote>
    case "list": {
      const list = token as Tokens.List
      const items = list.items.map((item, index) => <Item key={index} item={item} links={links} depth={depth} loose={list.loose} />)
      if (!list.ordered) return <ul key={key} dir={direction(list.raw)}>{items}</ul>
      return <ol key={key} dir={direction(list.raw)} start={typeof list.start === "number" && list.start !== 1 ? list.start : undefined}>{items}</ol>
    }
    case "table":
      return <Table key={key} table={token as Tokens.Table} links={links} />
    case "formula": {
      const formula = token as Formula
      return formula.open ? <Unfinished key={key} text={formula.raw} /> : <FormulaView key={key} tex={formula.tex} display />
    }
    case "paragraph":
    case "text": {
      const text = (token as Tokens.Paragraph).text
      if (text.length > LIMITS.inline) return <Plain key={key} text={text} />
      if (tight) return <Inline key={key} text={text} links={links} />
      return <p key={key} dir="auto"><Inline text={text} links={links} /></p>
    }
    default:
      return <Plain key={key} text={token.raw} />
  }
}

interface Props {
  tokens: readonly Token[]
  links: Links
  depth?: number
  /** Items of a tight list: their text is not a paragraph. */
  tight?: boolean
}

export function Blocks({ tokens, links, depth = 0, tight = false }: Props) {
  if (depth > LIMITS.depth) return <Plain text={tokens.map((token) => token.raw).join("")} />
  return <>{tokens.map((token, index) => block(token, index, links, depth, tight))}</>
}
