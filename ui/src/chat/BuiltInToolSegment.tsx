// What a built-in tool of the provider did, for people: the pages that a search found, the code that ran and its output.
import { useId } from "react"

import type { Json, ToolSegment } from "../api/types"
import { CodeBlock } from "../text/CodeBlock"
import { visible } from "../text/visible"
import { sourcesIn } from "./citations"
import { SourceList } from "./Sources"
import { codeOf, outputOf } from "./toolLine"
import { words } from "../words"

export function BuiltInToolSegment({ segment }: { segment: ToolSegment }) {
  const name = useId()
  const sources = sourcesIn(segment.result)
  const code = segment.type === "code_interpreter_call" ? codeOf(segment.args) : ""
  const output = segment.type === "code_interpreter_call" ? outputOf(segment.result) : ""
  return (
    <>
      {sources.length > 0 && (
        <div className="tool__value">
          <div className="tool__label" id={name}>{words.answer.sources}</div>
          <SourceList sources={sources} labelledBy={name} />
        </div>
      )}
      {code !== "" && <CodeBlock code={code} language={languageOf(segment.name, segment.args)} />}
      {output !== "" && (
        <div className="tool__value">
          <div className="tool__label">{words.tools.output}</div>
          <pre className="tool__text" dir="auto" tabIndex={0} aria-label={words.tools.output}>{visible(output)}</pre>
        </div>
      )}
    </>
  )
}

/** The language of the code: a command is a shell's, everything else that providers run is Python. */
const languageOf = (name: string, args: Json) => (typeof args === "object" && args !== null && "command" in args ? "bash" : name.startsWith("code") ? "python" : "")
