// Splits a long text into chunks of some thousand characters, at paragraphs if possible. Only the last chunk can
// change, so the cost of growth is that of one chunk.

export interface Chunk {
  text: string
  /** The line that opened the code fence in which the chunk begins, or an empty string. */
  fence: string
}

const SIZE = 4_000
const MAX_SIZE = 12_000
const FENCES = /^ {0,3}(`{3,}|~{3,})(.*)$/gm
/** The maximum length of a fence's opening line that the next chunk repeats. */
const MAX_FENCE = 60

export const NO_CHUNKS: readonly Chunk[] = []

/** The fence that is open at the end of the chunk. */
function fenceAfter({ text, fence }: Chunk): string {
  let open = fence
  for (const [line, sign = "", rest = ""] of text.matchAll(FENCES)) {
    if (open === "") open = sign[0] === "`" && rest.includes("`") ? "" : line.trim().slice(0, MAX_FENCE)
    else if (rest.trim() === "" && sign[0] === open[0] && sign.length >= (/^(.)\1*/.exec(open)?.[0].length ?? 3)) open = ""
  }
  return open
}

/** The end of the first chunk of `rest`; its length if it is the last chunk. */
function chunkEnd(rest: string): number {
  if (rest.length <= SIZE) return rest.length
  const paragraph = rest.indexOf("\n\n", SIZE)
  if (paragraph !== -1 && paragraph + 2 <= MAX_SIZE) return paragraph + 2
  if (rest.length <= MAX_SIZE) return rest.length
  const line = rest.lastIndexOf("\n", MAX_SIZE - 1)
  if (line >= SIZE) return line + 1
  const space = rest.lastIndexOf(" ", MAX_SIZE - 1)
  if (space >= SIZE) return space + 1
  const code = rest.charCodeAt(MAX_SIZE - 1)
  return code >= 0xd8_00 && code <= 0xdb_ff ? MAX_SIZE - 1 : MAX_SIZE
}

/** The chunks of `text`; unchanged chunks of the previous text are reused. */
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
    const rest = text.slice(at, at + MAX_SIZE + 2)
    const length = at + rest.length < text.length ? Math.min(chunkEnd(rest), MAX_SIZE) : chunkEnd(rest)
    chunks.push({ text: rest.slice(0, length), fence: last ? fenceAfter(last) : "" })
    at += length
  } while (at < text.length)
  return chunks
}
