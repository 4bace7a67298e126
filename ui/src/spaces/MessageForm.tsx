// The form to write in a space: to everyone or one participant, optionally as a reply. A sent message is shown as
// pending until the space has it.
import { useEffect, useId, useRef, useState } from "react"

import { preview } from "../chat/format"
import { CloseIcon, SendIcon } from "../shell/icons"
import { isSubmitKey } from "../shell/keyboard"
import { plain, visible } from "../text/visible"
import { textOf } from "./envelope"
import type { EnvelopeItem } from "./fold"
import type { Pending } from "./session"

interface Props {
  me: string | null
  people: readonly string[]
  /** The page shows the history, not the present. */
  past: boolean
  /** The participant has no capability for chat. */
  mute: boolean
  connected: boolean
  pending: readonly Pending[]
  answering: EnvelopeItem | null
  onAnswering: (item: EnvelopeItem | null) => void
  onSend: (text: string, more: { to?: string; answers?: string }) => void
  onDiscard: (id: string) => void
  onLive: () => void
}

export function MessageForm({ me, people, past, mute, connected, pending, answering, onAnswering, onSend, onDiscard, onLive }: Props) {
  const [text, setText] = useState("")
  const [to, setTo] = useState("")
  const field = useRef<HTMLTextAreaElement>(null)
  const hint = useId()
  useEffect(() => {
    if (answering) field.current?.focus({ preventScroll: true })
  }, [answering])

  const ready = text.trim() !== "" && connected
  const send = () => {
    if (!ready) return
    onSend(text.trim(), { ...(to !== "" && { to }), ...(answering && { answers: answering.envelope.id }) })
    setText("")
    onAnswering(null)
  }

  if (past) {
    return (
      <div className="say say--past" data-testid="say-past">
        <p>You are viewing the history. To write a message, return to the present.</p>
        <button type="button" className="text-button" onClick={onLive}>Back to live</button>
      </div>
    )
  }
  return (
    <div className="say">
      {pending.length > 0 && (
        <ul className="say__pending">
          {pending.map((one) => (
            <li key={one.id} className="say__sent" data-testid="pending" data-failed={one.failure !== undefined}>
              <span dir="auto" className="say__words">{visible(one.text)}</span>
              {one.failure === undefined ? <span className="say__state">Sending…</span> : (
                <>
                  <span className="say__state say__state--failed" role="alert" dir="auto">{visible(one.failure)}</span>
                  <button type="button" className="quiet-button" onClick={() => { setText(one.text); onDiscard(one.id); field.current?.focus() }}>Edit and resend</button>
                  <button type="button" className="quiet-button" onClick={() => onDiscard(one.id)}>Discard</button>
                </>
              )}
            </li>
          ))}
        </ul>
      )}
      {mute ? <p className="say__mute">You can read here, but you cannot write in the conversation.</p> : (
        <form className="composer" aria-label="Write a message" onSubmit={(event) => { event.preventDefault(); send() }}>
          {answering && (
            <p className="say__answering">
              <span className="say__words"><span aria-hidden="true">↩ </span>To <bdi>{plain(answering.envelope.from)}</bdi>: <span dir="auto">{plain(preview(textOf(answering.envelope)))}</span></span>
              <button type="button" className="icon-button say__close" aria-label="Do not reply to this message" onClick={() => onAnswering(null)}><CloseIcon /></button>
            </p>
          )}
          <textarea
            ref={field}
            className="composer__field"
            data-testid="say"
            aria-label="Your message"
            aria-describedby={hint}
            dir="auto"
            rows={1}
            enterKeyHint="send"
            placeholder={me === null ? "Write a message" : `Write a message as ${plain(me)}`}
            value={text}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={(event) => {
              if (!isSubmitKey(event) || event.altKey) return
              event.preventDefault()
              send()
            }}
          />
          <div className="composer__row">
            <label className="composer__tools say__to">
              <span className="say__to-label">To</span>
              <select className="select" data-testid="to" value={people.includes(to) ? to : ""} onChange={(event) => setTo(event.target.value)}>
                <option value="">everyone</option>
                {people.filter((one) => one !== me).map((one) => <option key={one} value={one}>{plain(one)}</option>)}
              </select>
            </label>
            <button type="submit" className="round-button" data-testid="send" aria-label="Send" title="Send" disabled={!ready}><SendIcon /></button>
          </div>
          <span id={hint} className="visually-hidden">Press Enter to send, Shift+Enter for a new line.</span>
        </form>
      )}
    </div>
  )
}
