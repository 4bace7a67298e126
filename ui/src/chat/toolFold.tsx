// Many calls are few rows: the first row stands for all but the newest. The same live and afterwards.
import { plain } from "../text/visible"
import { toolIsOver } from "./format"
import { toolLine } from "./toolLine"
import { words } from "../words"

/** So many rows of calls stand above a text at most. */
const MAX_ROWS = 5

/** The calls that the first row stands for, if there are too many for a row each. */
export const foldedOf = <Call,>(calls: readonly Call[]): readonly Call[] => (calls.length > MAX_ROWS ? calls.slice(0, 1 - MAX_ROWS) : [])

/** Whether a call is one of the first, which get a row of their own at first. */
export const isFirstCall = (index: number) => index < MAX_ROWS

/** “Called calc 296 more times”. */
export function FoldLine({ calls, action }: { calls: readonly { name: string; status: string }[]; action?: string }) {
  const running = calls.some(({ status }) => !toolIsOver(status))
  const failed = calls.filter(({ status }) => status === "failed").length
  const name = calls[0]?.name ?? ""
  const label = calls.every((call) => call.name === name) ? toolLine({ name, args: null, running }).label : words.tools.several[running ? 0 : 1]
  return (
    <>
      {running ? <span className="spinner" aria-hidden="true" /> : <span className={`tool__mark tool__mark--${failed === calls.length ? "failed" : "completed"}`} aria-hidden="true" />}
      <span className="tool__name">{plain(words.tools.moreTimes(label, calls.length))} </span>
      <span className="tool__status">
        {failed > 0 && <span className="tool__fact">{words.tools.failed(failed)}</span>}
        {action && <span className="tool__fact">{action}</span>}
      </span>
    </>
  )
}
