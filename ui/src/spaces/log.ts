// The loaded envelopes of a space, in order, without duplicates, and complete between `from` and `to`. (Missing numbers
// in between belong to envelopes that this participant may not see.)
import type { Envelope } from "./envelope"

export type Put = "nothing" | "appended" | "rebuilt"

/** The number of envelopes with a sequence number up to `seq`; `list` is in order. */
export function countUpTo(list: readonly Envelope[], seq: number): number {
  let low = 0
  let high = list.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((list[middle] as Envelope).seq <= seq) low = middle + 1
    else high = middle
  }
  return low
}

export class Log {
  readonly list: Envelope[] = []
  /** The number from which on everything is loaded. 1: from the beginning; Infinity: nothing is loaded. */
  from = Number.POSITIVE_INFINITY
  /** The number up to which everything is loaded. */
  to = 0

  /** Add envelopes in any order. `appended`: all of them come after the existing ones. */
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

  #merge(late: Envelope[]): boolean {
    const here = new Set(this.list.map(({ seq }) => seq))
    const fresh = late.filter(({ seq }) => !here.has(seq) && here.add(seq))
    if (fresh.length === 0) return false
    this.list.push(...fresh)
    this.list.sort((a, b) => a.seq - b.seq)
    return true
  }
}
