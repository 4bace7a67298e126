// Where a text stands, which decides what in it can be used: links and copy buttons of an answer, links of a thought
// (LongText), nothing in the overlay, which only displays.
import { createContext } from "react"

export type TextRole = "answer" | "thought" | "overlay"

export const TextRoleContext = createContext<TextRole>("answer")
