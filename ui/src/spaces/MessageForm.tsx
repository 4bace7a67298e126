// The form to write in a space: to everyone or one participant, optionally as a reply. A sent message is shown as
// pending until the space has it.
import { useEffect, useId, useRef, useState } from "react"

import { CloseIcon, SendIcon } from "../primitives/icons"
import { isSubmitKey } from "../primitives/keyboard"
import { lineOf } from "../text/line"
import { plain, visible } from "../text/visible"
import { textOf } from "./envelope"
import type { EnvelopeItem } from "./fold"
import type { Pending } from "./session"
import { fill } from "../text/fill"
import { words } from "../words"

interface Props {
  me: string | null
  participants: readonly string[]
  /** The page shows the history, not the present. */
  past: boolean
  /** The participant has no capability for chat. */
  readOnly: boolean
  connected: boolean
  pending: readonly Pending[]
  replyTo: EnvelopeItem | null
  onReplyTo: (item: EnvelopeItem | null) => void
  onSend: (text: string, more: { to?: string; repliesTo?: string }) => void
  onDiscard: (id: string) => void
  /** Explain how a model takes part; set while nobody else is here. */
  onGuide?: () => void
  onLive: () => void
}

export function MessageForm({ me, participants, past, readOnly, connected, pending, replyTo, onReplyTo, onSend, onDiscard, onGuide, onLive }: Props) {
  const [text, setText] = useState("")
  const [to, setTo] = useState("")
  const field = useRef<HTMLTextAreaElement>(null)
  const hint = useId()
  useEffect(() => {
    if (replyTo) field.current?.focus({ preventScroll: true })
  }, [replyTo])

  const ready = text.trim() !== "" && connected
  const send = () => {
    if (!ready) return
    onSend(text.trim(), { ...(to !== "" && { to }), ...(replyTo && { repliesTo: replyTo.envelope.id }) })
    setText("")
    onReplyTo(null)
  }

  if (past) {
    return (
      <div className="message-form message-form--past" data-testid="message-form-past">
        <p>{words.spaces.message.past}</p>
        <button type="button" className="text-button" onClick={onLive}>{words.spaces.message.toLive}</button>
      </div>
    )
  }
  return (
    <div className="message-form">
      {pending.length > 0 && (
        <ul className="message-form__pending">
          {pending.map((one) => (
            <li key={one.id} className="message-form__sent" data-testid="pending" data-failed={one.failure !== undefined}>
              <span dir="auto" className="message-form__text">{visible(one.text)}</span>
              {one.failure === undefined ? <span className="message-form__state">{words.spaces.message.sending}</span> : (
                <>
                  <span className="message-form__state message-form__state--failed" role="alert" dir="auto">{visible(one.failure)}</span>
                  <button type="button" className="quiet-button" onClick={() => { setText(one.text); onDiscard(one.id); field.current?.focus() }}>{words.spaces.message.resend}</button>
                  <button type="button" className="quiet-button" onClick={() => onDiscard(one.id)}>{words.spaces.message.discard}</button>
                </>
              )}
            </li>
          ))}
        </ul>
      )}
      {onGuide && (
        <p className="message-form__alone" data-testid="alone">
          {words.spaces.guide.alone} <button type="button" className="text-button" data-testid="open-guide" onClick={onGuide}>{words.spaces.guide.title}</button>
        </p>
      )}
      {readOnly ? <p className="message-form__read-only">{words.spaces.message.readOnly}</p> : (
        <form className="composer" aria-label={words.spaces.message.form} onSubmit={(event) => { event.preventDefault(); send() }}>
          {replyTo && (
            <p className="message-form__reply">
              <span className="message-form__text"><span aria-hidden="true">↩ </span>{fill(words.spaces.message.replyTo, { who: <bdi>{plain(replyTo.envelope.from)}</bdi>, text: <span dir="auto">{plain(lineOf(textOf(replyTo.envelope)))}</span> })}</span>
              <button type="button" className="icon-button message-form__close" aria-label={words.spaces.message.noReply} onClick={() => onReplyTo(null)}><CloseIcon /></button>
            </p>
          )}
          <textarea
            ref={field}
            className="composer__field"
            data-testid="message-field"
            aria-label={words.spaces.message.field}
            aria-describedby={hint}
            dir="auto"
            rows={1}
            enterKeyHint="send"
            placeholder={me === null ? words.spaces.message.form : words.spaces.message.formAs(plain(me))}
            value={text}
            onChange={(event) => setText(event.target.value)}
            onKeyDown={(event) => {
              if (!isSubmitKey(event) || event.altKey) return
              event.preventDefault()
              send()
            }}
          />
          <div className="composer__row">
            <label className="composer__tools message-form__to">
              <span className="message-form__to-label">{words.spaces.message.to}</span>
              <select className="select" data-testid="recipient" value={participants.includes(to) ? to : ""} onChange={(event) => setTo(event.target.value)}>
                <option value="">{words.spaces.message.everyone}</option>
                {participants.filter((one) => one !== me).map((one) => <option key={one} value={one}>{plain(one)}</option>)}
              </select>
            </label>
            <button type="submit" className="round-button" data-testid="send" aria-label={words.common.send} title={words.common.send} disabled={!ready}><SendIcon /></button>
          </div>
          <span id={hint} className="visually-hidden">{words.common.sendHint}</span>
        </form>
      )}
    </div>
  )
}
