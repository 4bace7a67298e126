// What the gateway adds to envelopes is shown: flags with their reason as plain text, and who alone may read.
import { expect, it } from "vitest"

import { draw } from "../text/draw.testkit"
import { ContextHead } from "./ContextHead"
import type { Flag } from "./envelope"
import { Fold } from "./fold"
import type { Context, EnvelopeItem } from "./fold"
import { ActionMessage, Message, Step } from "./Step"
import { makeEnvelope } from "./testkit"

const late: Flag = { code: "after_end", message: "context 'r' has ended <b>\u202ex</b>" }
const marks = (box: HTMLElement) => [...box.querySelectorAll<HTMLElement>("[data-testid=flag]")]

function itemAt(fold: Fold, seq: number): EnvelopeItem {
  const item = fold.find(seq)
  if (item?.type !== "envelope") throw new Error("it is not there")
  return item
}

it("a thought, a message and a call show their flags, and those of the response", () => {
  const fold = Fold.of([
    makeEnvelope({ seq: 1, id: "r", kind: "reasoning/start", flags: [{ code: "unknown_reference", message: "nothing is called 'x'" }] }),
    makeEnvelope({ seq: 2, kind: "reasoning/thought", context: "r", payload: { message: "Late." }, flags: [late, { code: "other", message: "more" }] }),
    makeEnvelope({ seq: 3, kind: "chat", payload: { text: "A word." }, flags: [late] }),
    makeEnvelope({ seq: 4, id: "call", kind: "mcp/request", payload: { method: "tools/list" } }),
    makeEnvelope({ seq: 5, kind: "mcp/response", correlation: ["call"], from: "ada", flags: [late] }),
    makeEnvelope({ seq: 6, kind: "chat", payload: { text: "Nothing about it." } }),
  ])
  const [thought, second] = marks(draw(<Step item={itemAt(fold, 2)} owner="mara" expanded={false} />).box)
  expect(thought?.dataset["code"]).toBe("after_end")
  expect(thought?.textContent).toContain("Flagged: context 'r' has ended <b>")
  expect(thought?.textContent).not.toContain("\u202e")
  expect(thought?.querySelector("b")).toBeNull()
  expect(second?.textContent).toBe("⚑ Flagged: more")
  expect(marks(draw(<Message item={itemAt(fold, 3)} />).box)).toHaveLength(1)
  expect(marks(draw(<ActionMessage item={itemAt(fold, 4)} />).box)).toHaveLength(1)
  expect(marks(draw(<Message item={itemAt(fold, 6)} />).box)).toHaveLength(0)
  const context = fold.context("r")
  if (!context) throw new Error("it is not there")
  expect(marks(draw(<ContextHead context={context} open={false} owner="mara" />).box)[0]?.textContent).toContain("nothing is called 'x'")
})

it("a reasoning shows its readers, a thought those that it had before a share, and the share whom it adds", () => {
  const [few, all] = [["ada", "mara"], ["ada", "mara", "<b>\u202eev"]]
  const fold = Fold.of([
    makeEnvelope({ seq: 1, id: "r", kind: "reasoning/start", to: ["ada"] }),
    makeEnvelope({ seq: 2, kind: "reasoning/thought", context: "r", audience: few }),
    makeEnvelope({ seq: 3, kind: "reasoning/share", context: "r", audience: all, payload: { participants: ["<b>\u202eev"] } }),
    makeEnvelope({ seq: 4, kind: "reasoning/thought", context: "r", audience: all }),
    makeEnvelope({ seq: 5, id: "open", kind: "reasoning/start" }),
    makeEnvelope({ seq: 6, kind: "reasoning/thought", context: "open" }),
    makeEnvelope({ seq: 7, id: "named", kind: "reasoning/start", to: ["ada", "mara"] }),
    makeEnvelope({ seq: 8, kind: "reasoning/thought", context: "named", to: ["ada"] }),
  ])
  const step = (seq: number) => draw(<Step item={itemAt(fold, seq)} owner="mara" expanded={false} />).box
  const head = (name: string) => draw(<ContextHead context={fold.context(name) as Context} open owner="mara" />).box
  const mark = (box: HTMLElement) => box.querySelector("[data-testid=audience]")?.textContent
  expect(mark(head("r"))).toMatch(/^for ada, mara, <b>[^\u202e]*ev only$/)
  expect([2, 3, 4, 6].map((seq) => mark(step(seq)))).toEqual(["for ada, mara only", undefined, undefined, undefined])
  expect(step(3).textContent).toMatch(/^From here on, <b>[^\u202e]*ev can read this, too\.$/)
  expect(mark(head("open"))).toBeUndefined()
  expect(mark(head("named"))).toBe("for mara, ada only")
})
