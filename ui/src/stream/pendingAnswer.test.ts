// The table of phases: the next phase for each phase and event.
import { describe, expect, test } from "vitest"

import { advance, isLive } from "./pendingAnswer"
import type { AnswerEvent, Phase, PendingAnswer } from "./pendingAnswer"

const ASKING: PendingAnswer = { key: "turn-1", phase: "asking", conversation_id: null, event_id: null, stopping: false, skew: 0 }
const at = (phase: Phase, fields: Partial<PendingAnswer> = {}): PendingAnswer => ({ ...ASKING, phase, ...fields })

const STEPS: Record<string, AnswerEvent> = {
  queued: { type: "queued" },
  started: { type: "started", event_id: "evt_1", conversation_id: "chat_1" },
  delta: { type: "delta" },
  broken: { type: "broken" },
  lost: { type: "lost" },
  refused: { type: "refused", error: "No." },
  retried: { type: "retried" },
}

const PHASES: Phase[] = ["asking", "queued", "streaming", "reconnecting", "lost", "refused"]

/** A dash: no change. */
const TABLE = `
               queued   started     delta       broken         lost   refused   retried
  asking       queued   streaming   streaming   reconnecting   lost   refused   -
  queued       -        streaming   streaming   reconnecting   lost   refused   -
  streaming    -        streaming   -           reconnecting   lost   refused   -
  reconnecting -        streaming   streaming   -              lost   refused   -
  lost         -        -           -           -              -      -         reconnecting
  refused      -        -           -           -              -      -         reconnecting
`
const [names = [], ...lines] = TABLE.trim().split("\n").map((line) => line.trim().split(/ +/))
const ROWS = lines.flatMap(([from = "", ...cells]) => cells.map((to, n) => [from as Phase, names[n] ?? "", to] as const))

describe("a pending answer", () => {
  test("every phase and every step is in the table", () => {
    expect(names).toEqual(Object.keys(STEPS))
    expect(lines.map(([phase]) => phase)).toEqual(PHASES)
    expect(ROWS).toHaveLength(PHASES.length * names.length)
  })

  test.each(ROWS)("%s, %s: %s", (from, step, to) => {
    const pending = at(from)
    const next = advance(pending, STEPS[step] as AnswerEvent)
    if (to === "-") expect(next).toBe(pending)
    else expect(next.phase).toBe(to)
  })

  test("has its ids from message_started, or from the conversation", () => {
    expect(advance(ASKING, STEPS.started as AnswerEvent)).toMatchObject({ event_id: "evt_1", conversation_id: "chat_1" })
    expect(advance(at("asking", { conversation_id: "chat_1" }), { type: "located", event_id: "evt_1" })).toEqual(
      at("asking", { conversation_id: "chat_1", event_id: "evt_1" }),
    )
  })

  test("has an error when it ended, and none after a retry", () => {
    const refused = advance(ASKING, { type: "refused", error: "No." })
    expect(refused.error).toBe("No.")
    expect(advance(refused, { type: "retried" })).toEqual(at("reconnecting"))
    expect(advance(ASKING, { type: "lost" }).error).toBe("The connection to Pellucid was lost.")
  })

  test.each(PHASES)("%s: is stopped once, while it is live", (phase) => {
    const pending = at(phase)
    const stopped = advance(pending, { type: "stopped" })
    expect(stopped).toEqual(isLive(pending) ? at(phase, { stopping: true }) : pending)
    expect(advance(stopped, { type: "stopped" })).toBe(stopped)
    expect(advance(stopped, { type: "unstopped" })).toEqual(pending)
    expect(advance(pending, { type: "unstopped" })).toBe(pending)
  })

  test("keeps the difference between the clocks", () => {
    const pending = advance(ASKING, { type: "clock", skew: 5000 })
    expect(pending.skew).toBe(5000)
    expect(advance(pending, { type: "clock", skew: 5000 })).toBe(pending)
  })
})
