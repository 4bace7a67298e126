// Tokens of participants in this browser. A token that was typed is kept in its tab. One that came with a link or with
// a new space is kept until the user forgets it: it cannot be read again.
const KEY = "pellucid.space."

const stores = () => [sessionStorage, localStorage]

export function storedToken(space: string): string | null {
  try {
    return stores().map((store) => store.getItem(KEY + space)).find((token) => token !== null) ?? null
  } catch {
    return null
  }
}

export function storeToken(space: string, token: string, keep: "tab" | "browser"): void {
  try {
    (keep === "tab" ? sessionStorage : localStorage).setItem(KEY + space, token)
  } catch {
    // Without storage the user enters the token again after a reload.
  }
}

/** Forget the token, or only one that was typed. */
export function forgetToken(space: string, only?: "tab"): void {
  try {
    for (const store of only === "tab" ? [sessionStorage] : stores()) store.removeItem(KEY + space)
  } catch {
    // Nothing is stored.
  }
}

/** The spaces that this browser can enter. */
export function knownSpaces(): string[] {
  try {
    return stores().flatMap((store) => Object.keys(store)).filter((key) => key.startsWith(KEY)).map((key) => key.slice(KEY.length))
  } catch {
    return []
  }
}

export const addressOf = (space: string) => `/spaces/${encodeURIComponent(space)}`
