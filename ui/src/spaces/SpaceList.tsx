// The page of all spaces: those of the signed-in user, those that this browser can enter, and the ways to another one.
import "../styles/spaces/list.css"
import { useEffect, useState } from "react"

import { ApiError, errorMessage } from "../api/client"
import { Mark, PlusIcon } from "../primitives/icons"
import { useAction } from "../primitives/useAction"
import { ThemeToggle } from "../primitives/ThemeToggle"
import { plain } from "../text/visible"
import { spacePath } from "../routes"
import { words } from "../words"
import { JoinForm } from "./Join"
import { NewSpaceDialog } from "./NewSpaceDialog"
import { deleteSpace, mayCreateSpaces, ownSpaces } from "./owned"
import type { SpaceRow } from "./owned"
import { forgetToken, hasLeft, knownSpaces } from "./tokens"

interface Props {
  onJoin: (space: string, token: string) => void
}

export function SpaceList({ onJoin }: Props) {
  const texts = words.spaces.list
  const [own, setOwn] = useState<SpaceRow[] | null>(null)
  const [known, setKnown] = useState(knownSpaces)
  const [problem, setProblem] = useState<string | null>(null)
  const [creating, setCreating] = useState(false)
  const [mayCreate, setMayCreate] = useState<boolean | null>(null)
  useEffect(() => {
    void mayCreateSpaces().then(setMayCreate)
    ownSpaces().then(setOwn, (error: unknown) => {
      setOwn([])
      // Without an account there are the spaces of this browser.
      if (!(error instanceof ApiError && (error.status === 401 || error.status === 403))) setProblem(errorMessage(error, texts.listFailed))
    })
  }, [texts])

  const remove = async (name: string) => {
    await deleteSpace(name)
    forgetToken(name)
    setKnown(knownSpaces())
    setOwn((now) => now && now.filter((one) => one.name !== name))
  }
  const deletable = new Set(mayCreate ? (own ?? []).filter(({ configured }) => !configured).map(({ name }) => name) : [])
  const topics = new Map((own ?? []).map(({ name, topic }) => [name, topic]))
  const names = [...new Set([...topics.keys(), ...known])].toSorted((a, b) => a.localeCompare(b))
  return (
    <main className="space-list" data-testid="space-list">
      <header className="space-list__top">
        <a className="space-list__home" href="/"><Mark /> {texts.toChats}</a>
        <ThemeToggle />
      </header>
      {/* Not before all of it is known, so that nothing moves. */}
      {mayCreate !== null && <div className="space-list__inner">
        <h1 className="sign-in__title">{words.spaces.title}</h1>
        <p className="sign-in__lead">{texts.lead}</p>
        {mayCreate && <button type="button" className="button button--first space-list__new" data-testid="new-space" onClick={() => setCreating(true)}><PlusIcon /> {texts.create}</button>}
        <section aria-label={texts.yours} aria-busy={own === null}>
          <h2 className="space-list__heading">{texts.yours}</h2>
          {problem !== null && <p className="form-error" role="alert">{problem}</p>}
          {own !== null && names.length === 0 && <p className="space-list__empty">{texts.none}</p>}
          <ul className="space-list__rows">
            {names.map((name) => (
              <li key={name} className="space-list__row" data-testid="space-row">
                <a className="space-list__link" href={spacePath(name)}>
                  <bdi className="space-list__name">{plain(name)}</bdi>
                  {topics.get(name) && <span className="space-list__topic" dir="auto">{plain(topics.get(name) ?? "")}</span>}
                </a>
                {/* Whoever may create spaces may delete their own. */}
                {deletable.has(name) && <Delete name={name} onDelete={() => remove(name)} />}
                {known.includes(name) && <Forget name={name} onForget={() => { forgetToken(name); setKnown(knownSpaces()) }} />}
              </li>
            ))}
          </ul>
          {known.length > 0 && <p className="space-list__note" data-testid="forget-note">{texts.forgetNote}</p>}
        </section>
        <section aria-label={texts.tokenTitle}>
          <h2 className="space-list__heading">{texts.tokenTitle}</h2>
          <JoinForm space={null} problem={null} onJoin={onJoin} />
        </section>
      </div>}
      {creating && <NewSpaceDialog onClose={() => setCreating(false)} />}
    </main>
  )
}

/** Deleting takes two steps: it is for everybody, and forever. */
function Delete({ name, onDelete }: { name: string; onDelete: () => Promise<void> }) {
  const [sure, setSure] = useState(false)
  const texts = words.spaces.list
  const { busy, problem, run } = useAction(texts.deleteFailed)
  if (!sure) return <button type="button" className="text-button" data-testid="space-delete" aria-label={texts.deleteLabel(plain(name))} onClick={() => setSure(true)}>{texts.delete}</button>
  return (
    <span className="space-list__sure" role="alert">
      {problem ?? texts.deleteText(plain(name))}{" "}
      <button type="button" className="text-button text-button--danger" data-testid="space-delete-sure" disabled={busy} onClick={() => run(onDelete)}>{texts.deleteSure}</button>
      <button type="button" className="text-button" autoFocus onClick={() => setSure(false)}>{words.common.cancel}</button>
    </span>
  )
}

/** Forgetting takes two steps: a token that came with a link cannot be read again. */
function Forget({ name, onForget }: { name: string; onForget: () => void }) {
  const [sure, setSure] = useState(false)
  const texts = words.spaces.list
  if (!sure) return <><span className="space-list__here">{hasLeft(name) ? texts.left : texts.here}</span><button type="button" className="text-button" aria-label={texts.forgetLabel(plain(name))} onClick={() => setSure(true)}>{texts.forget}</button></>
  return (
    <span className="space-list__sure" role="alert">
      {texts.forgetText}{" "}
      <button type="button" className="text-button" onClick={onForget}>{texts.forget}</button>
      <button type="button" className="text-button" onClick={() => setSure(false)}>{words.common.cancel}</button>
    </span>
  )
}
