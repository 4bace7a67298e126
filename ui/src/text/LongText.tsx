// Reasoning text of up to a megabyte, rendered in chunks: the browser lays out only those near the visible area, and
// only the last one is rendered again while the text grows.
import { memo, useMemo, useRef } from "react"
import type { ReactNode } from "react"

import { cutChunks, NO_CHUNKS } from "./chunks"
import type { Chunk } from "./chunks"
import { readLines, readSpans } from "./reasoningMarkdown"
import type { Line } from "./reasoningMarkdown"
import { visible } from "./visible"

interface Props {
  text: string
  /** The text is still being written. */
  streaming?: boolean
}

function spans(text: string): ReactNode {
  return readSpans(text).map((span, key) => {
    const shown = visible(span.text)
    if (span.kind === "strong") return <strong key={key}>{shown}</strong>
    if (span.kind === "em") return <em key={key}>{shown}</em>
    if (span.kind === "code") return <code key={key} className="code-span" dir="ltr">{shown}</code>
    return <span key={key}>{shown}</span>
  })
}

function draw(line: Line, key: number): ReactNode {
  switch (line.kind) {
    case "heading":
      return <p key={key} className="long-text__heading" dir="auto">{spans(line.text)}</p>
    case "item":
      return (
        <p key={key} className={`long-text__item long-text__item--${line.depth}`} dir="auto">
          <span className="long-text__sign">{line.sign} </span>
          {spans(line.text)}
        </p>
      )
    case "quote":
      return <p key={key} className="long-text__quote" dir="auto">{spans(line.text)}</p>
    case "code":
      return <pre key={key} className="long-text__code" dir="ltr">{visible(line.text)}</pre>
    case "paragraph":
      return <p key={key} dir="auto">{spans(line.text)}</p>
  }
}

/** Close open emphasis and code for the moment, so that no markup flickers. */
function closed(text: string): string {
  const line = text.slice(text.lastIndexOf("\n") + 1)
  if ((line.match(/`/g)?.length ?? 0) % 2 === 1) return `${text}\``
  if ((line.match(/\*\*/g)?.length ?? 0) % 2 === 0) return text
  return line.endsWith("**") ? text.slice(0, -2) : `${text.replace(/\*$/, "")}**`
}

const Piece = memo(
  function Piece({ piece, growing, only }: { piece: Chunk; growing: boolean; only: boolean }) {
    const lines = readLines(growing && !piece.fenced ? closed(piece.text) : piece.text, piece.fenced)
    return <div className={only ? "long-text__chunk long-text__chunk--only" : "long-text__chunk"}>{lines.map(draw)}</div>
  },
  (a, b) => a.piece.text === b.piece.text && a.piece.fenced === b.piece.fenced && a.growing === b.growing && a.only === b.only,
)

export const LongText = memo(function LongText({ text, streaming = false }: Props) {
  const known = useRef<readonly Chunk[]>(NO_CHUNKS)
  const chunks = useMemo(() => {
    known.current = cutChunks(known.current, text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text)
    return known.current
  }, [text])
  return (
    <div className={streaming ? "long-text long-text--streaming" : "long-text"}>
      {chunks.map((piece, index) => (
        <Piece key={index} piece={piece} growing={streaming && index === chunks.length - 1} only={chunks.length === 1} />
      ))}
    </div>
  )
})
