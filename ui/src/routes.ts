// The address of the page: `/` is a new chat, `/c/{id}` a conversation, `/spaces/{name}` a space.
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

const CONVERSATION = /^\/c\/([^/]+)\/?$/
const SPACE = /^\/spaces\/([^/]+)\/?$/

function capturedName(path: string, by: RegExp): string | null {
  const name = by.exec(path)?.[1]
  try {
    return name === undefined ? null : decodeURIComponent(name)
  } catch {
    return null
  }
}

const conversationIn = (path: string) => capturedName(path, CONVERSATION)

/** The space that the path names; null: one that is still to be named; undefined: it leads to the chat. */
export const spaceIn = (path: string): string | null | undefined => (/^\/spaces(\/|$)/.test(path) ? capturedName(path, SPACE) : undefined)

export const useConversationId = () => useSyncExternalStore(subscribe, () => conversationIn(location.pathname))

export function goTo(id: string | null): void {
  const path = id === null ? "/" : `/c/${encodeURIComponent(id)}`
  if (path !== location.pathname) history.pushState(null, "", path)
  dispatchEvent(new Event(CHANGED))
}
