// The row of a tool: what it does or did, on one line, with its sources and its time. The same live and afterwards.
import type { ReactNode } from "react"

import { plain } from "../text/visible"
import { toolIsOver, toolStatus } from "./format"
import { toolLine } from "./toolLine"
import type { LineSource } from "./toolLine"
import { words } from "../words"

interface Props extends Omit<LineSource, "running"> {
  status: string
  /** The number of pages that it found. */
  sources: number
  /** Its time, as an element; null if it took less than a second. */
  time: ReactNode
  /** Between the line and the status. */
  children?: ReactNode
}

export function ToolRow({ name, args, status, sources, time, children }: Props) {
  const over = toolIsOver(status)
  const { label, detail, isCode } = toolLine({ name, args, running: !over })
  return (
    <>
      {over ? <span className={`tool__mark tool__mark--${status}`} aria-hidden="true" /> : <span className="spinner" aria-hidden="true" />}
      <span className="tool__name">{plain(label)} </span>
      {detail !== "" && <bdi className={isCode ? "tool__detail tool__detail--code" : "tool__detail"} {...(isCode && { dir: "ltr" })}>{plain(detail)} </bdi>}
      {children}
      <span className="tool__status">
        {sources > 0 && <span className="tool__fact">{words.tools.sources(sources)}</span>}
        {time !== null && <span className="tool__fact">{time}</span>}
        {(status !== "completed" || (sources === 0 && time === null)) && <span className="tool__fact">{plain(toolStatus(status))}</span>}
      </span>
    </>
  )
}
