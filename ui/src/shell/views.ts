// Names of the views and efforts, and the effective view.
import type { Effort, View } from "../api/types"

/** From the most open view to the most restricted. */
export const VIEWS: readonly { value: View; name: string; note: string }[] = [
  { value: "raw", name: "Raw", note: "The model’s own thoughts, word for word." },
  { value: "summary", name: "Summary", note: "A summary of its thoughts, not the thoughts themselves." },
  { value: "sealed", name: "Sealed", note: "You see that it thinks and for how long, but not the text." },
  { value: "hidden", name: "Hidden", note: "Only the answer." },
]

export const VIEW_NAMES: Record<View, string> = {
  raw: "Raw thoughts",
  summary: "Summary",
  sealed: "Sealed",
  hidden: "Hidden",
}

export const EFFORTS: readonly { value: Effort; name: string; note: string }[] = [
  { value: "off", name: "Off", note: "Answers immediately" },
  { value: "minimal", name: "Minimal", note: "Thinks very briefly" },
  { value: "low", name: "Low", note: "Thinks briefly" },
  { value: "medium", name: "Medium", note: "Thinks for a while" },
  { value: "high", name: "High", note: "Thinks hard" },
  { value: "xhigh", name: "Extra high", note: "Thinks very hard" },
  { value: "max", name: "Maximum", note: "Thinks as long as needed" },
]

const ORDER = VIEWS.map(({ value }) => value)

/** The view in effect: the requested one, or the most open one that is `permitted`. */
export function effectiveView(requested: View | undefined, permitted: View, views: readonly View[]): View {
  const chosen = requested && views.includes(requested) ? requested : permitted
  return ORDER[Math.max(ORDER.indexOf(chosen), ORDER.indexOf(permitted))] ?? permitted
}
