// One answer over several connections. (StreamingSessionManager.test.ts tests that interruptions do not change it.)
import { describe, expect, test } from "vitest"

import { ApiError } from "../api/client"
import type { OpenStream } from "../api/client"
import { body, frame } from "../testing/recorded"
import { answerFrames } from "./answerFrames"
import type { ConnectionEvent } from "./answerFrames"

const say = (id: number) => frame({ type: "text_delta", event_id: "evt_1", text_delta: `${id}`, output_index: 0 }, id)
const brought = (...ids: number[]) => Promise.resolve<OpenStream>({ body: body(ids.map(say)), date: null })
const word = (event: ConnectionEvent | void) => (event?.kind === "frame" ? Number(event.id) : event?.kind)

function reading(open: () => Promise<OpenStream>, read: (after: string | null) => Promise<OpenStream>) {
  const waits: number[] = []
  const wait = (ms: number) => Promise.resolve(waits.push(ms) < 0)
  const frames = answerFrames(open, read, wait)
  const next = async (count: number) => {
    const seen = []
    for (let n = 0; n < count; n++) seen.push(word((await frames.next()).value))
    return seen
  }
  return { frames, next, waits }
}

describe("the frames of an answer", () => {
  test("resume after the last one, without repetition", async () => {
    const after: (string | null)[] = []
    const one = reading(
      () => brought(0, 1),
      (last) => {
        after.push(last)
        return brought(1, 2, 3)
      },
    )
    expect(await one.next(6)).toEqual([0, 1, "broken", 2, 3, "broken"])
    expect(after).toEqual(["1"])
    expect(one.waits).toEqual([])
  })

  test("stop after too many attempts, and continue from the last one when requested", async () => {
    let up = false
    const after: (string | null)[] = []
    const one = reading(
      () => brought(0),
      (last) => {
        after.push(last)
        return up ? brought(1) : Promise.reject(new ApiError("away", 0))
      },
    )
    expect((await one.next(11)).at(-1)).toBe("lost")
    const tried = after.length
    expect(one.waits).toHaveLength(tried - 1)
    up = true
    expect(await one.next(1)).toEqual([1])
    expect(new Set(after)).toEqual(new Set(["0"]))
    expect(after).toHaveLength(tried + 1)
  })

  test("are not requested again if the response would be the same", async () => {
    const one = reading(
      () => Promise.reject(new ApiError("No.", 404)),
      () => brought(0),
    )
    expect(await one.next(2)).toEqual(["refused", 0])
    expect(one.waits).toEqual([])
  })

  test("are read from the start if nothing comes after the last one, and no end", async () => {
    const after: (string | null)[] = []
    const one = reading(
      () => brought(0, 1, 2, 3),
      (last) => {
        after.push(last)
        return last === null ? brought(0, 1) : brought()
      },
    )
    expect(await one.next(9)).toEqual([0, 1, 2, 3, "broken", "broken", "broken", 0, 1])
    expect(after).toEqual(["3", "3", null])
  })

  test("continue after one that could not be processed", async () => {
    const one = reading(
      () => brought(0, 1, 2),
      (last) => brought(...[0, 1, 2].filter((id) => id > Number(last))),
    )
    expect(await one.next(2)).toEqual([0, 1])
    expect(word((await one.frames.throw(new Error("What is this?"))).value)).toBe("broken")
    expect(await one.next(1)).toEqual([2])
  })
})
