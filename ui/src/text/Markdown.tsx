// The text of an answer as Markdown, live or final. Only the block that is being written is parsed and rendered again.
// The text cannot act: no HTML, scripts or images, and only web and mail links.
import type { Links } from "marked"
import { memo, useMemo, useRef } from "react"

import { continueSplit, EMPTY_SPLIT, openFence } from "./split"
import type { Block, Split } from "./split"
import { Blocks, Plain } from "./Blocks"
import { readBlocks } from "./grammar"
import { closeOpenSyntax } from "./closeOpenSyntax"

interface Props {
  text: string
  /** The text is still being written; its end is completed for the moment. */
  streaming?: boolean
}

const Piece = memo(
  function Piece({ block, links, growing }: { block: Block; links: Links; growing: boolean }) {
    const shown = growing && !block.plain && !openFence(block.raw) ? closeOpenSyntax(block.raw) : block.raw
    const tokens = useMemo(() => (block.plain ? null : readBlocks(shown, links)?.tokens), [shown, links, block.plain])
    return tokens ? <Blocks tokens={tokens} links={links} /> : <Plain text={block.raw} />
  },
  (a, b) => a.block.raw === b.block.raw && a.block.plain === b.block.plain && a.links === b.links && a.growing === b.growing,
)

export const Markdown = memo(function Markdown({ text, streaming = false }: Props) {
  const known = useRef<Split>(EMPTY_SPLIT)
  const split = useMemo(() => {
    const whole = text.includes("\r") || text.includes("\u2028") ? text.replace(/\r\n?|\u2028|\u2029/g, "\n") : text
    // The previous result only speeds up the next one, so a discarded render does no harm.
    known.current = continueSplit(known.current, whole, streaming)
    return known.current
  }, [text, streaming])
  return (
    <div className={streaming ? "text text--streaming" : "text"}>
      {split.blocks.map((block, index) => (
        <Piece key={index} block={block} links={split.links} growing={streaming && index === split.blocks.length - 1} />
      ))}
    </div>
  )
})
