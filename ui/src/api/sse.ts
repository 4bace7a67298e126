// Parser for server-sent events; any split of the bytes gives the same frames. WHATWG HTML, section 9.2: lines end in
// LF, CR or CRLF, an empty line ends a frame, a line that begins with a colon is a comment, and an unfinished frame at
// the end is discarded.

export interface Frame {
  kind: "frame"
  /** The last event id so far; it applies until a frame sets another one. */
  id: string | null
  event: string
  data: string
}

export interface Comment {
  kind: "comment"
  text: string
}

export class FrameReader {
  private readonly decoder = new TextDecoder("utf-8")
  /** The pieces of the unfinished line; they are joined once. */
  private rest: string[] = []
  private afterCr = false
  private id: string | null = null
  private event = ""
  private data: string[] = []

  feed(bytes: Uint8Array): (Frame | Comment)[] {
    const result: (Frame | Comment)[] = []
    let text = this.decoder.decode(bytes, { stream: true })
    if (text === "") return result
    if (this.afterCr) {
      this.afterCr = false
      if (text.startsWith("\n")) text = text.slice(1)
    }
    let start = 0
    while (true) {
      const end = lineEnd(text, start)
      if (end < 0) break
      this.rest.push(text.slice(start, end))
      this.line(this.rest.length === 1 ? (this.rest[0] ?? "") : this.rest.join(""), result)
      this.rest = []
      start = end + 1
      if (text[end] === "\r") {
        if (start === text.length) this.afterCr = true
        else if (text[start] === "\n") start += 1
      }
    }
    if (start < text.length) this.rest.push(text.slice(start))
    return result
  }

  private line(line: string, result: (Frame | Comment)[]) {
    if (line === "") {
      if (this.data.length > 0) {
        result.push({ kind: "frame", id: this.id, event: this.event || "message", data: this.data.join("\n") })
      }
      this.event = ""
      this.data = []
      return
    }
    const colon = line.indexOf(":")
    if (colon === 0) {
      result.push({ kind: "comment", text: line.slice(1).trim() })
      return
    }
    const field = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1)
    if (field === "data") this.data.push(value)
    else if (field === "event") this.event = value
    else if (field === "id" && !value.includes("\0")) this.id = value
  }
}

function lineEnd(text: string, from: number): number {
  const lf = text.indexOf("\n", from)
  const cr = text.slice(from, lf < 0 ? undefined : lf).indexOf("\r")
  return cr < 0 ? lf : from + cr
}

/** Yield the frames and comments of a response body as they arrive. */
export async function* frames(body: ReadableStream<Uint8Array>): AsyncGenerator<(Frame | Comment)[]> {
  const reader = new FrameReader()
  const bytes = body.getReader()
  try {
    while (true) {
      const { done, value } = await bytes.read()
      if (done) return
      const batch = reader.feed(value)
      if (batch.length > 0) yield batch
    }
  } finally {
    bytes.cancel().catch(() => undefined)
  }
}
