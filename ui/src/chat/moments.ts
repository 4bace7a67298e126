// The moments of an answer: where its reasoning, tools and texts stand in time, and on the page.
import type { Answer } from "../api/types"
import { plain } from "../text/visible"
import { isTool } from "./format"
import { toolLine } from "./toolLine"
import { words } from "../words"

export type Kind = "reasoning" | "tool" | "text"

export interface TimelineSpan {
  id: string
  kind: Kind
  name: string
  start: number
  end: number
}

export function spansOf(event: Answer): TimelineSpan[] {
  const byId = new Map(event.segments.map((segment) => [segment.id, segment]))
  return (event.timeline ?? []).flatMap((span) => {
    const segment = byId.get(span.segment_id)
    if (!segment) return []
    const kind: Kind = segment.type === "reasoning" ? "reasoning" : isTool(segment) ? "tool" : "text"
    const name = isTool(segment) ? plain(toolLine({ name: segment.name, args: null, running: false }).label) : words.timeline.names[kind]
    return [{ id: span.segment_id, kind, name, start: span.started_at, end: Math.max(span.started_at, span.ended_at) }]
  })
}

/** A place on the page: an element by the id of its segment, the part of a thought, and how far down in it. */
export interface Place {
  segmentId: string
  part: number
  /** From 0, the beginning, to 1. */
  fraction: number
}

/** What the model did at a time: the span that contains it, or the nearest. */
export function placeAt(event: Answer, spans: readonly TimelineSpan[], time: number): Place | null {
  const distance = ({ start, end }: TimelineSpan) => Math.max(start - time, time - end, 0)
  // Of spans that overlap, the one that began last is the more exact.
  const span = spans.toSorted((a, b) => distance(a) - distance(b) || b.start - a.start)[0]
  if (!span) return null
  const segment = event.segments.find((one) => one.id === span.id)
  if (segment?.type !== "reasoning") return { segmentId: span.id, part: 0, fraction: 0 }
  const parts = segment.parts.toSorted((a, b) => a.summary_index - b.summary_index)
  const at = Math.max(0, parts.findLastIndex((part) => part.created_at <= time))
  const start = parts[at]?.created_at ?? span.start
  const end = parts[at + 1]?.created_at ?? span.end
  return { segmentId: span.id, part: parts[at]?.summary_index ?? 0, fraction: end > start ? Math.min(1, Math.max(0, (time - start) / (end - start))) : 0 }
}

const ATTENTION = [{ backgroundColor: "var(--accent-veil)" }, { backgroundColor: "transparent" }]

/** The space above what is scrolled to, in pixels. */
const LEAD = 72

/** Scroll to a place within the answer, and draw attention to it. */
export function showPlace(answer: Element, { segmentId, part, fraction }: Place): HTMLElement | null {
  const segment = [...answer.querySelectorAll<HTMLElement>("[data-segment-id]")].find((one) => one.dataset["segmentId"] === segmentId)
  const target = segment?.querySelector<HTMLElement>(`[data-summary-index="${part}"]`) ?? segment ?? answer.querySelector<HTMLElement>('[data-testid="answer-text"]')
  const box = answer.closest("[data-scroller]")
  if (!target || !box) return null
  const { top, height } = target.getBoundingClientRect()
  box.scrollTop += top + fraction * height - box.getBoundingClientRect().top - LEAD
  target.animate?.(ATTENTION, { duration: 1_500, easing: "ease-out" })
  return target
}
