// The text of an answer as Markdown, live or final. Only the block that is being written is parsed and rendered again.
// The text cannot act: no HTML, scripts or images, and only web and mail links.
import type { Links } from "marked"
import { memo, useMemo, useRef } from "react"

import { continueSplit, EMPTY_SPLIT, openFence } from "./split"
import type { Block, Split } from "./split"
import { Blocks, Plain } from "./Blocks"
import { readBlocks } from "./grammar"
import { LIMITS } from "./limits"
import { useNear } from "./useNear"
import { usePaced } from "./usePaced"
import { closeOpenSyntax } from "./closeOpenSyntax"
import { useReportIncomplete } from "./whole"

interface Props {
  text: string
  /** The text is still being written; its end is completed for the moment. */
  streaming?: boolean
}

interface PieceProps {
  block: Block
  /** The blocks with more rows of the table that begins here. */
  rest: readonly Block[]
  links: Links
  growing: boolean
}

interface GroupProps {
  blocks: readonly Block[]
  links: Links
  /** Its last block is being written. */
  growing: boolean
}

const areSame = (a: readonly Block[], b: readonly Block[]) => a.length === b.length && a.every((block, index) => block === b[index])

const Piece = memo(
  function Piece({ block, rest, links, growing: isGrowing }: PieceProps) {
    const growing = isGrowing && rest.length === 0
    const source = block.raw
    // A paragraph above the limit is shown as source, so its end needs no completion.
    const isOpen = growing && !block.plain && source.length <= LIMITS.inline && !openFence(source)
    const shown = isOpen ? closeOpenSyntax(source) : source
    const tokens = useMemo(() => (block.plain ? null : readBlocks(shown, links)?.tokens), [shown, links, block.plain])
    return tokens ? <Blocks tokens={tokens} links={links} rest={rest} growing={isGrowing} /> : <Plain text={[block, ...rest].map(({ raw }) => raw).join("")} />
  },
  (a, b) => a.block.raw === b.block.raw && a.block.plain === b.block.plain && areSame(a.rest, b.rest) && a.links === b.links && a.growing === b.growing,
)

/** The blocks as elements, each table as one. */
function Pieces({ blocks, links, growing }: GroupProps) {
  return blocks.map((block, index) => {
    if (index > 0 && block.head !== undefined) return null
    let end = index + 1
    while (blocks[end]?.head !== undefined) end++
    return <Piece key={index} block={block} rest={end > index + 1 ? blocks.slice(index + 1, end) : NONE} links={links} growing={growing && end === blocks.length} />
  })
}

const NONE: readonly Block[] = []

/** Blocks of a very long text: their source as long as they were never near the visible area. */
const Group = memo(
  function Group({ blocks, links, growing }: GroupProps) {
    const box = useRef<HTMLDivElement>(null)
    const near = useNear(box, growing)
    return (
      <div ref={box} className="text__group">
        {near ? (
          <Pieces blocks={blocks} links={links} growing={growing} />
        ) : (
          <Plain text={blocks.map((block) => block.raw).join("")} />
        )}
      </div>
    )
  },
  (a, b) => a.links === b.links && a.growing === b.growing && areSame(a.blocks, b.blocks),
)

/** The blocks that are rendered at once, and groups of the later ones. A table is in one group. */
function groupsOf(blocks: readonly Block[]): (readonly Block[])[] {
  const groups: Block[][] = []
  let limit: { blocks: number; characters: number } = LIMITS.first
  let length = 0
  for (const block of blocks) {
    const last = groups.at(-1)
    // More rows of a table wait by themselves.
    if (last && block.head !== undefined) {
      last.push(block)
      continue
    }
    if (last && last.length < limit.blocks && length < limit.characters) last.push(block)
    else {
      if (last) limit = LIMITS.group
      groups.push([block])
      length = 0
    }
    length += block.raw.length
  }
  return groups
}

export const Markdown = memo(function Markdown({ text, streaming = false }: Props) {
  const known = useRef<Split>(EMPTY_SPLIT)
  const paced = usePaced(text)
  const growing = streaming || paced.length < text.length
  useReportIncomplete(paced.length < text.length)
  const split = useMemo(() => {
    const whole = paced.includes("\r") || paced.includes("\u2028") ? paced.replace(/\r\n?|\u2028|\u2029/g, "\n") : paced
    // The previous result only speeds up the next one, so a discarded render does no harm.
    known.current = continueSplit(known.current, whole, growing)
    return known.current
  }, [paced, growing])
  const [first = [], ...groups] = groupsOf(split.blocks)
  return (
    <div className={streaming ? "text text--streaming" : "text"}>
      <Pieces blocks={first} links={split.links} growing={growing && groups.length === 0} />
      {groups.map((blocks, index) => (
        <Group key={`group-${index}`} blocks={blocks} links={split.links} growing={growing && index === groups.length - 1} />
      ))}
    </div>
  )
})
