// A question: its text and files, a form to edit them and ask again, and buttons to switch between versions.
import { useContext, useEffect, useId, useRef, useState } from "react"

import { Attached } from "../compose/Attached"
import type { ShownFile } from "../compose/questionFile"
import { pastedFiles } from "../compose/listenToFiles"
import { FilePicker } from "../compose/FilePicker"
import { QuestionFiles } from "../compose/QuestionFiles"
import { AskingContext, filesToChange, useQuestionFiles } from "../compose/useQuestionFiles"
import { PlusIcon } from "../primitives/icons"
import { isSubmitKey } from "../primitives/keyboard"
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
  onEdit?: (text: string, files: readonly ShownFile[]) => void
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
      {editing ? (
        <Edit
          text={text}
          before={files}
          busy={busy}
          onCancel={close}
          onDone={(changed, kept) => {
            setEditing(false)
            onEdit?.(changed, kept)
          }}
        />
      ) : (
        <>
          <QuestionFiles files={files} />
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
  /** Its files. */
  before: readonly ShownFile[]
  busy: boolean
  onCancel: () => void
  onDone: (text: string, files: readonly ShownFile[]) => void
}

function Edit({ text, before, busy, onCancel, onDone }: EditProps) {
  const asking = useContext(AskingContext)
  const [draft, setDraft] = useState(text)
  const attached = useQuestionFiles(() => filesToChange(before), asking)
  const { files, attach, isComplete, problems } = attached
  const picker = useRef<HTMLInputElement>(null)
  const field = useRef<HTMLTextAreaElement>(null)
  const hint = useId()
  const ready = (files.length > 0 || draft.trim() !== "") && isComplete && !busy
  const done = () => ready && onDone(draft.trim(), files)
  useEffect(() => {
    field.current?.focus()
    field.current?.setSelectionRange(text.length, text.length)
  }, [text])
  return (
    <form
      className="question__edit"
      onSubmit={(event) => {
        event.preventDefault()
        done()
      }}
      onDrop={(event) => {
        if (event.dataTransfer.files.length === 0) return
        event.preventDefault()
        attach([...event.dataTransfer.files])
      }}
    >
      <Attached attached={attached} field={field} />
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
        onPaste={(event) => {
          const pasted = pastedFiles(event.clipboardData)
          if (pasted.length === 0) return
          event.preventDefault()
          attach(pasted)
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.preventDefault()
            event.stopPropagation()
            onCancel()
          } else if (isSubmitKey(event)) {
            event.preventDefault()
            done()
          }
        }}
      />
      <div className="question__buttons">
        {asking.limits && (
          <button type="button" className="icon-button question__attach" data-testid="edit-attach" aria-label={words.chat.addFiles} title={words.chat.addFiles} onClick={() => picker.current?.click()}>
            <PlusIcon />
          </button>
        )}
        <button type="button" className="button" onClick={onCancel}>{words.common.cancel}</button>
        <button type="submit" className="button button--first" data-testid="edit-send" title={problems?.each.find(Boolean) ?? problems?.total} disabled={!ready}>{words.chat.askAgain}</button>
      </div>
      <FilePicker ref={picker} label={words.chat.addFiles} testId="edit-files" onPick={attach} />
      <span id={hint} className="visually-hidden">{words.chat.editHint}</span>
    </form>
  )
}
