// The timeline of an answer: when it reasoned, called tools and wrote, as a bar; for screen readers, as a list.
import type { Answer } from "../api/types"
import { plain } from "../text/visible"
import { formatDuration, isTool, toolName } from "./format"
import { words } from "../words"

type Kind = "reasoning" | "tool" | "text"

interface TimelineSpan {
  id: string
  kind: Kind
  name: string
  start: number
  end: number
}

const NAMES: Record<Kind, string> = words.timeline.names

function spansOf(event: Answer): TimelineSpan[] {
  const byId = new Map(event.segments.map((segment) => [segment.id, segment]))
  return (event.timeline ?? []).flatMap((span) => {
    const segment = byId.get(span.segment_id)
    if (!segment) return []
    const kind: Kind = segment.type === "reasoning" ? "reasoning" : isTool(segment) ? "tool" : "text"
    const name = isTool(segment) ? words.timeline.called(plain(toolName(segment))) : NAMES[kind]
    return [{ id: span.segment_id, kind, name, start: span.started_at, end: Math.max(span.started_at, span.ended_at) }]
  })
}

/** The time that the spans cover, in milliseconds; the rest was waiting. */
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

export function Timeline({ event }: { event: Answer }) {
  const parts = spansOf(event)
  if (parts.length === 0) return null
  const from = Math.min(event.created_at, ...parts.map((part) => part.start))
  const to = Math.max(event.completed_at ?? 0, ...parts.map((part) => part.end))
  const length = Math.max(1, to - from)
  const scale = (time: number) => ((time - from) / length) * WIDTH
  const kinds = [...new Set(parts.map((part) => part.kind))]
  const waited = length - covered(parts)
  return (
    <figure className="timeline" data-testid="timeline">
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
      <figcaption className="timeline__legend" aria-hidden="true">
        {kinds.map((kind) => (
          <span key={kind} className={`timeline__key timeline__key--${kind}`}>
            {NAMES[kind]} {formatDuration(parts.filter((part) => part.kind === kind).reduce((sum, part) => sum + part.end - part.start, 0))}
          </span>
        ))}
        {waited >= 500 && <span className="timeline__key timeline__key--waiting">{words.timeline.waited(formatDuration(waited))}</span>}
        <span className="timeline__total">{words.timeline.total(formatDuration(length))}</span>
      </figcaption>
      <ol className="visually-hidden" aria-label={words.timeline.label}>
        {parts.map((part) => (
          <li key={part.id}>{spanText(part, from)}</li>
        ))}
      </ol>
    </figure>
  )
}
