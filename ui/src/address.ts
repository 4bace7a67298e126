// The address of the page: `/` is a new chat, `/c/{id}` a conversation.
import { useSyncExternalStore } from "react"

const CHANGED = "pellucid:address"

function subscribe(listener: () => void) {
  addEventListener("popstate", listener)
  addEventListener(CHANGED, listener)
  return () => {
    removeEventListener("popstate", listener)
    removeEventListener(CHANGED, listener)
  }
}

function conversationIn(path: string): string | null {
  const id = /^\/c\/([^/]+)\/?$/.exec(path)?.[1]
  try {
    return id === undefined ? null : decodeURIComponent(id)
  } catch {
    return null
  }
}

export const useConversationId = () => useSyncExternalStore(subscribe, () => conversationIn(location.pathname))

export function goTo(id: string | null): void {
  const path = id === null ? "/" : `/c/${encodeURIComponent(id)}`
  if (path !== location.pathname) history.pushState(null, "", path)
  dispatchEvent(new Event(CHANGED))
}
