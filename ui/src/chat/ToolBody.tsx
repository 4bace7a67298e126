// What an opened tool shows: for people the sources of a search, or code and its output; then the arguments as the model
// wrote them, and the result. Loaded when the first tool is opened.
import { useMemo, useState } from "react"

import type { Json, ToolSegment } from "../api/types"
import { visible } from "../text/visible"
import { BuiltInToolSegment } from "./BuiltInToolSegment"
import { formatJson } from "./format"
import { words } from "../words"

/** The characters and lines of a long value that are shown at first. */
const MAX_CHARS = 2_000
const MAX_LINES = 30

export function ToolBody({ segment }: { segment: ToolSegment }) {
  const { args, args_text, result, error } = segment
  return (
    <>
      {segment.type !== "tool_call" && <BuiltInToolSegment segment={segment} />}
      <Value name={words.tools.arguments} value={args_text ?? args} />
      {error === undefined ? <Value name={words.tools.result} value={result} /> : <Value name={words.tools.error} value={error} />}
    </>
  )
}

function shortened(text: string): string {
  let end = -1
  for (let line = 0; line < MAX_LINES; line++) {
    end = text.indexOf("\n", end + 1)
    if (end < 0 || end > MAX_CHARS) break
  }
  return text.slice(0, end < 0 ? MAX_CHARS : Math.min(end, MAX_CHARS))
}

function Value({ name, value }: { name: string; value: Json | undefined }) {
  const [all, setAll] = useState(false)
  const text = useMemo(() => formatJson(value), [value])
  if (text === "") return null
  const start = shortened(text)
  return (
    <div className="tool__value">
      <div className="tool__label">{name}</div>
      {/* A scrolling box must be reachable by keyboard. */}
      <pre className="tool__text" dir="auto" tabIndex={0} aria-label={name}>{visible(all ? text : start)}</pre>
      {!all && start.length < text.length && (
        <button type="button" className="quiet-button tool__more" data-testid="show-all" onClick={() => setAll(true)}>
          {words.tools.showAll(text.length)}
        </button>
      )}
    </div>
  )
}

