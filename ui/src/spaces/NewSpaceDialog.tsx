// The dialog that creates a space, empty or from a chat, and opens it.
import "../styles/spaces/list.css"
import { useState } from "react"

import type { View } from "../api/types"
import { Dialog } from "../primitives/Dialog"
import { directionOf } from "../text/direction"
import { spacePath } from "../routes"
import { words } from "../words"
import { createSpace } from "./owned"
import { storeToken } from "./tokens"
import { ParticipantField } from "./ParticipantField"
import { useAction } from "../primitives/useAction"

interface Props {
  /** The chat with which the space begins, and the view in which it is taken. */
  chat?: { id: string; title: string; view?: View }
  onClose: () => void
}

/** A name for the space of a chat: the letters and digits of its title. */
const nameOf = (title: string) => title.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 40)

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/
/** The name that is meant: "Beach trip" is beach-trip. */
const named = (typed: string) => (NAME.test(typed.trim()) ? typed.trim() : nameOf(typed))

export function NewSpaceDialog({ chat, onClose }: Props) {
  const [typed, setTyped] = useState(() => nameOf(chat?.title ?? ""))
  const name = named(typed)
  const [topic, setTopic] = useState(chat?.title ?? "")
  const [participant, setParticipant] = useState("")
  const { busy, problem, run } = useAction(words.spaces.list.failed)
  const title = chat ? words.spaces.taking.title : words.spaces.list.createTitle
  const create = () =>
    run(async () => {
      if (name === "") throw new Error(words.spaces.list.nameNeeded)
      const made = await createSpace({ name, participant, topic: topic.trim().slice(0, 300), ...(chat && { conversation_id: chat.id }) }, chat?.view)
      storeToken(name, made.token, "browser")
      location.assign(spacePath(name))
    })
  return (
    <Dialog className="dialog" label={title} onClose={onClose}>
      <form className="dialog__inner space-form" data-testid="new-space-form" onSubmit={(event) => { event.preventDefault(); create() }}>
        <h2 className="dialog__title">{title}</h2>
        {chat && <p>{words.spaces.taking.text}</p>}
        <label className="sign-in__label">
          {words.spaces.list.name}
          <input className="sign-in__field" data-testid="space-name" required maxLength={64} title={words.spaces.list.nameHint} placeholder={words.spaces.list.nameHint} autoComplete="off" spellCheck={false} value={typed} onChange={(event) => setTyped(event.target.value)} onBlur={() => setTyped(name || typed)} />
        </label>
        <label className="sign-in__label">
          {words.spaces.list.topic}
          <input className="sign-in__field space-form__text" data-testid="space-topic" maxLength={300} autoComplete="off" dir={directionOf(topic)} value={topic} onChange={(event) => setTopic(event.target.value)} />
        </label>
        <ParticipantField className="space-form__text" label={words.spaces.list.you} testId="space-you" value={participant} onChange={setParticipant} />
        {problem !== null && <p className="form-error" role="alert">{problem}</p>}
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onClose}>{words.common.cancel}</button>
          <button type="submit" className="button button--first" data-testid="create-space" disabled={busy}>{chat ? words.spaces.taking.create : words.spaces.list.createButton}</button>
        </div>
      </form>
    </Dialog>
  )
}
