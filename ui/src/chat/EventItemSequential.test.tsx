// Display rules: only the overlay while an answer streams, only the persisted segments afterwards.
import { act } from "react"
import { createRoot } from "react-dom/client"
import type { Root } from "react-dom/client"
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest"

import type { Answer, StreamEvent } from "../api/types"
import { AskingContext } from "../compose/useQuestionFiles"
import { BusContext } from "../stream/hooks"
import { StreamingBus } from "../stream/streamingBus"
import type { PendingAnswer } from "../stream/pendingAnswer"
import { CHAT, EVENT, record } from "../testing/recorded"
import { EventItemSequential } from "./EventItemSequential"
import { CurrencyContext } from "./format"
import { usePanel } from "./ReasoningSegment"

const PLAN = [
  { kind: "reasoning" as const, parts: [["First ", "thought."], ["Second thought."]] },
  { kind: "tool" as const, name: "look", args: "{}", result: "seen", logs: ["a"] },
  { kind: "reasoning" as const, parts: [["Third thought."]] },
  { kind: "text" as const, deltas: ["So ", "it is."] },
]
const ASKING: PendingAnswer = { key: "turn-1", phase: "streaming", conversation_id: CHAT, event_id: EVENT, stopping: false, skew: 0 }

let box: HTMLElement
let root: Root
let bus: StreamingBus
let flushes: (() => void)[] = []

beforeAll(() => usePanel.load())

