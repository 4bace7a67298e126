// The input for questions: text, and files that are dropped, pasted or picked. Enter sends, Shift+Enter starts a new
// line; keys of an input method do neither.
import { useCallback, useEffect, useId, useImperativeHandle, useLayoutEffect, useRef, useState } from "react"
import type { ReactNode, Ref } from "react"
import { flushSync } from "react-dom"

import { SendIcon, StopIcon } from "../primitives/icons"
import { isSubmitKey } from "../primitives/keyboard"
import { Attached } from "./Attached"
import { FilePicker } from "./FilePicker"
import { joinQuestions } from "./questionFile"
import type { QuestionDraft } from "./questionFile"
import { listenToFiles } from "./listenToFiles"
import { useQuestionFiles } from "./useQuestionFiles"
import type { Asking } from "./useQuestionFiles"
import { words } from "../words"

export interface ComposerHandle {
  focus: () => void
  /** Focus the field after something else was used, so that writing can go on. Returns whether it is focused. */
  resume: () => boolean
  /** Open the browser's dialog for files. */
  pick: () => void
  /** Store the draft now. */
  flush: () => void
  /** Add a question after what is written, and focus the field. */
  insert: (question: QuestionDraft) => void
}

/** A new `key` begins with another draft, and focuses the field. */
interface Props extends Asking {
  ref?: Ref<ComposerHandle>
  /** What the field begins with. */
  initial?: QuestionDraft
  /** The question changed, or was sent. */
  onDraft?: (draft: QuestionDraft) => void
  /** The question is cleared from the field; if it is rejected, a retry is offered with the answer. */
  onSend: (question: QuestionDraft) => void
  onStop: () => void
  /** An answer is in progress: a button stops it, and a question waits for its end. */
  busy: boolean
  /** The menu next to the pickers; it gets the function that opens the dialog for files. */
  menu?: (pick: () => void) => ReactNode
  disabled?: boolean
  /** The pickers below the text. */
  children?: ReactNode
}

const DRAFT_MS = 300

/** Whether the focus opens no keyboard on the screen, which would cover half of a phone. */
const hasKeys = () => window.matchMedia("(hover: hover)").matches

function focusEnd(field: HTMLTextAreaElement | null) {
  field?.focus({ preventScroll: true })
  field?.setSelectionRange(field.value.length, field.value.length)
}

export function Composer({ ref, initial, onDraft, onSend, onStop, busy, disabled = false, limits, model, menu, children }: Props) {
  const [text, setText] = useState(initial?.text ?? "")
  const attached = useQuestionFiles(() => initial?.files ?? [], { limits, model })
  const { files, attach, add, clear, isComplete, problems } = attached
  const field = useRef<HTMLTextAreaElement>(null)
  const picker = useRef<HTMLInputElement>(null)
  const hint = useId()

  useLayoutEffect(() => {
    // Not needed in browsers that size the field by its content.
    if (!field.current || CSS.supports?.("field-sizing", "content")) return
    field.current.style.height = "auto"
    field.current.style.height = `${field.current.scrollHeight}px`
  })

  useEffect(() => {
    if (hasKeys()) focusEnd(field.current)
  }, [])

  // The draft is stored after a pause, and when the field or the page goes away.
  const stored = useRef({ text, files, onDraft })
  const store = useRef(() => {})
  useLayoutEffect(() => {
    store.current = () => {
      const { current } = stored
      // Something else may have been added to the draft meanwhile.
      const isSame = current.files === files || current.files.length + files.length === 0
      if (current.text === text && isSame && current.onDraft === onDraft) return
      stored.current = { text, files, onDraft }
      onDraft?.({ text, files })
    }
  })
  useEffect(() => {
    const timer = setTimeout(() => store.current(), DRAFT_MS)
    return () => clearTimeout(timer)
  }, [text, files, onDraft])
  useLayoutEffect(() => {
    const flush = () => store.current()
    addEventListener("pagehide", flush)
    return () => {
      removeEventListener("pagehide", flush)
      flush()
    }
  }, [])

  const pick = useCallback(() => picker.current?.click(), [])
  const resume = useCallback(() => {
    if (hasKeys()) field.current?.focus()
    return hasKeys()
  }, [])
  const onFiles = useCallback(
    (chosen: readonly File[]) => {
      attach(chosen)
      resume()
    },
    [attach, resume],
  )
  const [dropping, onDropping] = useState(false)
  useEffect(() => {
    const over = new AbortController()
    if (field.current) listenToFiles(field.current, { onFiles, onDropping }, over.signal)
    return () => over.abort()
  }, [onFiles])
  useImperativeHandle(
    ref,
    () => ({
      pick,
      focus: () => field.current?.focus(),
      resume,
      flush: () => store.current(),
      insert: (question) => {
        flushSync(() => {
          setText((now) => joinQuestions({ text: now, files: [] }, question).text)
          add(question.files)
        })
        focusEnd(field.current)
      },
    }),
    [pick, add, resume],
  )

  const ready = (text.trim() !== "" || files.length > 0) && isComplete && !disabled
  const send = () => {
    if (!ready) return
    const question = { text: text.trim(), files }
    const empty = { text: "", files: [] }
    setText("")
    clear()
    stored.current = { ...empty, onDraft }
    onDraft?.(empty)
    onSend(question)
  }
  const sendName = busy ? words.compose.sendWhenReady : words.common.send

  return (
    <form
      className="composer"
      aria-label={words.composer.form}
      data-composer
      data-dropping={dropping}
      onSubmit={(event) => {
        event.preventDefault()
        send()
      }}
    >
      <Attached attached={attached} field={field} />
      <textarea
        ref={field}
        className="composer__field"
        data-testid="composer"
        aria-label={words.composer.field}
        aria-describedby={hint}
        dir="auto"
        rows={1}
        enterKeyHint="send"
        placeholder={words.composer.placeholder}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape" && !busy) field.current?.blur()
          if (!isSubmitKey(event) || event.altKey) return
          event.preventDefault()
          send()
        }}
      />
      <div className="composer__row">
        <div className="composer__tools">
          {menu?.(pick)}
          {children}
        </div>
        {busy && (
          <button key="stop" type="button" className="round-button round-button--stop" data-testid="stop" aria-label={words.composer.stopAnswer} title={words.composer.stop} onClick={onStop}>
            <StopIcon />
          </button>
        )}
        {(!busy || ready) && (
          <button key="send" type="submit" className="round-button" data-testid={busy ? "queue" : "send"} aria-label={sendName} title={problems?.each.find(Boolean) ?? problems?.total ?? sendName} disabled={!ready}>
            <SendIcon />
          </button>
        )}
      </div>
      {dropping && <p className="composer__drop">{words.compose.dropHere}</p>}
      <FilePicker ref={picker} label={words.compose.attachInput} testId="file-input" onPick={onFiles} />
      <span id={hint} className="visually-hidden">{words.common.sendHint}</span>
    </form>
  )
}
