// Rows under folding, filters and search.
import fc from "fast-check"
import { describe, expect, it } from "vitest"

import { outcomeOf, Fold } from "./fold"
import type { Envelope } from "./envelope"
import type { Context, EnvelopeItem, Item } from "./fold"
import { ALL, discoveryKey, GROUPS, groupOf, laneRows, mainRows, orderedLanes, placeOf, searchableText } from "./rows"
import type { Filter, Row } from "./rows"
import { makeEnvelope, scripts } from "./testkit"

const lanes = (fold: Fold, filter: Filter, folds = new Map<string, boolean>()): Row[] =>
  [...fold.lanes.values()].flatMap((lane) => laneRows(lane.items, filter, folds))

const itemOf = (row: Row): Item => (row.type === "head" ? row.context : row.item)

function contexts(fold: Fold): Context[] {
  const result: Context[] = []
  const look = (items: readonly Item[]) => {
    for (const one of items) {
      if (one.type === "context") {
        result.push(one)
        look(one.steps)
      }
    }
  }
  look(fold.main)
  return result
}

const filters = fc.record({
  view: fc.constantFrom("full", "folded", "main"),
  without: fc.subarray(["ada", "bob"]).map((some) => new Set(some)),
  hidden: fc.subarray([...GROUPS]).map((some) => new Set(some)),
  text: fc.constantFrom("", "x", "ada", "nowhere to be found"),
}) as fc.Arbitrary<Filter>

describe("the rows", () => {
  it("have unique keys, and contain nothing that is filtered out", () => {
    fc.assert(
      fc.property(scripts, filters, (envelopes, filter) => {
        const fold = Fold.of(envelopes)
        for (const rows of [mainRows(fold.main, filter), lanes(fold, filter)]) {
          expect(new Set(rows.map(({ key }) => key)).size).toBe(rows.length)
          for (const row of rows) {
            if (row.type !== "item") continue
            expect(filter.hidden.has(groupOf(row.item.envelope.kind))).toBe(false)
            expect(filter.without.has(row.item.envelope.from)).toBe(false)
            const words = [row.item.envelope, row.item.response].flatMap((one) => (one ? [searchableText(one)] : [])).join()
            expect(words).toContain(filter.text)
          }
        }
      }),
    )
  })

  it("contain everything if all contexts are open, each step below its context", () => {
    fc.assert(
      fc.property(scripts, (envelopes) => {
        const fold = Fold.of(envelopes)
        const all = contexts(fold)
        const folds = new Map<string, boolean>(all.map(({ key }) => [key, true]))
        for (const { seq } of envelopes) folds.set(`${seq}`, true)
        const rows = lanes(fold, ALL, folds)
        const shown = new Set(rows.map(itemOf))
        for (const context of all) {
          expect(shown.has(context)).toBe(true)
          for (const step of context.steps) expect(shown.has(step)).toBe(true)
        }
        const depths = new Map(rows.map((row) => [itemOf(row), row.depth]))
        for (const context of all) for (const step of context.steps) expect(depths.get(step)).toBe((depths.get(context) ?? 0) + 1)
      }),
    )
  })

  it("show items that wait for an action, folded or not", () => {
    fc.assert(
      fc.property(scripts, (envelopes) => {
        const fold = Fold.of(envelopes)
        const rows = lanes(fold, { ...ALL, view: "folded" })
        const shown = new Set(rows.map(itemOf))
        for (const lane of fold.lanes.values()) {
          for (const waiting of lane.waiting) {
            if (waiting.compressed) continue
            expect(outcomeOf(waiting) === "waiting" || waiting.proposal?.status === "open").toBe(true)
            expect(shown.has(waiting), waiting.key).toBe(true)
          }
        }
      }),
    )
  })

  it("contain every item at the place that placeOf returns", () => {
    fc.assert(
      fc.property(scripts, (envelopes) => {
        const fold = Fold.of(envelopes)
        for (const { seq } of envelopes) {
          const target = fold.find(seq) as Item
          const { key, lane, within } = placeOf(target)
          const folds = new Map(within.map((one) => [one.key, true]))
          if (target.type === "envelope" && target.compressed) folds.set(target.compressed.key, true)
          const rows = lane === null ? mainRows(fold.main, ALL) : laneRows(fold.lanes.get(lane)?.items ?? [], ALL, folds)
          const keys = rows.flatMap((row) => [row.key, ...(row.type === "item" ? (row.before ?? []).map((one) => one.key) : [])])
          expect(keys).toContain(key)
        }
      }),
    )
  })

  it("merge consecutive joins into one line", () => {
    const came = (seq: number, id: string) => makeEnvelope({ seq, from: "system:gateway", kind: "system/presence", payload: { event: "join", participant: { id } } })
    const rows = mainRows(Fold.of([came(1, "a"), came(2, "b"), makeEnvelope({ seq: 3 }), came(4, "c")]).main, ALL)
    expect(rows.map((row) => row.type === "item" && (row.before ?? []).length)).toEqual([1, 0, 0])
  })

  it("merge repeated presence of one participant into one line", () => {
    const presence = (seq: number, id: string, event: string) => makeEnvelope({ seq, from: "system:gateway", kind: "system/presence", payload: { event, participant: { id } } })
    const often = Array.from({ length: 60 }, (_, index) => presence(index + 1, "alice", index % 2 === 0 ? "leave" : "join"))
    const rows = mainRows(Fold.of([...often, presence(61, "bob", "invited"), makeEnvelope({ seq: 62 })]).main, ALL)
    expect(rows.map((row) => row.type === "item" && (row.before ?? []).length)).toEqual([59, 0, 0])
  })
})

describe("discovery", () => {
  const request = (seq: number, method: string, from = "ada") => makeEnvelope({ seq, from, kind: "mcp/request", payload: { method } })

  it("is one row for each run, which opens", () => {
    const fold = Fold.of([request(1, "tools/list"), request(2, "resources/list"), request(3, "tools/call"), request(4, "ping"), makeEnvelope({ seq: 5, payload: { text: "tools/list" } })])
    const shown = (folds?: Map<string, boolean>) => mainRows(fold.main, ALL, folds).map((row) => (row.type === "item" && row.discovery ? `${row.discovery.count}` : itemOf(row).key))
    const [first, second] = fold.main as [EnvelopeItem, EnvelopeItem]
    const call = fold.main[2]?.key
    const chat = fold.main[4]?.key
    expect(shown()).toEqual(["2", call, "1", chat])
    expect(shown(new Map([[discoveryKey(first), true]]))).toEqual(["2", first.key, second.key, call, "1", chat])
    expect(shown(new Map([[discoveryKey(second), true]])), "a search result within a run opens it").toEqual(["2", first.key, second.key, call, "1", chat])
  })
})

describe("the lanes", () => {
  it("are ordered by name, whatever came first, and those of people are last", () => {
    const said = [
      makeEnvelope({ seq: 1, from: "amy", kind: "mcp/request", payload: { method: "tools/call" } }),
      makeEnvelope({ seq: 2, from: "zoe-agent", kind: "reasoning/start" }),
      makeEnvelope({ seq: 3, from: "bob-agent", kind: "reasoning/start" }),
    ]
    const order = (fold: Fold) => orderedLanes(fold.lanes.values()).map(({ id }) => id)
    expect(order(Fold.of(said))).toEqual(["bob-agent", "zoe-agent", "amy"])
    expect(order(Fold.of([said[2] as Envelope, said[0] as Envelope, said[1] as Envelope].map((one, index) => ({ ...one, seq: index + 1 }))))).toEqual(["bob-agent", "zoe-agent", "amy"])
  })
})
