// Follows the feed of changes, and tells the page what to load again.
import { useEffect, useRef } from "react"

import { client, WINDOW } from "../api/client"
import { followFeed } from "./feed"
import type { FeedEvent } from "./feed"

interface Handlers {
  /** The id of the open conversation, or null. */
  open: string | null
  /** The id of the answer that this page reads; null while its own question has none; undefined if it reads none. */
  reading: () => string | null | undefined
  has: (eventId: string) => boolean
  onList: () => void
  onConversation: (id: string) => void
  onDeleted: (id: string) => void
  onModels: () => void
  onSignedOut: () => void
}

/** How long after the page was opened its first feed has all changes: the gateway sends those of the last 5 s, too. */
const FRESH_MS = 4000
/** Changes within this time are one load of the list. */
const LIST_PAUSE_MS = 150

export function useFeed(handlers: Handlers): void {
  const latest = useRef(handlers)
  useEffect(() => {
    latest.current = handlers
  })
  useEffect(() => {
    const openedAt = Date.now()
    let isFirst = true
    let listing: ReturnType<typeof setTimeout> | undefined
    const list = () => {
      clearTimeout(listing)
      listing = setTimeout(() => latest.current.onList(), LIST_PAUSE_MS)
    }

    const onEvent = (event: FeedEvent) => {
      // What this window changed it knows already.
      if ("window" in event && event.window === WINDOW) return
      const { open, reading, has, onConversation, onDeleted, onModels } = latest.current
      switch (event.type) {
        case "feed_started": {
          const isFresh = isFirst && Date.now() - openedAt < FRESH_MS
          isFirst = false
          if (isFresh) return
          list()
          onModels()
          if (open !== null && reading() === undefined) onConversation(open)
          return
        }
        case "turn_started":
        case "turn_ended": {
          // An answer that this page reads itself.
          if (has(event.event_id) || reading() === event.event_id) return
          list()
          if (event.conversation_id === open) onConversation(open)
          return
        }
        case "conversation_changed":
          list()
          if (event.conversation_id === open) onConversation(open)
          return
        case "conversation_deleted":
          list()
          onDeleted(event.conversation_id)
          return
        case "models_changed":
          onModels()
      }
    }
    const stop = followFeed({ open: client.feed, onEvent, onSignedOut: () => latest.current.onSignedOut() })
    return () => {
      clearTimeout(listing)
      stop()
    }
  }, [])
}
