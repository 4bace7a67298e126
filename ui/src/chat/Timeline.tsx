// The timeline of an answer: when it reasoned, called tools and wrote, as a bar on which a reader goes to a moment; for
// screen readers, as a list.
import { useRef, useState } from "react"
import type { KeyboardEvent, PointerEvent } from "react"

import type { Answer } from "../api/types"
import { useStopFollowing } from "./followEnd"
import { formatDuration } from "./format"
import { placeAt, showPlace, spansOf } from "./moments"
import type { TimelineSpan } from "./moments"
import { words } from "../words"

/** The time that the spans cover, in milliseconds: of tools that ran at the same time, once. */
function covered(parts: readonly TimelineSpan[]): number {
  let sum = 0
  let until = -Infinity
  for (const { start, end } of parts.toSorted((a, b) => a.start - b.start)) {
    sum += Math.max(0, end - Math.max(start, until))
    until = Math.max(until, end)
  }
  return sum
}

function spanText({ name, start, end }: TimelineSpan, from: number): string {
  const length = formatDuration(end - start)
  return start - from < 500 ? words.timeline.spanAtOnce(name, length) : words.timeline.spanAfter(name, length, formatDuration(start - from))
}

const WIDTH = 1000
const MIN_WIDTH = 4

const STEPS: Readonly<Record<string, (at: number, last: number) => number>> = {
  ArrowRight: (at) => at + 1,
  ArrowUp: (at) => at + 1,
  ArrowLeft: (at) => at - 1,
  ArrowDown: (at) => at - 1,
  Home: () => 0,
  End: (_, last) => last,
}

export function Timeline({ event }: { event: Answer }) {
  const parts = spansOf(event)
  const [at, setAt] = useState(0)
  const figure = useRef<HTMLElement>(null)
  const stopFollowing = useStopFollowing()
  if (parts.length === 0) return null
  const from = Math.min(event.created_at, ...parts.map((part) => part.start))
  const to = Math.max(event.completed_at ?? 0, ...parts.map((part) => part.end))
  const length = Math.max(1, to - from)
  const scale = (time: number) => ((time - from) / length) * WIDTH
  const kinds = [...new Set(parts.map((part) => part.kind))]
  const waited = length - covered(parts)

  const show = (time: number) => {
    const place = placeAt(event, parts, time)
    const answer = figure.current?.closest("article")
    if (!place || !answer) return
    stopFollowing()
    showPlace(answer, place)
  }
  const press = ({ currentTarget, clientX, button }: PointerEvent) => {
    if (button !== 0) return
    const { left, width } = currentTarget.getBoundingClientRect()
    const ratio = Math.min(1, Math.max(0, (clientX - left) / Math.max(1, width)))
    const time = from + length * (getComputedStyle(currentTarget).direction === "rtl" ? 1 - ratio : ratio)
    setAt(Math.max(0, parts.findLastIndex((part) => part.start <= time)))
    show(time)
  }
  const step = (pressed: KeyboardEvent) => {
    const next = STEPS[pressed.key]?.(at, parts.length - 1)
    const part = parts[next === undefined ? at : Math.min(parts.length - 1, Math.max(0, next))]
    if (!part || (next === undefined && pressed.key !== "Enter" && pressed.key !== " ")) return
    pressed.preventDefault()
    setAt(parts.indexOf(part))
    show(part.start)
  }
  const current = parts[Math.min(at, parts.length - 1)]

  return (
    <figure className="timeline" data-testid="timeline" ref={figure}>
      <div
        className="timeline__control"
        role="slider"
        tabIndex={0}
        data-testid="timeline-control"
        aria-label={words.timeline.go}
        aria-valuemin={1}
        aria-valuemax={parts.length}
        aria-valuenow={Math.min(at, parts.length - 1) + 1}
        aria-valuetext={current && spanText(current, from)}
        onPointerUp={press}
        onKeyDown={step}
      >
        <svg className="timeline__bar" viewBox={`0 0 ${WIDTH} 12`} preserveAspectRatio="none" aria-hidden="true">
          <rect className="timeline__ground" x="0" y="0" width={WIDTH} height="12" />
          {parts.map((part) => {
            const width = Math.max(MIN_WIDTH, scale(part.end) - scale(part.start))
            return (
              <rect key={part.id} className={`timeline__span timeline__span--${part.kind}`} x={Math.min(scale(part.start), WIDTH - width)} y="0" width={width} height="12">
                <title>{words.timeline.span(part.name, formatDuration(part.end - part.start), formatDuration(part.start - from))}</title>
              </rect>
            )
          })}
        </svg>
      </div>
      <figcaption className="timeline__legend" aria-hidden="true">
        {kinds.map((kind) => (
          <span key={kind} className={`timeline__key timeline__key--${kind}`}>
            <bdi>{words.timeline.names[kind]} {formatDuration(covered(parts.filter((part) => part.kind === kind)))}</bdi>
          </span>
        ))}
        {waited >= 1000 && <span className="timeline__key timeline__key--waiting"><bdi>{words.timeline.waited(formatDuration(waited))}</bdi></span>}
        <span className="timeline__total"><bdi>{words.timeline.total(formatDuration(length))}</bdi></span>
      </figcaption>
      <ol className="visually-hidden" aria-label={words.timeline.label}>
        {parts.map((part) => (
          <li key={part.id}>{spanText(part, from)}</li>
        ))}
      </ol>
    </figure>
  )
}
