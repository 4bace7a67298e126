// A long text in chunks of some thousand characters, cut where a paragraph ends if one does. A chunk that another one
// follows never changes, so a megabyte that grows costs what its last chunk costs.

export interface Chunk {
  text: string
  /** The chunk begins inside a fence of code. */
  fenced: boolean
}

const SIZE = 4_000
const MOST = 12_000
const FENCE = /^ {0,3}(?:```|~~~)/gm

export const NO_CHUNKS: readonly Chunk[] = []

function fencedAfter({ text, fenced }: Chunk): boolean {
  return ((text.match(FENCE)?.length ?? 0) % 2 === 1) !== fenced
}

/** Where the first chunk of `rest` ends; its length where it is the last one. */
function chunkEnd(rest: string): number {
  if (rest.length <= SIZE) return rest.length
  const paragraph = rest.indexOf("\n\n", SIZE)
  if (paragraph !== -1 && paragraph + 2 <= MOST) return paragraph + 2
  if (rest.length <= MOST) return rest.length
  const line = rest.lastIndexOf("\n", MOST - 1)
  if (line >= SIZE) return line + 1
  const space = rest.lastIndexOf(" ", MOST - 1)
  if (space >= SIZE) return space + 1
  const code = rest.charCodeAt(MOST - 1)
  return code >= 0xd8_00 && code <= 0xdb_ff ? MOST - 1 : MOST
}

/** The chunks of `text`; those of the text that it continues are used again. */
export function cutChunks(before: readonly Chunk[], text: string): readonly Chunk[] {
  const chunks: Chunk[] = []
  let at = 0
  for (const known of before.slice(0, -1)) {
    if (!text.startsWith(known.text, at)) break
    chunks.push(known)
    at += known.text.length
  }
  do {
    const last = chunks.at(-1)
    const rest = text.slice(at, at + MOST + 2)
    const length = at + rest.length < text.length ? Math.min(chunkEnd(rest), MOST) : chunkEnd(rest)
    chunks.push({ text: rest.slice(0, length), fenced: last ? fencedAfter(last) : false })
    at += length
  } while (at < text.length)
  return chunks
}
