// What every row of a space needs to know, and may do.
import { createContext, useContext } from "react"

import type { Context, Item, EnvelopeItem } from "./fold"

export interface Room {
  me: string | null
  /** The page stands at the living end: what is said and done here is said and done now. */
  live: boolean
  /** Our clock minus the gateway's. */
  skew: number
  mayCancel: boolean
  mayAsk: boolean
  mayChat: boolean
  colourOf: (who: string) => number
  toggle: (key: string, open: boolean) => void
  /** Open whatever it stands in, and go there. */
  show: (item: Item) => void
  cancel: (context: Context) => void
  approve: (proposal: EnvelopeItem) => void
  refuse: (proposal: EnvelopeItem) => void
  reply: (item: EnvelopeItem) => void
}

const NO_ROOM: Room = {
  me: null, live: false, skew: 0, mayCancel: false, mayAsk: false, mayChat: false,
  colourOf: () => 0,
  toggle: () => undefined, show: () => undefined, cancel: () => undefined, approve: () => undefined, refuse: () => undefined, reply: () => undefined,
}

export const RoomContext = createContext(NO_ROOM)
export const useRoom = () => useContext(RoomContext)

/** The time at which the page stands, where that is not now. */
export const NowContext = createContext<number | null>(null)
export const useNow = () => useContext(NowContext)

const COLOURS = 8

/** A colour for each of them: the same for as long as the page is open, and as a rule the next time. */
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