beforeEach(() => {
  ;(globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true
  box = document.createElement("div")
  document.body.append(box)
  root = createRoot(box)
  flushes = []
  bus = new StreamingBus((flush) => flushes.push(flush))
})

afterEach(() => {
  act(() => root.unmount())
  box.remove()
})

function draw(event?: Answer, pending: PendingAnswer = ASKING) {
  act(() =>
    root.render(
      <BusContext value={bus}>
        <EventItemSequential eventId={EVENT} event={event} pending={event ? undefined : pending} busy={false} last />
      </BusContext>,
    ),
  )
}

function push(events: readonly StreamEvent[]) {
  act(() => {
    for (const event of events) bus.push(event)
    for (const flush of flushes.splice(0)) flush()
  })
}

const all = (id: string) => [...box.querySelectorAll<HTMLElement>(`[data-testid="${id}"]`)]
const words = (id: string) => all(id).map((element) => element.textContent)

const keys = () => [...box.querySelectorAll(".timeline__key")].map((element) => element.textContent)

describe("while the answer streams", () => {
  test("a tool without a result ends with the status text of the persisted row", () => {
    const { events } = record([{ kind: "tool", name: "look", args: "{}", result: "seen", logs: [] }])
    draw()
    push(events.slice(0, -2))
    push([{ type: "tool_call_update", event_id: EVENT, call_id: "call_0", status: "incomplete", progress: null }])
    expect(all("overlay-tool")[0]?.querySelector(".spinner")).toBeNull()
    expect(all("overlay-tool")[0]?.querySelector(".tool__status")?.textContent).toBe("Not finished")
  })

  test("of many calls above a text, one row stands for the earlier ones, as afterwards", () => {
    const call = { kind: "tool" as const, name: "look", args: "{}", result: "seen", logs: [] }
    const { events } = record([{ kind: "text", deltas: ["Now."] }, ...Array.from({ length: 8 }, () => call)])
    const last = events.findLastIndex((event) => event.type === "tool_result")
    const first = events.findIndex((event) => event.type === "tool_result")
    draw()
    push(events.slice(0, last).filter((_, index) => index !== first))
    expect(words("tool-fold")).toEqual(["Calling look 4 more times "])
    push([events[first] as StreamEvent])
    expect(words("tool-fold")).toEqual(["Called look 4 more times "])
    expect(all("overlay-tool").map((row) => row.dataset["callId"])).toEqual(["call_5", "call_6", "call_7", "call_8"])
    expect(box.querySelectorAll(".overlay button")).toHaveLength(0)
  })

  test("an answer that waits for the model to load says so, and nothing about other questions then", () => {
    const show = (id: string, isLoading: boolean, phase: PendingAnswer["phase"]) =>
      act(() =>
        root.render(
          <AskingContext value={{ model: { id, efforts: [], view: "raw", ...(isLoading && { loading: true }) } }}>
            <EventItemSequential eventId={EVENT} event={undefined} pending={{ ...ASKING, phase, body: { text: "q", model: "m" } }} last />
          </AskingContext>,
        ),
      )
    const foot = () => box.querySelector(".answer__foot")?.textContent
    show("m", false, "queued")
    expect(foot()).toBe("Waiting for the model to be free…")
    for (const phase of ["asking", "queued"] as const) {
      show("m", true, phase)
      expect(foot()).toBe("The model is loading…")
    }
    show("m", false, "queued")
    expect(foot()).toBe("")
    expect(all("waiting")).toHaveLength(1)
    // Another model is chosen, and it is not the one that was asked.
    show("other", true, "streaming")
    expect(all("loading")).toHaveLength(0)
  })

  test("nothing is shown before the first event, and there is never a toggle", () => {
    const { events } = record(PLAN)
    draw()
    expect(all("overlay")).toHaveLength(0)
    for (const event of events.slice(0, -1)) {
      push([event])
      expect(all("show-reasoning")).toHaveLength(0)
      expect(all("reasoning-panel")).toHaveLength(0)
      expect(all("tool-segment")).toHaveLength(0)
    }
    expect(all("overlay")).toHaveLength(1)
    expect(box.querySelectorAll(".overlay button")).toHaveLength(0)
  })

  test("each part has a spinner until it is complete; parts and tools are in order", () => {
    const { events } = record(PLAN)
    draw()
    const upTo = events.findIndex((event) => event.type === "reasoning_part_completed")
    push(events.slice(0, upTo))
    expect(words("overlay-part")).toEqual(["First thought."])
    expect(all("part-spinner")).toHaveLength(1)
    // That of the part, and no second one in the head.
    expect(box.querySelectorAll(".spinner")).toHaveLength(1)
    push(events.slice(upTo, -1))
    expect(all("part-spinner")).toHaveLength(0)
    const order = [...box.querySelectorAll<HTMLElement>('[data-testid="overlay-part"], [data-testid="overlay-tool"]')]
    expect(order.map((element) => element.dataset.testid)).toEqual(["overlay-part", "overlay-part", "overlay-tool", "overlay-part"])
    expect(all("overlay-tool")[0]?.dataset.status).toBe("completed")
  })

  test("the text is below the overlay", () => {
    draw()
    push(record(PLAN).events.slice(0, -1))
    const [overlay] = all("overlay")
    const [text] = all("answer-text")
    expect(text?.textContent).toBe("So it is.")
    expect(overlay && text && overlay.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING).toBeTruthy()
  })

  test("an error hides the overlay and shows the message", () => {
    draw()
    push(record(PLAN, "failed").events.slice(0, -1))
    expect(all("overlay")[0]?.className).toContain("overlay--over")
    expect(words("error-state")[0]).toContain("The model broke.")
  })

  test("sealed reasoning is shown as thinking", () => {
    draw()
    push(record([{ kind: "reasoning", parts: [] }]).events.slice(0, -1))
    expect(words("reasoning-overlay")[0]).toContain("Thinking…")
    expect(box.querySelectorAll(".overlay__head > .spinner")).toHaveLength(1)
  })
})

describe("after message_final", () => {
  test("the elements of the answer and its text stay the same, the overlay is removed", () => {
    const { events, final } = record(PLAN)
    draw()
    push(events.slice(0, -1))
    const [answer] = all("assistant-event")
    const paragraph = all("answer-text")[0]?.querySelector("p")
    draw(final)
    bus.clear(EVENT)
    expect(all("assistant-event")[0]).toBe(answer)
    expect(all("answer-text")[0]?.querySelector("p")).toBe(paragraph)
    expect(all("overlay")).toHaveLength(0)
    expect(all("show-reasoning")).toHaveLength(1)
  })

  test("the panel is closed by default; open, it shows all parts and tools in order, each once", () => {
    const { final } = record(PLAN)
    draw(final)
    const [toggle] = all("show-reasoning")
    expect(toggle?.textContent).toBe("Show Reasoning")
    expect(toggle?.getAttribute("aria-expanded")).toBe("false")
    expect(all("reasoning-part")).toHaveLength(0)
    expect(all("tool-segment")).toHaveLength(1)
    act(() => toggle?.click())
    expect(toggle?.textContent).toBe("Hide Reasoning")
    const [panel] = all("reasoning-panel")
    expect(toggle?.getAttribute("aria-controls")).toBe(panel?.id)
    const order = [...(panel?.querySelectorAll<HTMLElement>("[data-sequence-number]") ?? [])]
    expect(order.map((element) => element.textContent)).toEqual(["First thought.", "Second thought.", "Called look Done", "Third thought."])
    const numbers = order.map((element) => Number(element.dataset.sequenceNumber))
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b))
  })

  test("closed, the toggle is below the tools, next to the text, as the rows of the compact overlay are", () => {
    const { events, final } = record(PLAN)
    draw()
    push(events.slice(0, -1))
    expect(all("overlay")[0]?.className).toContain("overlay--compact")
    draw(final)
    const [tool] = all("tool-segment")
    const [toggle] = all("show-reasoning")
    expect(tool && toggle && tool.compareDocumentPosition(toggle) & Node.DOCUMENT_POSITION_FOLLOWING).toBeTruthy()
    expect(tool?.closest(".reasoning__panel")).toBeNull()
  })

  test("an answer of thoughts alone says so, and can be tried again", () => {
    let again = 0
    const { final } = record([{ kind: "reasoning", parts: [["Hm."]] }])
    act(() => root.render(<EventItemSequential eventId={EVENT} event={final} pending={undefined} last onRetry={() => again++} />))
    expect(words("error-state")).toEqual(["The model thought, but gave no answer.Try again"])
    expect(all("ask-again")).toHaveLength(0)
    act(() => all("retry")[0]?.click())
    expect(again).toBe(1)
  })

  test("an answer without reasoning has no toggle", () => {
    draw(record([{ kind: "text", deltas: ["Hi."] }]).final)
    expect(all("show-reasoning")).toHaveLength(0)
    expect(words("answer-text")).toEqual(["Hi."])
  })

  test("effort, tokens and reasoning time are next to the toggle, and the timeline is in the panel", () => {
    const { final } = record(PLAN)
    draw({
      ...final,
      effort_level: "high",
      usage: { reasoning_tokens: 1234 },
      completed_at: 9000,
      timeline: [
        { segment_id: "rs_0", started_at: 1000, ended_at: 4000 },
        { segment_id: "fc_1", started_at: 4000, ended_at: 6000 },
        { segment_id: "rs_2", started_at: 6000, ended_at: 8000 },
        { segment_id: "msg_3", started_at: 8000, ended_at: 9000 },
      ],
    })
    expect(words("reasoning-meta")).toEqual(["5 s1,234 thinking tokenshigh effort"])
    expect(all("timeline")).toHaveLength(0)
    act(() => all("show-reasoning")[0]?.click())
    expect([...(all("timeline")[0]?.querySelectorAll("li") ?? [])].map((item) => item.textContent)).toEqual([
      "Reasoned for 3 s, starting immediately",
      "Called look for 2 s, starting after 3 s",
      "Reasoned for 2 s, starting after 5 s",
      "Wrote for 1 s, starting after 7 s",
    ])
    expect(keys()).toEqual(["Reasoned 5 s", "Called tools 2 s", "Wrote 1 s"])
  })

  test("what the reasoning cost is next to the toggle, and what all cost below the answer, where the gateway knows the prices", () => {
    const event = { ...record(PLAN).final, usage: { input_tokens: 2000, output_tokens: 1500, reasoning_tokens: 1234, cost: 0.0123, reasoning_cost: 0.00271 } }
    const show = (currency: string | undefined) =>
      act(() => root.render(<CurrencyContext value={currency}><EventItemSequential eventId={EVENT} event={event} pending={undefined} last /></CurrencyContext>))
    show("USD")
    expect(words("reasoning-meta")).toEqual(["1,234 thinking tokens$0.0027 for thinking"])
    expect(words("usage")).toEqual(["$0.012 in total2,000 tokens in, 1,500 out"])
    show(undefined)
    expect(words("reasoning-meta")).toEqual(["1,234 thinking tokens"])
    expect(words("usage")).toEqual(["2,000 tokens in, 1,500 out"])
    draw({ ...event, usage: { reasoning_tokens: 1234 } })
    expect(all("usage")).toHaveLength(0)
  })

  test("of many calls the newest are shown; one row stands for the others, and opens", () => {
    const call = (name: string) => ({ kind: "tool" as const, name, args: "{}", result: "seen", logs: [] })
    const plan = (count: number, name = "look") => record([call(name), ...Array.from({ length: count - 1 }, () => call("look"))]).final
    draw(plan(5))
    expect(all("tool-segment")).toHaveLength(5)
    expect(all("tool-fold")).toHaveLength(0)
    const final = plan(300)
    draw(final)
    expect(words("tool-fold")).toEqual(["Called look 296 more times Show all"])
    expect(all("tool-segment").map((row) => row.dataset["callId"])).toEqual(["call_296", "call_297", "call_298", "call_299"])
    act(() => all("tool-fold")[0]?.click())
    expect(all("tool-fold")[0]?.getAttribute("aria-expanded")).toBe("true")
    expect(all("tool-segment")).toHaveLength(300)
    act(() => all("tool-fold")[0]?.click())
    expect(all("tool-segment")).toHaveLength(4)
    draw(plan(7, "peek"))
    expect(words("tool-fold")).toEqual(["Called tools 3 more times Show all"])
    draw({ ...final, segments: final.segments.map((one, index) => (one.type === "tool_call" && index < 2 ? { ...one, status: "failed" } : one)) })
    expect(words("tool-fold")).toEqual(["Called look 296 more times 2 failedShow all"])
  })

  test("the time of tools that ran at the same time counts once", () => {
    const call = { kind: "tool" as const, name: "look", args: "{}", result: "seen", logs: [] }
    const { final } = record([{ kind: "reasoning", parts: [["Hm."]] }, call, call, call, { kind: "text", deltas: ["So."] }])
    draw({
      ...final,
      completed_at: 9_000,
      timeline: [
        { segment_id: "rs_0", started_at: 1_000, ended_at: 2_000 },
        { segment_id: "fc_1", started_at: 2_000, ended_at: 5_000 },
        { segment_id: "fc_2", started_at: 3_000, ended_at: 4_000 },
        { segment_id: "fc_3", started_at: 4_000, ended_at: 7_000 },
        { segment_id: "msg_4", started_at: 7_000, ended_at: 9_000 },
      ],
    })
    act(() => all("show-reasoning")[0]?.click())
    expect(keys()).toEqual(["Reasoned 1 s", "Called tools 5 s", "Wrote 2 s"])
  })

  test("waiting time is shown, so that the figures add up to the total", () => {
    const { final } = record(PLAN)
    draw({
      ...final,
      completed_at: 20_000,
      timeline: [
        { segment_id: "rs_0", started_at: 12_000, ended_at: 15_000 },
        { segment_id: "fc_1", started_at: 14_000, ended_at: 16_000 },
        { segment_id: "msg_3", started_at: 18_000, ended_at: 20_000 },
      ],
    })
    act(() => all("show-reasoning")[0]?.click())
    expect(keys()).toEqual(["Reasoned 3 s", "Called tools 2 s", "Wrote 2 s", "Waited 13 s"])
  })

  test("a completed answer has an ask-again button; an incomplete one has a retry button in its error", () => {
    let again = 0
    const show = (event: Answer, busy = false) =>
      act(() => root.render(<EventItemSequential eventId={EVENT} event={event} pending={undefined} busy={busy} last onRetry={() => again++} />))
    show(record(PLAN).final)
    act(() => all("ask-again")[0]?.click())
    expect(again).toBe(1)
    expect(all("retry")).toHaveLength(0)
    show(record(PLAN).final, true)
    expect(all("ask-again")[0]?.hasAttribute("disabled")).toBe(true)
    show(record(PLAN, "failed").final)
    expect(all("ask-again")).toHaveLength(0)
    expect(all("retry")).toHaveLength(1)
  })

  test("a stopped answer keeps its content, with a message", () => {
    draw(record(PLAN, "cancelled").final)
    expect(words("error-state")[0]).toContain("stopped")
    expect(all("show-reasoning")).toHaveLength(1)
    expect(words("answer-text")).toEqual(["So it is."])
  })
})
