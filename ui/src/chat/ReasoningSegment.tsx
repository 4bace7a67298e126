// “Show Reasoning”: one for each answer, closed by default, directly above the text. Open, it shows all reasoning parts
// and tools in order, the effort, the time, the tokens and their cost, and the timeline.
import { useContext, useEffect, useId, useLayoutEffect, useRef } from "react"
import type { ReactNode } from "react"

import type { Answer, ToolSegment } from "../api/types"
import { CopyButton } from "../text/CopyButton"
import { lazyModule } from "../text/lazyModule"
import { useStopFollowing } from "./followEnd"
import { CurrencyContext, formatDuration, formatMoney, effortOf, reasoningTime, reasoningTokens, formatTokens } from "./format"
import type { Step } from "./format"
import { ThoughtsContext } from "./thoughts"
import { words } from "../words"

/** Loaded with the first answer that has reasoning, so that it is there when it is opened. */
export const usePanel = lazyModule(() => import("./ReasoningPanel"))

interface Props {
  event: Answer
  /** All steps, in order. */
  steps: readonly Step[]
  open: boolean
  onOpen: (open: boolean) => void
  drawTool: (segment: ToolSegment) => ReactNode
}

export function ReasoningSegment({ event, steps, open, onOpen, drawTool }: Props) {
  const panel = useId()
  const loaded = usePanel(true)
  const stopFollowing = useStopFollowing()
  const { row, hold } = useHeldRow(open)
  const { openers, find } = useContext(ThoughtsContext)
  const meta = metadata(event, useContext(CurrencyContext))
  const thoughts = steps.filter((step) => step.type === "reasoning")
  const parts = thoughts.flatMap((step) => step.parts)
  const change = (isOpen: boolean) => {
    stopFollowing()
    hold()
    onOpen(isOpen)
  }
  useEffect(() => {
    openers.set(event.id, () => change(true))
    return () => void openers.delete(event.id)
  })
  return (
    <>
      <div className="step-row reasoning__row" ref={row}>
        <button type="button" className="reasoning__toggle" data-testid="show-reasoning" aria-expanded={open} aria-controls={panel} onClick={() => change(!open)}>
          <span className="reasoning__chevron" aria-hidden="true" />
          {open ? words.reasoning.hide : words.reasoning.show}
        </button>
        {meta.length > 0 && (
          <span className="reasoning__meta" data-testid="reasoning-meta">
            {meta.map((word) => (
              <span key={word} className="reasoning__fact"><bdi>{word}</bdi></span>
            ))}
          </span>
        )}
        {open && parts.length > 0 && (
          <span className="reasoning__actions">
            <button type="button" className="quiet-button" data-testid="find-thoughts" title={words.reasoning.findHint} onClick={() => find(event.id)}>{words.reasoning.find}</button>
            <CopyButton text={thoughts.map((step) => step.combined_text).filter((text) => text !== "").join("\n\n")} label={words.reasoning.copyAll} />
          </span>
        )}
      </div>
      <section
        id={panel}
        className={open ? "reasoning__panel reasoning__panel--open" : "reasoning__panel"}
        aria-label={words.reasoning.panel}
        hidden={!open}
        {...(open && { "data-testid": "reasoning-panel" })}
      >
        {open && loaded && <loaded.ReasoningPanel event={event} steps={steps} drawTool={drawTool} />}
      </section>
    </>
  )
}

/**
 * Scrolls so that the row stays where it was pressed, although the rows of tools above it move into the panel, and back.
 * Where the box is at its beginning, the row moves up to them: nothing is left empty.
 */
function useHeldRow(open: boolean) {
  const row = useRef<HTMLDivElement>(null)
  const top = useRef<number | null>(null)
  useLayoutEffect(() => {
    const element = row.current
    const before = top.current
    top.current = null
    if (!element || before === null) return
    const box = element.closest("[data-scroller]")
    if (box) box.scrollTop += element.getBoundingClientRect().top - before
  }, [open])
  const hold = () => {
    top.current = row.current?.getBoundingClientRect().top ?? null
  }
  return { row, hold }
}

/** What the reasoning took: time, tokens, money; and its effort. */
function metadata(event: Answer, currency: string | undefined): string[] {
  const time = reasoningTime(event)
  const count = reasoningTokens(event)
  const cost = event.usage?.reasoning_cost
  const effort = effortOf(event)
  return [
    time === null ? "" : formatDuration(time),
    count === null ? "" : formatTokens(count),
    cost === undefined || currency === undefined ? "" : words.reasoning.cost(formatMoney(cost, currency)),
    effort ? words.reasoning.effort(effort) : "",
  ].filter((word) => word !== "")
}
