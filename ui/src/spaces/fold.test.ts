// The fold: it agrees with the gateway about every context, shows everything once, and does not depend on how it is
// fed.
import { readFileSync } from "node:fs"
import fc from "fast-check"
import { describe, expect, it } from "vitest"

import { readEnvelope } from "./envelope"
import type { Envelope } from "./envelope"
import { Fold, outcomeOf } from "./fold"
import type { Context, Item } from "./fold"
import { picture, makeEnvelope, scripts } from "./testkit"

interface ExpectedTree {
  path: string
  owner: string
  status: string
  start: string | null
  answer: string | null
  led_to: string[]
  steps: (number | ExpectedTree)[]
}

const recorded = JSON.parse(readFileSync("src/spaces/recorded.json", "utf8")) as { envelopes: unknown[]; trees: ExpectedTree[] }[]

function treeOf(context: Context): ExpectedTree {
  return {
    path: context.path,
    owner: context.owner,
    status: context.status,
    start: context.start?.id ?? null,
    answer: context.answer ? answerId(context) : null,
    led_to: [],
    steps: context.steps.flatMap((step): (number | ExpectedTree)[] => (step.type === "context" ? [treeOf(step)] : [step.envelope.seq])),
  }
}

const answerId = ({ answer }: Context) => answer?.envelope.id ?? null

/** The gateway's tree, with each response at its request, as the page shows it. */
function expected(tree: ExpectedTree, home: ReadonlyMap<number, number>, ids: ReadonlyMap<string, string>): ExpectedTree {
  return {
    ...tree,
    led_to: [],
    answer: tree.answer === null ? null : (ids.get(tree.answer) ?? tree.answer),
    steps: tree.steps.flatMap((step): (number | ExpectedTree)[] => (typeof step === "object" ? [expected(step, home, ids)] : home.has(step) ? [] : [step])),
  }
}

function all(items: readonly Item[]): Item[] {
  return items.flatMap((item) => (item.type === "context" ? [item, ...all(item.steps)] : [item]))
}

describe("the page and the gateway", () => {
  it.each(recorded.map((row, index) => [index, row] as const))("agree about conversation %i", (_, row) => {
    const envelopes = row.envelopes.map(readEnvelope).filter((one) => one !== null)
    const fold = Fold.of(envelopes)
    const home = new Map<number, number>()
    const ids = new Map<string, string>()
    for (const { seq, id } of envelopes) {
      const item = fold.find(seq)
      if (item?.type === "envelope" && item.envelope.seq !== seq) {
        home.set(seq, item.envelope.seq)
        ids.set(id, item.envelope.id)
      }
    }
    const roots = fold.main.filter((item) => item.type === "context")
    expect(roots.map(treeOf)).toEqual(row.trees.map((tree) => expected(tree, home, ids)))
  })
})

describe("a fold", () => {
  it("is the same however the envelopes are batched", () => {
    fc.assert(
      fc.property(scripts, fc.nat(), (envelopes, cut) => {
        const at = envelopes.length === 0 ? 0 : cut % envelopes.length
        const fold = Fold.of(envelopes.slice(0, at))
        const before = picture(fold)
        expect(before).toEqual(picture(Fold.of(envelopes.slice(0, at))))
        for (const envelope of envelopes.slice(at)) fold.feed(envelope)
        expect(picture(fold)).toEqual(picture(Fold.of(envelopes)))
      }),
    )
  })

  it("shows each envelope exactly once", () => {
    fc.assert(
      fc.property(scripts, (envelopes) => {
        const fold = Fold.of(envelopes)
        const shown = new Set<Item>(all(fold.main))
        for (const { seq } of envelopes) {
          const item = fold.find(seq)
          expect(item, `${seq}`).toBeDefined()
          expect(shown.has(item as Item), `${seq}`).toBe(true)
        }
        expect(shown.size).toBe(all(fold.main).length)
        const inLanes = [...fold.lanes.values()].flatMap((lane) => all(lane.items))
        expect(new Set(inLanes).size).toBe(inLanes.length)
        for (const item of shown) if (item.type === "context") expect(inLanes).toContain(item)
      }),
    )
  })

  it("counts requests and proposals without an outcome as waiting", () => {
    fc.assert(
      fc.property(scripts, (envelopes) => {
        const fold = Fold.of(envelopes)
        const waiting = all(fold.main).filter((item) => item.type === "envelope" && (outcomeOf(item) === "waiting" || item.proposal?.status === "open"))
        const counted = [...fold.lanes.values()].flatMap((lane) => [...lane.waiting])
        expect(new Set(counted)).toEqual(new Set(waiting))
        const open = [...fold.openContexts].filter((one) => one.parent === null)
        expect(new Set([...fold.lanes.values()].flatMap((lane) => [...lane.open]))).toEqual(new Set(open))
        for (const one of open) expect([one.status, one.ended]).toEqual(["open", null])
      }),
    )
  })

  it("increments the revision of a row when its content changes", () => {
    fc.assert(
      fc.property(scripts, (envelopes) => {
        const fold = new Fold()
        let before = new Map<Item, [number, string]>()
        for (const envelope of envelopes) {
          fold.feed(envelope)
          const now = new Map(all(fold.main).map((item) => [item, [item.rev, shownFields(item)] as [number, string]]))
          for (const [item, [rev, seen]] of now) {
            const was = before.get(item)
            if (was && was[1] !== seen) expect(rev, `${item.key}: ${was[1]} -> ${seen}`).toBeGreaterThan(was[0])
          }
          before = now
        }
      }),
    )
  })
})

