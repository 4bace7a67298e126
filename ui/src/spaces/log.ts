// The envelopes of a space that are here, in order, without gap or repeat between the first and the last that were asked
// for. (Numbers that are missing in between are what this reader may not see.)
import type { Envelope } from "./envelope"

export type Put = "nothing" | "appended" | "rebuilt"

export class Log {
  readonly list: Envelope[] = []
  /** From which number on all is here; 1: from the beginning. Infinity: nothing was read yet. */
  from = Number.POSITIVE_INFINITY
  /** Up to which. */
  to = 0

  /** Takes them in, whatever their order. `appended`: all of them come after what was here. */
  put(batch: Iterable<Envelope>): Put {
    let done: Put = "nothing"
    const late: Envelope[] = []
    for (const envelope of batch) {
      if (envelope.seq <= 0) continue
      if (envelope.seq > (this.list.at(-1)?.seq ?? 0)) {
        this.list.push(envelope)
        if (done === "nothing") done = "appended"
      } else {
        late.push(envelope)
      }
    }
    if (late.length > 0 && this.#merge(late)) done = "rebuilt"
    this.to = Math.max(this.to, this.list.at(-1)?.seq ?? 0)
    return done
  }

  /** How many of them have a number up to that. */
  count(seq: number): number {
    let low = 0
    let high = this.list.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.list[middle] as Envelope).seq <= seq) low = middle + 1
      else high = middle
    }
    return low
  }

  #merge(late: Envelope[]): boolean {
    const here = new Set(this.list.map(({ seq }) => seq))
    const fresh = late.filter(({ seq }) => !here.has(seq) && here.add(seq))
    if (fresh.length === 0) return false
    this.list.push(...fresh)
    this.list.sort((a, b) => a.seq - b.seq)
    return true
  }
}
