// Renders the block tokens of marked as elements. Unchanged items and rows are not rendered again.
import type { Links, Token, Tokens } from "marked"
import { memo, useMemo, useRef } from "react"
import type { CSSProperties, ReactNode } from "react"

import { openFence } from "./split"
import type { Block } from "./split"
import { closeOpenSyntax } from "./closeOpenSyntax"
import { CodeBlock } from "./CodeBlock"
import { FormulaView } from "./FormulaView"
import { readBlocks } from "./grammar"
import type { Formula } from "./grammar"
import { Inline } from "./Inline"
import { LIMITS } from "./limits"
import { useNear } from "./useNear"
import { direction, visible } from "./visible"
import { words } from "../words"

const GRAPHEMES = new Intl.Segmenter()

export function Plain({ text }: { text: string }) {
  const source = text.trimEnd()
  if (source.length <= LIMITS.slice) return <p className="text-plain" dir="auto">{visible(source)}</p>
  return <>{slicesOf(source).map((slice, index) => <p key={index} className="text-plain text-plain--slice" dir="auto">{visible(slice)}</p>)}</>
}

/** The pieces of a long source, cut after lines if possible, or else between words. */
export function slicesOf(source: string): string[] {
  const slices: string[] = []
  for (let at = 0; at < source.length; ) {
    let end = Math.min(source.length, at + LIMITS.slice)
    if (end < source.length) {
      const line = source.lastIndexOf("\n", end - 1)
      if (line > at) end = line + 1
      else end = cutInLine(source, at)
    }
    slices.push(source.slice(at, end).replace(/\n$/, ""))
    at = end
  }
  return slices
}

/** The end of a slice that has no line end: after a space, or else between two characters as a reader sees them. */
function cutInLine(source: string, at: number): number {
  // Each cut ends a line, so there are fewer.
  const end = at + LIMITS.sliceOfLine
  if (end >= source.length) return source.length
  const line = source.indexOf("\n", at)
  if (line !== -1 && line < end) return line + 1
  const from = end - LIMITS.word
  const space = source.lastIndexOf(" ", end - 1)
  if (space > from) return space + 1
  let border = /[\uD800-\uDBFF]/.test(source[end - 1] ?? "") ? end - 1 : end
  for (const { index } of GRAPHEMES.segment(source.slice(from, end + LIMITS.word))) if (index > 0 && from + index <= end) border = from + index
  return border
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

const isTooWide = (table: Tokens.Table) => table.rows.length * table.header.length > LIMITS.cells

/** The first rows of a table, and the blocks with more of them. */
function Table({ table, links, rest, growing }: { table: Tokens.Table; links: Links; rest: readonly Block[]; growing: boolean }) {
  if (isTooWide(table)) return <CodeBlock code={[table.raw, ...rest.map(({ raw }) => raw)].join("").trimEnd()} language="" />
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
        {rest.map((block, index) => (
          <MoreRows key={index} block={block} links={links} columns={table.header.length} growing={growing && index === rest.length - 1} />
        ))}
      </table>
    </section>
  )
}

/** More rows of a table: one line of source for each as long as they were never near the visible area. */
const MoreRows = memo(
  function MoreRows({ block, links, columns, growing }: { block: Block; links: Links; columns: number; growing: boolean }) {
    const body = useRef<HTMLTableSectionElement>(null)
    const near = useNear(body, false)
    const source = (block.head ?? "") + block.raw
    const table = useMemo(() => (near ? readBlocks(growing ? closeOpenSyntax(source) : source, links)?.tokens.find(isTable) : undefined), [near, source, links, growing])
    return (
      <tbody ref={body}>
        {table && !isTooWide(table) ? (
          table.rows.map((cells, index) => <Row key={index} cells={cells} links={links} head={false} />)
        ) : (
          <tr>
            <td className="table__source" colSpan={columns}><div className="table__lines" style={{ "--lines": block.raw.trim().split("\n").length } as CSSProperties}>{visible(block.raw.trim())}</div></td>
          </tr>
        )}
      </tbody>
    )
  },
  (a, b) => a.block.raw === b.block.raw && a.block.head === b.block.head && a.links === b.links && a.columns === b.columns && a.growing === b.growing,
)

const isTable = (token: Token): token is Tokens.Table => token.type === "table"

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
      return <Table key={key} table={token as Tokens.Table} links={links} rest={[]} growing={false} />
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
  /** More blocks of the table, and whether the last one is being written. */
  rest?: readonly Block[]
  growing?: boolean
}

export function Blocks({ tokens, links, depth = 0, tight = false, rest, growing }: Props) {
  if (depth > LIMITS.depth) return <Plain text={tokens.map((token) => token.raw).join("")} />
  return (
    <>
      {tokens.map((token, index) =>
        rest && isTable(token) ? <Table key={index} table={token} links={links} rest={rest} growing={growing ?? false} /> : block(token, index, links, depth, tight),
      )}
    </>
  )
}
