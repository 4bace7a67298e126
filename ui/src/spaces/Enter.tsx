// The form with which the owner of a space enters it under a new name. Shown only if the space is the signed-in user's,
// and the user may.
import { useEffect, useState } from "react"

import { words } from "../words"
import { enterSpace, mayCreateSpaces, ownSpaces } from "./owned"
import { ParticipantField } from "./ParticipantField"
import { useAction } from "../primitives/useAction"

export function Enter({ space, onEntered }: { space: string; onEntered: (token: string) => void }) {
  const [isOwn, setOwn] = useState(false)
  const [name, setName] = useState("")
  const { busy, problem, run } = useAction(words.spaces.list.enterFailed)
  useEffect(() => {
    const own = ownSpaces().then((all) => all.some((one) => one.name === space), () => false)
    // Who may create spaces may enter their own ones.
    void Promise.all([own, mayCreateSpaces()]).then((both) => setOwn(both.every(Boolean)))
  }, [space])
  if (!isOwn) return null
  return (
    <form className="sign-in__form" data-testid="enter-form" onSubmit={(event) => { event.preventDefault(); run(async () => onEntered((await enterSpace(space, name)).token)) }}>
      <h2 className="space-list__heading">{words.spaces.list.enterTitle}</h2>
      <ParticipantField label={words.spaces.list.enterText} testId="enter-name" value={name} onChange={setName} />
      <button type="submit" className="button" data-testid="enter-send" disabled={busy}>{words.spaces.list.enter}</button>
      {problem !== null && <p className="form-error" role="alert">{problem}</p>}
    </form>
  )
}