/** The fields of an item that its own row shows. */
function shownFields(item: Item): string {
  if (item.type === "envelope") return JSON.stringify([item.response?.seq, item.proposal?.status, item.compressed?.key])
  const { owner, start, status, confidence, count, waiting, conclusion, answer, participants } = item
  return JSON.stringify([owner, start?.seq, status, confidence, count, waiting.size, conclusion?.seq, answer?.key, participants.length])
}

describe("outcomes", () => {
  const fold = (...envelopes: Partial<Envelope>[]) => Fold.of(envelopes.map((one, index) => makeEnvelope({ seq: index + 1, ...one })))

  it("a request waits until its response", () => {
    const requestFields = { id: "r1", kind: "mcp/request", from: "a", context: "s", payload: { method: "tools/call", params: { name: "scan" } } }
    const open = fold({ id: "s", kind: "reasoning/start", from: "a" }, requestFields)
    expect(open.context("s")?.waiting.size).toBe(1)
    const done = fold({ id: "s", kind: "reasoning/start", from: "a" }, requestFields, { kind: "mcp/response", from: "t", correlation: ["r1"], payload: { error: { message: "no" } } })
    const request = done.find(2)
    expect(request?.type === "envelope" && outcomeOf(request)).toBe("failed")
    expect(done.find(3)).toBe(request)
    expect(done.context("s")?.waiting.size).toBe(0)
  })

  it("a proposal is approved by a request, rejected, or withdrawn", () => {
    const proposal = { id: "p", kind: "mcp/proposal", from: "a", payload: { method: "tools/call", params: { name: "deploy" } } }
    for (const [kind, status] of [["mcp/request", "fulfilled"], ["mcp/reject", "rejected"], ["mcp/withdraw", "withdrawn"]] as const) {
      const item = fold(proposal, { kind, from: "b", correlation: ["p"] }).find(1)
      expect(item?.type === "envelope" && item.proposal?.status).toBe(status)
    }
  })

  it("an answer is linked to its reasoning by the trigger, the start or the label", () => {
    for (const about of ["q", "s"]) {
      const page = fold({ id: "q", from: "mara" }, { id: "s", kind: "reasoning/start", from: "a", correlation: ["q"] }, { kind: "reasoning/conclusion", from: "a", context: "s" }, { id: "x", from: "a", correlation: [about] })
      const answer = page.find(4)
      expect(answer?.type === "envelope" && answer.origins.map(({ path }) => path)).toEqual(["s"])
      expect(page.context("s")?.answer).toBe(answer)
    }
  })

  it("a thought that summarizes others hides them", () => {
    const page = fold(
      { id: "s", kind: "reasoning/start", from: "a" },
      { id: "t1", kind: "reasoning/thought", from: "a", context: "s" },
      { id: "t2", kind: "reasoning/thought", from: "a", context: "s" },
      { id: "t3", kind: "reasoning/thought", from: "a", context: "s", payload: { metadata: { compresses: ["t1", "t2", "nobody"] } } },
    )
    const [one, , whole] = [2, 3, 4].map((seq) => page.find(seq))
    expect(whole?.type === "envelope" && whole.compresses).toBe(2)
    expect(one?.type === "envelope" && one.compressed).toBe(whole)
  })

  it("a history may begin in the middle", () => {
    const page = fold({ kind: "reasoning/thought", from: "a", context: "old/deep" }, { kind: "reasoning/conclusion", from: "a", context: "old/deep", payload: { message: "So." } }, { kind: "reasoning/conclusion", from: "b", context: "gone" })
    expect(page.context("old/deep")?.status).toBe("concluded")
    expect(page.context("gone")?.status).toBe("concluded")
  })
})
