// A question: its text, a form to edit it and ask again, and buttons to switch between versions.
import { useEffect, useId, useRef, useState } from "react"

import type { ShownFile } from "../compose/attached"
import { QuestionFiles } from "../compose/QuestionFiles"
import { isSubmitKey } from "../shell/keyboard"
import { CopyButton } from "../text/CopyButton"
import { visible } from "../text/visible"
import { useStopFollowing } from "./followEnd"
import { words } from "../words"

interface Props {
  /** Undefined until the gateway has assigned an id. */
  id?: string
  text: string
  files?: readonly ShownFile[]
  /** The answer ids of all versions, oldest first, and the one that is shown. */
  versions?: readonly string[]
  version?: string
  /** An answer is in progress, so the question cannot be asked again. */
  busy: boolean
  onEdit?: (text: string) => void
  onVersion?: (answerId: string) => void
}

export function UserEvent({ id, text, files = [], versions = [], version, busy, onEdit, onVersion }: Props) {
  const [editing, setEditing] = useState(false)
  const stopFollowing = useStopFollowing()
  const opener = useRef<HTMLButtonElement>(null)
  const close = () => {
    setEditing(false)
    requestAnimationFrame(() => opener.current?.focus())
  }
  const at = version === undefined ? -1 : versions.indexOf(version)
  return (
    <article className="question" data-testid="user-event" data-event-id={id} aria-label={words.chat.question}>
      <QuestionFiles files={files} />
      {editing ? (
        <Edit
          text={text}
          optional={files.length > 0}
          busy={busy}
          onCancel={close}
          onDone={(changed) => {
            setEditing(false)
            onEdit?.(changed)
          }}
        />
      ) : (
        <>
          {text !== "" && <div className="question__text" dir="auto">{visible(text)}</div>}
          <div className="question__foot">
            {versions.length > 1 && at >= 0 && (
              <span className="versions">
                <button type="button" className="versions__step" data-testid="version-prev" aria-label={words.chat.earlierVersion} disabled={busy || at === 0} onClick={() => onVersion?.(versions[at - 1] ?? "")}>
                  ‹
                </button>
                <span className="versions__count">{at + 1}/{versions.length}</span>
                <button type="button" className="versions__step" data-testid="version-next" aria-label={words.chat.laterVersion} disabled={busy || at === versions.length - 1} onClick={() => onVersion?.(versions[at + 1] ?? "")}>
                  ›
                </button>
              </span>
            )}
            {onEdit && (
              <button
                ref={opener}
                type="button"
                className="quiet-button"
                data-testid="edit"
                disabled={busy}
                onClick={() => {
                  stopFollowing()
                  setEditing(true)
                }}
              >
                {words.chat.edit}
              </button>
            )}
            <CopyButton text={text} label={words.chat.copyQuestion} />
          </div>
        </>
      )}
    </article>
  )
}

interface EditProps {
  text: string
  /** The question has files, so it needs no text. */
  optional: boolean
  busy: boolean
  onCancel: () => void
  onDone: (text: string) => void
}

function Edit({ text, optional, busy, onCancel, onDone }: EditProps) {
  const [draft, setDraft] = useState(text)
  const field = useRef<HTMLTextAreaElement>(null)
  const hint = useId()
  const ready = (optional || draft.trim() !== "") && !busy
  useEffect(() => {
    field.current?.focus()
    field.current?.setSelectionRange(text.length, text.length)
  }, [text])
  return (
    <form
      className="question__edit"
      onSubmit={(event) => {
        event.preventDefault()
        if (ready) onDone(draft.trim())
      }}
    >
      <textarea
        ref={field}
        className="question__field"
        data-testid="edit-field"
        aria-label={words.chat.editField}
        aria-describedby={hint}
        dir="auto"
        rows={Math.min(12, draft.split("\n").length + 1)}
        value={draft}
        onChange={(event) => setDraft(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.preventDefault()
            event.stopPropagation()
            onCancel()
          } else if (isSubmitKey(event)) {
            event.preventDefault()
            if (ready) onDone(draft.trim())
          }
        }}
      />
      <div className="question__buttons">
        <button type="button" className="button" onClick={onCancel}>{words.common.cancel}</button>
        <button type="submit" className="button button--first" data-testid="edit-send" disabled={!ready}>{words.chat.askAgain}</button>
      </div>
      <span id={hint} className="visually-hidden">{words.chat.editHint}</span>
    </form>
  )
}
