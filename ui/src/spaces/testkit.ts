// Conversations for tests: envelopes written by hand, and generated ones.
import fc from "fast-check"

import type { Envelope, Payload } from "./envelope"
import type { Fold, Item } from "./fold"

export const makeEnvelope = (fields: Partial<Envelope>): Envelope => ({
  seq: 1, id: `id-${fields.seq ?? 1}`, ts: (fields.seq ?? 1) * 1000, from: "mara", to: [], audience: [], kind: "chat", correlation: [], context: null, payload: {}, flags: [], erased: false, ...fields,
})

const KINDS = [
  "reasoning/start", "reasoning/start", "reasoning/thought", "reasoning/thought", "reasoning/hypothesis", "reasoning/conclusion", "reasoning/cancel",
  "chat", "chat", "mcp/request", "mcp/response", "mcp/proposal", "mcp/reject", "mcp/withdraw", "system/presence", "something/else",
]
const names = fc.constantFrom("a", "b", "c", "m1", "m2", "m3", "m4", "m5", "label")

const one = fc.record({
  id: names,
  kind: fc.constantFrom(...KINDS),
  from: fc.constantFrom("ada", "bob", "cy", "system:gateway"),
  context: fc.option(fc.array(names, { minLength: 1, maxLength: 3 }).map((parts) => parts.join("/"))),
  correlation: fc.array(names, { maxLength: 2 }),
  payload: fc.constantFrom<Payload>({}, { message: "x" }, { confidence: 0.5 }, { cancelled: true }, { triggered_by: "m1" }, { method: "notifications/cancelled" }, { metadata: { compresses: ["m1", "m2"] } }, { event: "join", participant: { id: "ada" } }),
  after: fc.nat(9_000),
  gap: fc.nat(2),
})

/** Any conversation, in order, with gaps in its numbers. */
export const scripts: fc.Arbitrary<Envelope[]> = fc.array(one, { maxLength: 40 }).map((rows) => {
  let seq = 0
  let ts = 1_700_000_000_000
  return rows.map(({ after, gap, ...row }) => makeEnvelope({ ...row, seq: (seq += 1 + gap), ts: (ts += after) }))
})

const plainItem = (item: Item): unknown =>
  item.type === "envelope"
    ? [item.key, item.response?.seq, item.cancellation?.seq, item.proposal?.status, item.origins.map(({ key }) => key), item.repliesTo?.key, item.compressed?.key]
    : [item.key, item.owner, item.start?.seq, item.status, item.ended, item.confidence, item.count, item.answer?.key, item.ledTo.map(({ key }) => key), item.waiting.size, item.participants, item.steps.map(plainItem)]

/** The state of a fold as plain data. */
export const picture = (fold: Fold): unknown => ({
  at: fold.at,
  now: fold.now,
  main: fold.main.map(plainItem),
  lanes: [...fold.lanes.values()].map((lane) => [lane.id, lane.hasActivity, lane.hasReasoned === lane.items.some((item) => item.type === "context"), lane.open.size, lane.waiting.size, lane.items.map(plainItem)]),
  present: [...fold.present],
})
