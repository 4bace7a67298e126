// What the views and efforts are called, and which view is in force.
import type { Effort, View } from "../api/types"

/** From the most that is seen to the least. */
export const VIEWS: readonly { value: View; name: string; note: string }[] = [
  { value: "raw", name: "Raw", note: "The model’s own thoughts, word for word." },
  { value: "summary", name: "Summary", note: "A short account of its thoughts, not the thoughts themselves." },
  { value: "sealed", name: "Sealed", note: "You see that it thinks and how long; the words stay locked." },
  { value: "hidden", name: "Hidden", note: "Only the answer." },
]

export const VIEW_NAMES: Record<View, string> = {
  raw: "Raw thoughts",
  summary: "Summary",
  sealed: "Sealed",
  hidden: "Hidden",
}

export const EFFORTS: readonly { value: Effort; name: string; note: string }[] = [
  { value: "off", name: "Off", note: "Answers at once" },
  { value: "minimal", name: "Minimal", note: "A glance" },
  { value: "low", name: "Low", note: "A short thought" },
  { value: "medium", name: "Medium", note: "Takes its time" },
  { value: "high", name: "High", note: "Thinks hard" },
  { value: "xhigh", name: "Higher", note: "Thinks very hard" },
  { value: "max", name: "Most", note: "As long as it takes" },
]

const ORDER = VIEWS.map(({ value }) => value)

/** The view in force: what was asked for, but never more than the model gives this reader. */
export function effectiveView(requested: View | undefined, most: View, views: readonly View[]): View {
  const wanted = requested && views.includes(requested) ? requested : most
  return ORDER[Math.max(ORDER.indexOf(wanted), ORDER.indexOf(most))] ?? most
}
