// A growing text: appending takes constant time, and pieces are joined only once.

export class TextBuffer {
  private readonly pieces: string[] = []
  private joined = ""
  private joinedTo = 0
  length = 0

  append(text: string) {
    if (text === "") return
    this.pieces.push(text)
    this.length += text.length
  }

  get text(): string {
    if (this.joinedTo < this.pieces.length) {
      this.joined += this.pieces.slice(this.joinedTo).join("")
      this.joinedTo = this.pieces.length
    }
    return this.joined
  }

  /** At least the last `length` characters (or all), without joining the rest. */
  tail(length: number): string {
    let from = this.pieces.length
    let got = 0
    while (from > 0 && got < length) got += this.pieces[--from]?.length ?? 0
    return this.pieces.slice(from).join("")
  }
}
