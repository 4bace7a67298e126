// The input for questions. Enter sends, Shift+Enter starts a new line; keys of an input method do neither.
import { useEffect, useId, useLayoutEffect, useRef, useState } from "react"

import { SendIcon, StopIcon } from "./icons"
import { isSubmitKey } from "./keyboard"
import type { ComposerProps } from "./props"
import { words } from "../words"

export function Composer({ draftKey = "", ...props }: ComposerProps) {
  return <Draft key={draftKey} {...props} />
}

function Draft({ onSend, onStop, busy, disabled = false, children }: Omit<ComposerProps, "draftKey">) {
  const [text, setText] = useState("")
  const field = useRef<HTMLTextAreaElement>(null)
  const hint = useId()

  useLayoutEffect(() => {
    // Not needed in browsers that size the field by its content.
    if (!field.current || CSS.supports?.("field-sizing", "content")) return
    field.current.style.height = "auto"
    field.current.style.height = `${field.current.scrollHeight}px`
  })

  useEffect(() => {
    // On a phone the on-screen keyboard would cover half of the page.
    if (window.matchMedia("(hover: hover)").matches) field.current?.focus({ preventScroll: true })
  }, [])

  const ready = text.trim() !== "" && !disabled && !busy
  const send = () => {
    if (!ready) return
    setText("")
    onSend(text.trim())
  }

  return (
    <form
      className="composer"
      aria-label={words.composer.form}
      onSubmit={(event) => {
        event.preventDefault()
        send()
      }}
    >
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
          if (!isSubmitKey(event) || event.altKey) return
          event.preventDefault()
          send()
        }}
      />
      <div className="composer__row">
        <div className="composer__tools">{children}</div>
        {busy ? (
          <button key="stop" type="button" className="round-button round-button--stop" data-testid="stop" aria-label={words.composer.stopAnswer} title={words.composer.stop} onClick={onStop}>
            <StopIcon />
          </button>
        ) : (
          <button key="send" type="submit" className="round-button" data-testid="send" aria-label={words.common.send} title={words.common.send} disabled={!ready}>
            <SendIcon />
          </button>
        )}
      </div>
      <span id={hint} className="visually-hidden">{words.common.sendHint}</span>
    </form>
  )
}
