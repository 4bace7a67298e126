// The frames of one answer, over as many connections as it takes: after a lost one it is read on from the last frame
// that was seen, later each time. A frame that was seen is not told twice. It knows nothing of what the frames say.
import { ApiError } from "../api/client"
import type { OpenStream } from "../api/client"
import { frames } from "../api/sse"
import type { Comment, Frame } from "../api/sse"

export type ConnectionEvent =
  | Frame
  | Comment
  /** The connection ended, by a failure or (null) by itself; `fresh`: it had brought frames that were not seen before.
   * It is gone on with another one, after a while, as soon as the next is asked for. */
  | { kind: "broken"; failure: unknown; fresh: boolean }
  /** Nothing came of so many tries. Asked for the next, it begins to try again. */
  | { kind: "lost" }
  /** To try again by itself would give the same. Asked for the next, it tries all the same. */
  | { kind: "refused"; failure: ApiError }

const TRIES = 8

/** @param open the first connection
 *  @param read every other one: from the frame after that id
 *  @param wait before the next try */
export async function* answerFrames(
  open: () => Promise<OpenStream>,
  read: (after: string | null) => Promise<OpenStream>,
  wait: (ms: number) => Promise<void>,
): AsyncGenerator<ConnectionEvent, void> {
  let last: string | null = null
  let failures = 0
  let connect = open
  while (true) {
    let fresh = false
    let failure: unknown = null
    try {
      const { body } = await connect()
      for await (const batch of frames(body)) {
        for (const one of batch) {
          if (one.kind === "frame") {
            if (isSeen(one.id, last)) continue
            last = one.id || last
            fresh = true
            failures = 0
          }
          yield one
        }
      }
    } catch (error) {
      failure = error
    }
    connect = () => read(last)
    if (failure instanceof ApiError && isFinal(failure.status)) {
      failures = 0
      yield { kind: "refused", failure }
      continue
    }
    yield { kind: "broken", failure, fresh }
    if (++failures > TRIES) {
      failures = 0
      yield { kind: "lost" }
    } else if (failure !== null || failures > 1) await wait(backoff(failures))
  }
}

/** A frame without an id cannot have been. */
const isSeen = (id: string | null, last: string | null) => !!id && last !== null && Number(id) <= Number(last)

/** Whether asking once more would give the same answer. */
const isFinal = (status: number) => status >= 400 && status < 500 && status !== 408 && status !== 425 && status !== 429

const backoff = (failures: number) => Math.min(8000, 250 * 2 ** failures) * (0.75 + Math.random() / 2)

/** That long, or until the machine is on line again. */
export function waitUntilOnline(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer)
      removeEventListener("online", done)
      signal.removeEventListener("abort", done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    addEventListener("online", done)
    signal.addEventListener("abort", done)
  })
}
