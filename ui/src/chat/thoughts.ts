// What the thoughts of a conversation share: a way to open those of an answer, and to search in them.
import { createContext } from "react"

export interface Thoughts {
  /** Functions that open the reasoning of an answer, by its id. */
  openers: Map<string, () => void>
  /** Open the search, which begins in this answer. */
  find: (answerId: string) => void
}

export const ThoughtsContext = createContext<Thoughts>({ openers: new Map(), find: () => undefined })
