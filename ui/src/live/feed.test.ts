import { afterEach, expect, test, vi } from "vitest"

import { ApiError } from "../api/client"
import type { OpenStream } from "../api/client"
import { followFeed } from "./feed"
import type { FeedEvent } from "./feed"

const encode = (text: string) => new TextEncoder().encode(text)
const started = 'id: 7-a\nevent: feed_started\ndata: {"type":"feed_started"}\n\n'
const ended = ': ping\n\nid: 8-b\nevent: turn_ended\ndata: {"type":"turn_ended","conversation_id":"chat_1","event_id":"evt_1"}\n\n'

let isHidden = false
vi.spyOn(document, "visibilityState", "get").mockImplementation(() => (isHidden ? "hidden" : "visible"))
afterEach(() => {
  isHidden = false
  vi.useRealTimers()
})

/** Follow a feed whose connections the test writes and breaks. */
function setUp(refusal?: ApiError) {
  const afters: (string | null)[] = []
  const signals: AbortSignal[] = []
  const writers: ReadableStreamDefaultController<Uint8Array>[] = []
  const events: FeedEvent[] = []
  const onSignedOut = vi.fn()
  const open = async (after: string | null, signal: AbortSignal): Promise<OpenStream> => {
    afters.push(after)
    signals.push(signal)
    if (refusal) throw refusal
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        writers.push(controller)
        signal.addEventListener("abort", () => controller.error(signal.reason))
      },
    })
    return { body, date: null }
  }
  const stop = followFeed({ open, onEvent: (event) => events.push(event), onSignedOut })
  return { afters, signals, writers, events, onSignedOut, stop }
}

test("a feed that breaks is opened again after its last event; at once if the network is back", async () => {
  const one = setUp()
  await vi.waitFor(() => expect(one.writers).toHaveLength(1))
  one.writers[0]?.enqueue(encode(started))
  one.writers[0]?.enqueue(encode(ended))
  await vi.waitFor(() => expect(one.events.map((event) => event.type)).toEqual(["feed_started", "turn_ended"]))
  // The connection may be dead without a sign.
  dispatchEvent(new Event("online"))
  await vi.waitFor(() => expect(one.afters).toEqual([null, "8-b"]))
  one.writers[1]?.error(new TypeError("network"))
  dispatchEvent(new Event("online"))
  await vi.waitFor(() => expect(one.afters).toEqual([null, "8-b", "8-b"]))
  one.stop()
  dispatchEvent(new Event("online"))
  expect(one.afters).toHaveLength(3)
})

test("a hidden window closes its feed after a while, and opens it when it is visible", async () => {
  vi.useFakeTimers()
  const one = setUp()
  await vi.advanceTimersByTimeAsync(0)
  expect(one.afters).toHaveLength(1)
  isHidden = true
  document.dispatchEvent(new Event("visibilitychange"))
  await vi.advanceTimersByTimeAsync(60_000)
  expect(one.afters).toHaveLength(1)
  isHidden = false
  document.dispatchEvent(new Event("visibilitychange"))
  await vi.advanceTimersByTimeAsync(0)
  expect(one.afters).toHaveLength(2)
  one.stop()
})

test("a page that is left closes its feed at once, and opens it when it is back", async () => {
  const one = setUp()
  await vi.waitFor(() => expect(one.writers).toHaveLength(1))
  one.writers[0]?.enqueue(encode(started))
  await vi.waitFor(() => expect(one.events).toHaveLength(1))
  dispatchEvent(new Event("pagehide"))
  await vi.waitFor(() => expect(one.signals[0]?.aborted).toBe(true))
  expect(one.afters).toHaveLength(1)
  dispatchEvent(new Event("pageshow"))
  await vi.waitFor(() => expect(one.afters).toEqual([null, "7-a"]))
  one.stop()
})

test.each([
  [401, 1],
  [404, 0],
])("a gateway that refuses the feed (%i) is not called again", async (status, signedOut) => {
  vi.useFakeTimers()
  const one = setUp(new ApiError("no", status))
  await vi.advanceTimersByTimeAsync(120_000)
  expect(one.afters).toHaveLength(1)
  expect(one.onSignedOut).toHaveBeenCalledTimes(signedOut)
  one.stop()
})
