// Tokens of participants in this browser. A token that was typed is kept in its tab. One that came with a link or with
// a new space is kept until the user forgets it: it cannot be read again.
import { browserStorage, tabStorage } from "../storage"

const KEY = "pellucid.space."
const STORAGES = { tab: tabStorage, browser: browserStorage }
const all = Object.values(STORAGES)

export const storedToken = (space: string): string | null =>
  all.map((storage) => storage.get(KEY + space)).find((token) => token !== null) ?? null

export const storeToken = (space: string, token: string, keep: keyof typeof STORAGES): void => STORAGES[keep].set(KEY + space, token)

/** That the user left the space, although the browser can enter it again. */
const LEFT = "pellucid.left-space."
export const hasLeft = (space: string): boolean => browserStorage.get(LEFT + space) !== null
export const setLeft = (space: string, left: boolean): void => browserStorage.set(LEFT + space, left ? "1" : null)

/** Forget the token, or only one that was typed. */
export function forgetToken(space: string, only?: "tab"): void {
  if (only !== "tab") setLeft(space, false)
  for (const storage of only === "tab" ? [tabStorage] : all) storage.set(KEY + space, null)
}

/** The spaces that this browser can enter. */
export const knownSpaces = (): string[] =>
  all.flatMap((storage) => storage.keys()).filter((key) => key.startsWith(KEY)).map((key) => key.slice(KEY.length))
