// All steps of an answer (reasoning and tools), above its text: overlays while it streams, persisted segments
// afterwards.
import { useState } from "react"

import type { Answer, ToolSegment } from "../api/types"
import { reasoningElapsed } from "../stream/elapsed"
import { useLiveMessage } from "../stream/hooks"
import { liveSteps } from "../stream/streamingBus"
import type { LiveMessage, LivePart, LiveSealed, LiveStep, LiveTool } from "../stream/streamingBus"
import { TextRoleContext } from "../text/role"
import { useFollowEnd, useStopFollowing } from "./followEnd"
import { growRow, useGrowth } from "./growEvenly"
import { ReasoningSegment } from "./ReasoningSegment"
import { StreamingReasoningOverlay } from "./StreamingReasoningOverlay"
import { StreamingToolsOverlay } from "./StreamingToolsOverlay"
import { ToolCallSegment } from "./ToolCallSegment"
import { isTool, stepsOf } from "./format"
import { FoldLine, foldedOf, isFirstCall } from "./toolFold"
import { words } from "../words"

interface Props {
  eventId: string
  /** The final event; undefined while the answer streams. */
  event: Answer | undefined
  skew: number
}

export function StepsPanel({ eventId, event, skew }: Props) {
  const box = useGrowth(event !== undefined)
  return <div className="steps-box" ref={box}>{event ? <PersistedSteps event={event} /> : <StreamingSteps eventId={eventId} skew={skew} />}</div>
}

function PersistedSteps({ event }: { event: Answer }) {
  const steps = stepsOf(event)
  const [openTools, setOpenTools] = useState<ReadonlySet<string>>(new Set())
  const [open, setOpen] = useState(false)
  const [unfolded, setUnfolded] = useState(false)
  const stopFollowing = useStopFollowing()
  if (steps.length === 0) return null
  const drawTool = (segment: ToolSegment) => (
    <ToolCallSegment
      key={segment.id}
      event={event}
      segment={segment}
      open={openTools.has(segment.id)}
      onOpen={(isOpen) => setOpenTools((now) => new Set(isOpen ? [...now, segment.id] : [...now].filter((id) => id !== segment.id)))}
    />
  )
  const tools = steps.filter(isTool)
  const folded = foldedOf(tools)
  const unfold = () => {
    stopFollowing()
    setUnfolded(!unfolded)
  }
  return (
    <div className="steps">
      {/* An opened panel has the tools among the thoughts. */}
      {!open && (
        <>
          {folded.length > 0 && (
            <button type="button" className="step-row tool__row tool__toggle" data-testid="tool-fold" aria-expanded={unfolded} onClick={unfold}>
              <FoldLine calls={folded} action={unfolded ? words.tools.showFewer : words.tools.showCalls} />
            </button>
          )}
          {(unfolded ? tools : tools.slice(folded.length)).map(drawTool)}
        </>
      )}
      {steps.some((step) => step.type === "reasoning") && <ReasoningSegment event={event} steps={steps} open={open} onOpen={setOpen} drawTool={drawTool} />}
    </div>
  )
}

function StreamingSteps({ eventId, skew }: { eventId: string; skew: number }) {
  const message = useLiveMessage(eventId)
  const steps = message ? liveSteps(message) : []
  // Hidden until the first step arrives.
  return message && steps.length > 0 ? <Overlay message={message} steps={steps} skew={skew} /> : null
}

/** What arrives this soon after the text is a stream that is resumed. */
const RESUMED_MS = 100

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
  // Once there is text below it, the overlay takes only the space of the persisted rows, in their order: the tools, and
  // then the reasoning. Rows that come later push the text down, slowly enough to be followed.
  const compact = message.texts.size > 0
  const textSeen = Math.min(...[...message.texts.values()].map((text) => text.seen_at))
  const isLate = (seen: number) => seen > textSeen + RESUMED_MS
  const tools = steps.filter((step) => step.kind === "tool")
  const folded = new Set(compact ? foldedOf(tools) : [])
  // A row that takes the place of a folded one moves nothing.
  const late = new Set(tools.filter((tool, index) => isFirstCall(index) && isLate(tool.seen_at)))
  const over = message.error !== undefined || message.cancelled
  const open = steps.findLast((step): step is LivePart => step.kind === "part" && !step.complete)
  const head = {
    eventId: message.event_id,
    thinking: thinking(message, steps),
    author: author(message),
    elapsed: reasoningElapsed(message, skew),
    shown: !compact && open !== undefined,
    compact,
    late: isLate(Math.min(...[...message.segments.values()].map((segment) => segment.seen_at))),
    line: compact ? open : undefined,
  }
  const state = `overlay${compact ? " overlay--compact" : ""}${over ? " overlay--over" : ""}`
  return (
    <div className={state} ref={box} data-testid="overlay" role="group" aria-label={words.reasoning.overlay} aria-hidden={over} onAnimationStart={growRow}>
      <div className="overlay__inner" ref={inner}>
        <TextRoleContext value={"overlay"}>
          {folded.size > 0 && <div className="step-row tool__row" data-testid="tool-fold"><FoldLine calls={[...folded]} /></div>}
          {runs.map((run, index) =>
            run.kind === "reasoning" ? (
              <StreamingReasoningOverlay key={index} eventId={message.event_id} steps={run.steps} {...(index === first && { head })} />
            ) : (
              <StreamingToolsOverlay key={index} eventId={message.event_id} tools={run.steps.filter((tool) => !folded.has(tool))} skew={skew} compact={compact} late={late} />
            ),
          )}
        </TextRoleContext>
      </div>
    </div>
  )
}

/** The model that writes the summaries of this answer's reasoning, if it is another one, and whether it is writing. */
function author(message: LiveMessage): { name: string; writing: boolean } | undefined {
  const segment = [...message.segments.values()].at(-1)
  if (segment?.author === undefined) return undefined
  return { name: segment.author, writing: segment.completed_at !== undefined && message.texts.size === 0 }
}

/** Whether the model is thinking now: a part is open, or the last step is sealed reasoning. */
function thinking(message: LiveMessage, steps: readonly LiveStep[]): boolean {
  const last = steps.at(-1)
  if (last && last.kind !== "tool" && message.segments.get(last.segment_id)?.completed_at !== undefined) return false
  if (steps.some((step) => step.kind === "part" && !step.complete)) return true
  return last?.kind === "sealed" && message.texts.size === 0
}
