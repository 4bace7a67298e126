// Routes of the page: `/` is a new chat, `/c/{id}` a conversation, `/shared/{token}` what a link shares, `/spaces/{name}`
// a space.
const CHANGED = "pellucid:address"

/** Call back when the address has changed. Returns a function that ends this. */
export function onNavigate(listener: () => void): () => void {
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

/** The id of the conversation in the address; null: a new chat. */
export const conversationId = (): string | null => capturedName(location.pathname, CONVERSATION)

/** The name of the space in the path. null: a space page without a name; undefined: not a space page. */
export const spaceIn = (path: string): string | null | undefined => (/^\/spaces(\/|$)/.test(path) ? capturedName(path, SPACE) : undefined)

/** The address of a space, and the beginning of those of its requests. */
export const spacePath = (space: string) => `/spaces/${encodeURIComponent(space)}`

/** The token of a link that shares a chat; undefined: the address is none. */
export const sharedTokenIn = (path: string): string | undefined => capturedName(path, /^\/shared\/([^/]+)\/?$/) ?? undefined

export function goTo(id: string | null): void {
  const path = id === null ? "/" : `/c/${encodeURIComponent(id)}`
  if (path !== location.pathname) history.pushState(null, "", path)
  dispatchEvent(new Event(CHANGED))
}

/** Whether only this computer can open addresses with this host. */
export const isLoopback = (host: string): boolean => /^(?:(?:.+\.)?localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(host)
