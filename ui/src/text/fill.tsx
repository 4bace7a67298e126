// A text of words.ts with elements in its places: "{who} answers" and `{ who: <strong>…</strong> }`.
import { Fragment } from "react"
import type { ReactNode } from "react"

export const fill = (text: string, elements: Readonly<Record<string, ReactNode>>): ReactNode =>
  text.split(/\{(\w+)\}/).map((piece, index) => <Fragment key={index}>{index % 2 === 0 ? piece : elements[piece]}</Fragment>)
