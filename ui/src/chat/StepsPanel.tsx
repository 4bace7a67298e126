// All steps of an answer (reasoning and tools), above its text: overlays while it streams, persisted segments
// afterwards.
import type { Answer } from "../api/types"
import { useLiveMessage } from "../stream/hooks"
import { liveSteps } from "../stream/streamingBus"
import type { LiveMessage, LivePart, LiveSealed, LiveStep, LiveTool } from "../stream/streamingBus"
import { useFollowEnd } from "./followEnd"
import { ReasoningSegment } from "./ReasoningSegment"
import { StreamingReasoningOverlay } from "./StreamingReasoningOverlay"
import { StreamingToolsOverlay } from "./StreamingToolsOverlay"
import { ToolSegmentOf } from "./ToolSegmentOf"
import { isTool, stepsOf } from "./format"
import { words } from "../words"

interface Props {
  eventId: string
  /** The final event; undefined while the answer streams. */
  event: Answer | undefined
  skew: number
}

export function StepsPanel({ eventId, event, skew }: Props) {
  return event ? <PersistedSteps event={event} /> : <StreamingSteps eventId={eventId} skew={skew} />
}

function PersistedSteps({ event }: { event: Answer }) {
  const steps = stepsOf(event)
  const first = steps.findIndex((step) => step.type === "reasoning")
  if (steps.length === 0) return null
  const before = first < 0 ? steps : steps.slice(0, first)
  return (
    <div className="steps">
      {before.filter(isTool).map((step) => (
        <ToolSegmentOf key={step.id} segment={step} />
      ))}
      {first >= 0 && <ReasoningSegment event={event} steps={steps.slice(first)} />}
    </div>
  )
}

function StreamingSteps({ eventId, skew }: { eventId: string; skew: number }) {
  const message = useLiveMessage(eventId)
  const steps = message ? liveSteps(message) : []
  // Hidden until the first step arrives.
  return message && steps.length > 0 ? <Overlay message={message} steps={steps} skew={skew} /> : null
}

type Run = { kind: "reasoning"; steps: (LivePart | LiveSealed)[] } | { kind: "tools"; steps: LiveTool[] }

/** Group consecutive steps of the same kind: reasoning or tools. */
function runsOf(steps: readonly LiveStep[]): Run[] {
  const runs: Run[] = []
  for (const step of steps) {
    const last = runs.at(-1)
    if (step.kind === "tool") {
      if (last?.kind === "tools") last.steps.push(step)
      else runs.push({ kind: "tools", steps: [step] })
    } else if (last?.kind === "reasoning") last.steps.push(step)
    else runs.push({ kind: "reasoning", steps: [step] })
  }
  return runs
}

function Overlay({ message, steps, skew }: { message: LiveMessage; steps: readonly LiveStep[]; skew: number }) {
  const { box, inner } = useFollowEnd()
  const runs = runsOf(steps)
  const first = runs.findIndex((run) => run.kind === "reasoning")
  const since = Math.min(...steps.filter((step) => step.kind !== "tool").map((step) => step.created_at))
  // Once there is text below it, the overlay takes only the space of the persisted rows.
  const compact = message.texts.size > 0
  const over = message.error !== undefined || message.cancelled
  const open = steps.findLast((step): step is LivePart => step.kind === "part" && !step.complete)
  const head = { eventId: message.event_id, thinking: thinking(message, steps), since, skew, line: compact ? open : undefined }
  const state = `overlay${compact ? " overlay--compact" : ""}${over ? " overlay--over" : ""}`
  return (
    <div className={state} ref={box} data-testid="overlay" role="group" aria-label={words.reasoning.overlay} aria-hidden={over}>
      <div className="overlay__inner" ref={inner}>
        {runs.map((run, index) =>
          run.kind === "reasoning" ? (
            <StreamingReasoningOverlay key={index} eventId={message.event_id} steps={run.steps} {...(index === first && { head })} />
          ) : (
            <StreamingToolsOverlay key={index} eventId={message.event_id} tools={run.steps} />
          ),
        )}
      </div>
    </div>
  )
}

/** Whether the model is thinking now: a part is open, or the last step is sealed reasoning. */
function thinking(message: LiveMessage, steps: readonly LiveStep[]): boolean {
  const last = steps.at(-1)
  if (steps.some((step) => step.kind === "part" && !step.complete)) return true
  return last?.kind === "sealed" && message.texts.size === 0
}
