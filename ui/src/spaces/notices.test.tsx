// Notices: erased content, presence, withdrawn proposals, cancelled requests, and who else is present.
import { describe, expect, it } from "vitest"

import { draw } from "../text/draw.testkit"
import { presenceLines } from "./presence"
import { ContextHead } from "./ContextHead"
import { readEnvelope } from "./envelope"
import { Fold, outcomeOf } from "./fold"
import type { EnvelopeItem } from "./fold"
import { RoomContext } from "./room"
import type { Room } from "./room"
import { ActionMessage, Message, Notice, Step } from "./Step"
import { ParticipantBar } from "./ParticipantBar"
import { makeEnvelope } from "./testkit"

function itemAt(fold: Fold, seq: number): EnvelopeItem {
  const item = fold.find(seq)
  if (item?.type !== "envelope") throw new Error("it is not there")
  return item
}

describe("erased content", () => {
  it("is recognized by its mark if the payload is empty", () => {
    const read = (more: object) => readEnvelope({ kind: "chat", ...more })?.erased
    expect([read({ erased: true, payload: {} }), read({ erased: true }), read({ erased: true, payload: { text: "x" } }), read({ payload: {} }), read({ erased: 1 })]).toEqual([true, true, false, false, false])
  })

  it("is shown as erased, in the conversation and in reasoning", () => {
    const fold = Fold.of([
      makeEnvelope({ seq: 1, erased: true }),
      makeEnvelope({ seq: 2, id: "r", kind: "reasoning/start", erased: true }),
      ...["reasoning/thought", "reasoning/question", "reasoning/hypothesis", "mcp/request", "mcp/proposal", "chat", "reasoning/conclusion"].map((kind, index) => makeEnvelope({ seq: index + 3, kind, context: "r", erased: true })),
      makeEnvelope({ seq: 20, from: "bob" }),
    ])
    expect(draw(<Message item={itemAt(fold, 1)} />).box.textContent).toContain("(erased)")
    for (let seq = 3; seq <= 9; seq++) expect(draw(<Step item={itemAt(fold, seq)} owner="mara" expanded={false} />).box.textContent, `${seq}`).toBe("(erased)")
    const context = fold.context("r")
    if (!context) throw new Error("it is not there")
    const head = draw(<ContextHead context={context} open={false} owner="mara" />).box
    expect([head.querySelector(".context__title")?.textContent, head.querySelector(".context__outcome")?.textContent]).toEqual(["(erased)", "(erased)"])
    expect(draw(<Message item={itemAt(fold, 20)} />).box.textContent).not.toContain("(erased)")
  })
})

describe("presence notices", () => {
  const presence = (id: string, ...events: string[]) => events.map((event, index) => makeEnvelope({ seq: index + 1, from: "system:gateway", kind: "system/presence", payload: { event, participant: { id } } }))
  it.each([
    [presence("a", "join"), ["a joined"]],
    [[...presence("a", "join"), ...presence("b", "join"), ...presence("c", "leave")], ["a, b joined", "c left"]],
    [presence("a", "leave", "join", "leave", "join", "leave", "join"), ["a left and rejoined, 3 times"]],
    [[...presence("a", "leave"), ...presence("b", "join", "leave"), ...presence("a", "join")], ["a left and rejoined", "b joined and left"]],
    [presence("a", "join", "join", "leave", "join"), ["a joined, left and rejoined"]],
    [presence("a", "leave", "join", "leave", "join", "leave"), ["a left, rejoined and left, 2 times"]],
    [presence("a", "invited"), ["a was invited"]],
  ])("are one line for each", (envelopes, lines) => {
    expect(presenceLines(envelopes).map(({ who, action }) => `${who.join(", ")} ${action}`)).toEqual(lines)
    const [last, ...before] = envelopes.toReversed()
    if (!last) throw new Error("there are no envelopes")
    const more = before.toReversed().map((one) => itemAt(Fold.of([one]), one.seq))
    expect(draw(<Notice envelope={last} more={more} />).box.textContent).toBe(lines.join(" · "))
  })
})

it.each([
  ["no_longer_needed", "Withdrawn by mara: it is no longer needed"],
  ["too_many_cooks", "Withdrawn by mara: too many cooks"],
  ["Not today, snake_case", "Withdrawn by mara: Not today, snake_case"],
  [undefined, "Withdrawn by mara"],
])("the reason of a withdrawn proposal is shown as text", (reason, line) => {
  const fold = Fold.of([
    makeEnvelope({ seq: 1, id: "p", kind: "mcp/proposal" }),
    makeEnvelope({ seq: 2, kind: "mcp/withdraw", correlation: ["p"], payload: reason === undefined ? {} : { reason } }),
  ])
  const by = draw(<ActionMessage item={itemAt(fold, 1)} />).box.querySelector(".proposal__outcome")
  for (const mark of by?.querySelectorAll("[aria-hidden]") ?? []) mark.remove()
  expect(by?.textContent).toBe(line)
  // One element, because the parts of a flex line are spaced apart.
  expect(by?.children).toHaveLength(1)
})

