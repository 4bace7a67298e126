// The feed of changes of all chats, and of the models (GET /api/events). One connection serves the window, and none while
// it is hidden: browsers open only six to a server. Every event holds ids alone.
import { ApiError } from "../api/client"
import type { OpenStream } from "../api/client"
import { frames } from "../api/sse"
import { linkedAbort, onLeft, onWake, SILENCE_MS, waitForWake } from "../api/wake"

export type FeedEvent =
  /** The feed begins (again). Changes before it may have been missed. */
  | { type: "feed_started" }
  | ({ type: "turn_started" | "turn_ended"; event_id: string } & Change)
  | ({ type: "conversation_changed" | "conversation_deleted" } & Change)
  | { type: "models_changed" }

interface Change {
  conversation_id: string
  /** The window that made the change. */
  window?: string
}

/** How long a hidden window keeps its feed: who only looks away for a moment loads nothing again. */
const HIDDEN_MS = 10_000

interface Options {
  open: (after: string | null, signal: AbortSignal) => Promise<OpenStream>
  onEvent: (event: FeedEvent) => void
  onSignedOut: () => void
}

/** Follow the feed until the returned function is called. */
export function followFeed({ open, onEvent, onSignedOut }: Options): () => void {
  const over = new AbortController()
  let connection: AbortController | null = null
  let isHidden = document.visibilityState === "hidden"
  let heardAt = Date.now()
  let hiding: ReturnType<typeof setTimeout> | undefined

  const close = () => {
    isHidden = true
    connection?.abort()
  }
  const hide = () => {
    clearTimeout(hiding)
    if (document.visibilityState === "hidden") hiding = setTimeout(close, HIDDEN_MS)
  }
  document.addEventListener("visibilitychange", hide)
  const stopWaking = onWake((reason) => {
    isHidden = false
    if (reason === "online" || Date.now() - heardAt > SILENCE_MS) connection?.abort()
  })
  const stopLeaving = onLeft(close)
  over.signal.addEventListener("abort", () => {
    clearTimeout(hiding)
    stopWaking()
    stopLeaving()
    document.removeEventListener("visibilitychange", hide)
  })

  const follow = async () => {
    let last: string | null = null
    let failures = 0
    while (!over.signal.aborted) {
      if (isHidden) {
        await waitForWake(2 ** 30, over.signal)
        continue
      }
      connection = linkedAbort(over.signal)
      try {
        const { body } = await open(last, connection.signal)
        for await (const batch of frames(body)) {
          failures = 0
          heardAt = Date.now()
          for (const one of batch) {
            if (one.kind === "comment") continue
            last = one.id ?? last
            const event = parse(one.data)
            if (event && !over.signal.aborted) onEvent(event)
          }
        }
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) return onSignedOut()
        // An older gateway, or one whose proxy does not pass it on: the page works without a feed.
        if (error instanceof ApiError && (error.status === 403 || error.status === 404)) return
      }
      const wasGivenUp = connection.signal.aborted
      connection.abort()
      // A connection that this page gave up is opened again at once.
      if (wasGivenUp) continue
      if (await waitForWake(Math.min(15_000, 500 * 2 ** failures++) * (0.75 + Math.random() / 2), over.signal)) failures = 0
    }
  }
  void follow()
  return () => over.abort()
}

function parse(data: string): FeedEvent | null {
  try {
    return JSON.parse(data) as FeedEvent
  } catch {
    return null
  }
}
