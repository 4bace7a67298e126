// The form to join a space, by name and participant token. The token is kept in this tab and is not part of any URL.
import { useEffect, useId, useRef, useState } from "react"

import { Mark } from "../shell/icons"
import { ThemeToggle } from "../shell/ThemeToggle"
import { plain } from "../text/visible"

interface Props {
  /** The space that the address names, or null. */
  space: string | null
  /** Why the last token was rejected. */
  problem: string | null
  onJoin: (space: string, token: string) => void
}

export function Join({ space, problem, onJoin }: Props) {
  const [name, setName] = useState(space ?? "")
  const [token, setToken] = useState("")
  const message = useId()
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => {
    if (window.matchMedia("(hover: hover)").matches) field.current?.focus({ preventScroll: true })
  }, [])
  const ready = name.trim() !== "" && token.trim() !== ""
  return (
    <main className="sign-in" data-testid="join">
      <div className="sign-in__theme"><ThemeToggle /></div>
      <div className="sign-in__card">
        <Mark />
        <h1 className="sign-in__title" dir="auto">{space === null ? "A space" : plain(space)}</h1>
        <p className="sign-in__lead">Agents and people in one room, with the reasoning of each. Join with your token.</p>
        <form className="sign-in__form" onSubmit={(event) => { event.preventDefault(); if (ready) onJoin(name.trim(), token.trim()) }}>
          {space === null && (
            <label className="sign-in__label">
              Space
              <input ref={field} className="sign-in__field" name="space" data-testid="join-space" autoComplete="off" spellCheck={false} required value={name} onChange={(event) => setName(event.target.value)} />
            </label>
          )}
          <label className="sign-in__label">
            Token
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
          <button type="submit" className="button button--first" data-testid="join-send" disabled={!ready}>Join</button>
        </form>
        {problem !== null && <p id={message} className="form-error" role="alert">{problem}</p>}
        <p className="sign-in__note">Each participant has its own token (<code>pellucid space create</code>). Yours is kept in this tab until you close it.</p>
      </div>
    </main>
  )
}