describe("a request that its sender cancelled", () => {
  const request = makeEnvelope({ seq: 1, id: "c", kind: "mcp/request", payload: { method: "tools/call" } })
  const cancelled = (from: string) => makeEnvelope({ seq: 2, from, kind: "mcp/request", correlation: ["c"], payload: { method: "notifications/cancelled" } })

  it("is marked as cancelled, and the cancellation is not a step of its own", () => {
    const fold = Fold.of([request, cancelled("mara")])
    expect([outcomeOf(itemAt(fold, 1)), fold.lanes.get("mara")?.waiting.size, fold.main.length, fold.find(2)]).toEqual(["cancelled", 0, 1, fold.find(1)])
    expect(draw(<ActionMessage item={itemAt(fold, 1)} />).box.querySelector(".call__outcome")?.textContent).toBe("Cancelled")
  })

  it("is done if the response arrives later", () => {
    expect(outcomeOf(itemAt(Fold.of([request, cancelled("mara"), makeEnvelope({ seq: 3, from: "bob", kind: "mcp/response", correlation: ["c"] })]), 1))).toBe("done")
  })

  it("is not cancelled by another participant", () => {
    const fold = Fold.of([request, cancelled("bob")])
    expect([outcomeOf(itemAt(fold, 1)), fold.lanes.get("mara")?.waiting.size]).toEqual(["waiting", 1])
  })
})

it("the list of others does not contain the user", () => {
  const participants = ["mara", "bob"].map((id) => ({ id, present: true }))
  const bar = (me: string) => draw(<RoomContext value={{ me } as Room}><ParticipantBar participants={participants as never} lanes={[]} colourOf={() => 0} onPane={() => undefined} /></RoomContext>).box
  expect(bar("mara").querySelector(".participant-bar__others")?.textContent).toBe("also present: bob")
  expect(bar("someone").querySelector(".participant-bar__others")?.textContent).toBe("also present: mara, bob")
})

describe("limits and data streams", () => {
  const line = (kind: string, payload: object, more: object = {}) => draw(<Notice envelope={makeEnvelope({ from: "ada", kind, payload: payload as never, ...more })} />).box.textContent
  const gateway = { from: "system:gateway" }

  it("a limit says how much was said, and what ends the pause", () => {
    const limit = (payload: object, context: string | null = null) => line("system/limit", { message: "agents have used …", ...payload }, { ...gateway, context })
    expect(limit({ limit: "turns", allowed: 1 })).toBe("The agents pause after 1 turn, until someone writes a message.")
    expect(limit({ limit: "tokens", allowed: 20000 }, "r-1")).toBe(`The agents pause after about ${(20000).toLocaleString()} tokens in this line of thought, until someone writes in it.`)
    expect(limit({ limit: "seconds", allowed: 90 })).toBe("The agents pause after 90 seconds of talk, until someone writes a message.")
    for (const wrong of [{ limit: "constructor", allowed: 1 }, { limit: "turns", allowed: "1" }, {}]) expect(limit(wrong)).toBe("The agents pause, until someone writes a message.")
    expect(line("space/renew", { reason: "nearly there" })).toBe("ada let the agents go on talking: nearly there")
  })

  it.each([
    ["request", { description: "build logs" }, {}, "ada asked for a data stream: build logs"],
    ["open", { stream_id: "stream-7", owner: "bob" }, gateway, "bob opened a data stream"],
    ["open", {}, gateway, "someone opened a data stream"],
    ["close", { reason: "complete" }, {}, "ada closed a data stream: complete"],
    ["close", { reason: "disconnected" }, gateway, "A data stream ended, because its owner left"],
    ["close", { reason: "unauthorized" }, gateway, "A data stream ended, because its owner may not use it any more"],
    ["grant-write", { participant_id: "bob" }, {}, "ada let bob write to a data stream"],
    ["revoke-write", { participant_id: "bob" }, {}, "ada ended the right of bob to write to a data stream"],
    ["transfer-ownership", { new_owner: "bob" }, {}, "ada handed a data stream over to bob"],
    ["write-granted", { participant_id: "bob" }, gateway, "bob can write to a data stream"],
    ["write-revoked", { participant_id: "bob" }, gateway, "bob can no longer write to a data stream"],
    ["ownership-transferred", { new_owner: "bob" }, gateway, "A data stream now belongs to bob"],
  ])("stream/%s is a sentence", (name, payload, more, expected) => {
    expect(line(`stream/${name}`, payload, more)).toBe(expected)
  })
})
