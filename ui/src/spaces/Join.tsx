// The form to join a space, by name and participant token. The token is kept in this tab and is not part of any URL.
import { useEffect, useId, useRef, useState } from "react"

import { Mark } from "../primitives/icons"
import { ThemeToggle } from "../primitives/ThemeToggle"
import { plain } from "../text/visible"
import { fill } from "../text/fill"
import { words } from "../words"
import { Enter } from "./Enter"
import { commandFor } from "./modelProgram"

interface Props {
  /** The space that the address names, or null. */
  space: string | null
  /** Why the last token was rejected. */
  problem: string | null
  onJoin: (space: string, token: string) => void
}

export function Join({ space, problem, onJoin, onEntered }: Props & { space: string; onEntered: (token: string) => void }) {
  return (
    <main className="sign-in" data-testid="join">
      <div className="sign-in__theme"><ThemeToggle /></div>
      <div className="sign-in__card">
        <Mark />
        <h1 className="sign-in__title" dir="auto">{plain(space)}</h1>
        <p className="sign-in__lead">{words.spaces.join.lead}</p>
        {/* An owner needs no token. */}
        <Enter space={space} onEntered={onEntered} />
        <JoinForm space={space} problem={problem} onJoin={onJoin} />
        <a className="text-button" href="/spaces">{words.spaces.list.yours}</a>
      </div>
    </main>
  )
}

export function JoinForm({ space, problem, onJoin }: Props) {
  const [name, setName] = useState(space ?? "")
  const [token, setToken] = useState("")
  const message = useId()
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => {
    // Where a space is named, its token is all that is missing.
    if (window.matchMedia("(hover: hover)").matches) field.current?.focus({ preventScroll: true })
  }, [])
  const ready = name.trim() !== "" && token.trim() !== ""
  return (
    <>
      <form className="sign-in__form" onSubmit={(event) => { event.preventDefault(); if (ready) onJoin(name.trim(), token.trim()) }}>
        {space === null && (
          <label className="sign-in__label">
            {words.spaces.join.space}
            <input className="sign-in__field" name="space" data-testid="join-space" autoComplete="off" spellCheck={false} required value={name} onChange={(event) => setName(event.target.value)} />
          </label>
        )}
        <label className="sign-in__label">
          {words.spaces.join.token}
          <input
            ref={space === null ? null : field}
            className="sign-in__field"
            type="password"
            name="token"
            data-testid="join-token"
            autoComplete="off"
            spellCheck={false}
            required
            aria-invalid={problem !== null}
            aria-describedby={problem === null ? undefined : message}
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        <button type="submit" className="button button--first" data-testid="join-send" disabled={!ready}>{words.spaces.join.join}</button>
      </form>
      {problem !== null && <p id={message} className="form-error" role="alert">{problem}</p>}
      <p className="sign-in__note">{fill(words.spaces.join.note, { command: <code>{commandFor(space ?? (name.trim() || "SPACE"), "NAME")}</code> })}</p>
    </>
  )
}
