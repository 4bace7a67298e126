// A code block: language, copy button (in answers), scroll box, and highlighting once it is loaded.
import { memo, useContext, useMemo } from "react"

import { CopyButton } from "./CopyButton"
import { lazyModule } from "./lazyModule"
import { LIMITS } from "./limits"
import { TextRoleContext } from "./role"
import { plain, visible } from "./visible"
import { words } from "../words"

const useColours = lazyModule(() => import("./highlight"))
const NO_COLOURS = new Set(["", "text", "txt", "plain", "plaintext", "none"])

interface Props {
  code: string
  language: string
  /** The block is still being written. */
  open?: boolean
}

export const CodeBlock = memo(function CodeBlock({ code, language, open = false }: Props) {
  const isColoured = !NO_COLOURS.has(language) && code.length <= (open ? LIMITS.colouredGrowing : LIMITS.coloured)
  const colours = useColours(isColoured)
  const drawn = useMemo(() => colours?.highlight(code, language) ?? visible(code), [colours, code, language])
  const label = plain(language).slice(0, 40)
  const isAnswer = useContext(TextRoleContext) === "answer"
  return (
    <figure className="code" dir="ltr">
      {(isAnswer || label !== "") && (
        <figcaption className="code__head">
          <span className="code__language">{label || words.text.code}</span>
          {isAnswer && <CopyButton text={code} label={words.text.copyCode} />}
        </figcaption>
      )}
      {/* A scrolling box must be reachable by keyboard. */}
      <pre className="code__body" tabIndex={0}>
        <code>{drawn}</code>
      </pre>
    </figure>
  )
})
