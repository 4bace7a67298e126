// The instructions of a chat: read, written, and removed.
import "../styles/compose/dialogs.css"
import { useEffect, useId, useRef, useState } from "react"

import { Dialog } from "../primitives/Dialog"
import { useAction } from "../primitives/useAction"
import { words } from "../words"

interface Props {
  text: string
  maxLength: number
  /** The chosen model is an agent. */
  agent: boolean
  /** Rejects if they could not be saved. */
  onSave: (text: string) => Promise<void>
  onClose: () => void
}

export function Instructions({ text, maxLength, agent, onSave, onClose }: Props) {
  const [written, setWritten] = useState(text)
  const { busy, problem, run } = useAction(words.instructions.failed)
  const field = useRef<HTMLTextAreaElement>(null)
  const hint = useId()
  useEffect(() => field.current?.setSelectionRange(text.length, text.length), [text])
  // The gateway counts characters, not units of UTF-16.
  const left = maxLength - [...written.trim()].length
  return (
    <Dialog className="dialog dialog--wide" label={words.instructions.title} onClose={onClose}>
      <form
        className="dialog__inner"
        onSubmit={(event) => {
          event.preventDefault()
          if (left >= 0 && !busy) run(() => onSave(written.trim()).then(onClose))
        }}
      >
        <h2 className="dialog__title">{words.instructions.title}</h2>
        <p>{words.instructions.lead}</p>
        {agent && <p>{words.instructions.agent}</p>}
        <textarea
          ref={field}
          className="instructions__field"
          data-testid="instructions-field"
          aria-label={words.instructions.title}
          aria-describedby={hint}
          aria-invalid={left < 0}
          dir="auto"
          rows={6}
          placeholder={words.instructions.example}
          value={written}
          onChange={(event) => setWritten(event.target.value)}
        />
        <p id={hint} className="instructions__left" data-wrong={left < 0}>{left < 0 ? words.instructions.tooLong(-left) : words.instructions.left(left)}</p>
        {problem !== null && <p className="form-error" role="alert">{problem}</p>}
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onClose}>{words.common.cancel}</button>
          <button type="submit" className="button button--first" data-testid="instructions-save" disabled={left < 0 || busy}>{words.instructions.save}</button>
        </div>
      </form>
    </Dialog>
  )
}
