// The comment on an answer.
import { useState } from "react"

import { Dialog } from "../primitives/Dialog"
import { directionOf } from "../text/direction"
import { useAction } from "../primitives/useAction"
import { words } from "../words"

interface Props {
  comment: string
  onSave: (comment: string) => Promise<void>
  onClose: () => void
}

export default function CommentDialog({ comment, onSave, onClose }: Props) {
  const [text, setText] = useState(comment)
  const { busy, problem, run } = useAction(words.feedback.failed)
  return (
    <Dialog className="dialog" label={words.feedback.title} onClose={onClose}>
      <form
        className="dialog__inner"
        onSubmit={(event) => {
          event.preventDefault()
          run(() => onSave(text.trim()).then(onClose))
        }}
      >
        <h2 className="dialog__title">{words.feedback.title}</h2>
        <textarea className="share__field" data-testid="comment-field" aria-label={words.feedback.title} dir={directionOf(text)} rows={4} maxLength={4000} value={text} onChange={(event) => setText(event.target.value)} />
        <p>{words.feedback.note}</p>
        {problem !== null && <p className="form-error" role="alert">{problem}</p>}
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onClose}>{words.common.cancel}</button>
          <button type="submit" className="button button--first" disabled={busy}>{words.feedback.save}</button>
        </div>
      </form>
    </Dialog>
  )
}
