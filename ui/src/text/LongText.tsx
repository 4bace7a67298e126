// Reasoning text of up to a megabyte, as Markdown like an answer. It is rendered in chunks: one that was never near the
// visible area is its plain source, the browser lays out only those near it, and only the last one is parsed again while
// the text grows.
import { memo, useContext, useMemo, useRef } from "react"

import { cutChunks, NO_CHUNKS } from "./chunks"
import type { Chunk } from "./chunks"
import { Markdown } from "./Markdown"
import { TextRoleContext } from "./role"
import { useNear } from "./useNear"
import { visible } from "./visible"

interface Props {
  text: string
  /** The text is still being written. */
  streaming?: boolean
}

/** Chunks at the beginning that are rendered at once, because the reader sees them first. */
const FIRST = 2

const ITEM = /^ {0,3}(?:[-*+]|\d{1,9}[.)])[ \t]/
/** The beginning of a line that is another item, may become one, or belongs to the item. */
const NO_TEXT = /^(?:[ \t]|$|[-*+|>#`~=]|\d{1,9}(?:[.)]|$))/

/**
 * Thoughts are written line by line: a line after a list is not part of its last item, as it would be in Markdown. In
 * a chunk with code nothing changes.
 */
export function endLists(text: string): string {
  if (/^ {0,3}(?:```|~~~)/m.test(text)) return text
  let inItem = false
  return text
    .split("\n")
    .map((line) => {
      const ends = inItem && !ITEM.test(line) && !NO_TEXT.test(line)
      if (ITEM.test(line)) inItem = true
      else if (ends || line.trim() === "") inItem = false
      return ends ? `\n${line}` : line
    })
    .join("\n")
}

interface PieceProps {
  piece: Chunk
  index: number
  growing: boolean
  only: boolean
}

const Piece = memo(
  function Piece({ piece, index, growing, only }: PieceProps) {
    const box = useRef<HTMLDivElement>(null)
    // A chunk that was the last one stays rendered.
    const near = useNear(box, growing || index < FIRST)
    const own = endLists(piece.text)
    const text = piece.fence === "" ? own : `${piece.fence}\n${piece.text}`
    return (
      <div ref={box} className={only ? "long-text__chunk long-text__chunk--only" : "long-text__chunk"}>
        {near ? <Markdown text={text} streaming={growing} /> : <p className="text-plain" dir="auto">{visible(piece.text.trimEnd())}</p>}
      </div>
    )
  },
  (a, b) => a.piece.text === b.piece.text && a.piece.fence === b.piece.fence && a.growing === b.growing && a.only === b.only,
)

export const LongText = memo(function LongText({ text, streaming = false }: Props) {
  const role = useContext(TextRoleContext)
  const known = useRef<readonly Chunk[]>(NO_CHUNKS)
  const chunks = useMemo(() => {
    known.current = cutChunks(known.current, text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text)
    return known.current
  }, [text])
  return (
    <div className="long-text">
      <TextRoleContext value={role === "overlay" ? role : "thought"}>
        {chunks.map((piece, index) => (
          <Piece key={index} piece={piece} index={index} growing={streaming && index === chunks.length - 1} only={chunks.length === 1} />
        ))}
      </TextRoleContext>
    </div>
  )
})
