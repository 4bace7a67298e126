// The frames of one answer over several connections: after a lost connection it resumes after the last frame, with
// increasing delays. Repeated frames are skipped. If nothing comes after the last frame, and no end either, the gateway
// has lost frames that were read (it was killed): then the answer is read from its start. The content of the frames is
// not read here.
import { ApiError } from "../api/client"
import type { OpenStream } from "../api/client"
import { frames } from "../api/sse"
import type { Comment, Frame } from "../api/sse"

export type ConnectionEvent =
  | Frame
  | Comment
  /**
   * The connection ended, by a failure or (null) regularly; `fresh`: it delivered new frames. The next request
   * reconnects after a delay.
   */
  | { kind: "broken"; failure: unknown; fresh: boolean }
  /** All attempts failed. The next request starts again. */
  | { kind: "lost" }
  /** Another attempt would give the same result. The next request tries anyway. */
  | { kind: "refused"; failure: ApiError }

const TRIES = 8

/**
 * @param open opens the first connection
 * @param read opens every other one, after the frame with that id
 * @param wait waits before the next attempt; returns whether the network or the user came back meanwhile, so that the
 *   delays begin again
 */
export async function* answerFrames(
  open: () => Promise<OpenStream>,
  read: (after: string | null) => Promise<OpenStream>,
  wait: (ms: number) => Promise<boolean>,
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
    if (failure === null && !fresh && failures > 1) last = null
    if (++failures > TRIES) {
      failures = 0
      yield { kind: "lost" }
    } else if ((failure !== null || failures > 1) && (await wait(backoff(failures)))) failures = 0
  }
}

/** A frame without an id is always new. */
const isSeen = (id: string | null, last: string | null) => !!id && last !== null && Number(id) <= Number(last)

/** Whether another attempt would give the same response. */
const isFinal = (status: number) => status >= 400 && status < 500 && status !== 408 && status !== 425 && status !== 429

const backoff = (failures: number) => Math.min(8000, 250 * 2 ** failures) * (0.75 + Math.random() / 2)
