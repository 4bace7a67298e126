// Names of the views and efforts, and the effective view.
import type { Effort, View } from "../api/types"
import { words } from "../words"

/** A choice in a menu. */
export interface Option<Value> {
  value: Value
  name: string
  note: string
}

/** The rows of a table by value, in its order. Every value has a row: the type of the table checks it. */
const options = <Value extends string>(rows: Record<Value, [name: string, note: string]>): readonly Option<Value>[] =>
  (Object.entries(rows) as [Value, [string, string]][]).map(([value, [name, note]]) => ({ value, name, note }))

/** From the most open view to the most restricted. */
export const VIEWS = options<View>(words.pickers.views)

export const EFFORTS = options<Effort>(words.pickers.efforts)

export const optionOf = <Value>(all: readonly Option<Value>[], value: Value): Option<Value> | undefined => all.find((one) => one.value === value)

const ORDER = VIEWS.map(({ value }) => value)

/** The view in effect: the requested one, or the most open one that is `permitted`. */
export function effectiveView(requested: View | undefined, permitted: View, views: readonly View[]): View {
  const chosen = requested && views.includes(requested) ? requested : permitted
  return ORDER[Math.max(ORDER.indexOf(chosen), ORDER.indexOf(permitted))] ?? permitted
}
