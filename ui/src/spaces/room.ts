// What every row of a space needs: identity, permissions, actions.
import { createContext, useContext } from "react"

import type { Context, Item, EnvelopeItem } from "./fold"

export interface Room {
  me: string | null
  /** The page shows the present, so actions are possible. */
  live: boolean
  /** The browser's clock minus the gateway's, in milliseconds. */
  skew: number
  mayCancel: boolean
  mayRequest: boolean
  mayChat: boolean
  colourOf: (who: string) => number
  toggle: (key: string, open: boolean) => void
  /** Unfold the ancestors of the item and scroll to it. */
  show: (item: Item) => void
  cancel: (context: Context) => void
  approve: (proposal: EnvelopeItem) => void
  reject: (proposal: EnvelopeItem) => void
  reply: (item: EnvelopeItem) => void
}

const NO_ROOM: Room = {
  me: null, live: false, skew: 0, mayCancel: false, mayRequest: false, mayChat: false,
  colourOf: () => 0,
  toggle: () => undefined, show: () => undefined, cancel: () => undefined, approve: () => undefined, reject: () => undefined, reply: () => undefined,
}

export const RoomContext = createContext(NO_ROOM)
export const useRoom = () => useContext(RoomContext)

/** The time of the position in the history; null if the page is live. */
export const NowContext = createContext<number | null>(null)
export const useNow = () => useContext(NowContext)

const COLOURS = 8

/** Assign a colour to each name: stable while the page is open, and usually across visits. */
export function colourAssigner(): (who: string) => number {
  const assigned = new Map<string, number>()
  const taken = new Set<number>()
  return (who) => {
    const known = assigned.get(who)
    if (known !== undefined) return known
    let sum = 0
    for (const character of who) sum = (sum * 31 + (character.codePointAt(0) ?? 0)) >>> 0
    let colour = sum % COLOURS
    if (taken.size < COLOURS) while (taken.has(colour)) colour = (colour + 1) % COLOURS
    assigned.set(who, colour)
    taken.add(colour)
    return colour
  }
}
