// Sign-in with an API key or through the operator's OpenID provider.
import { useEffect, useId, useRef, useState } from "react"

import { useAction } from "../primitives/useAction"
import { Mark } from "../primitives/icons"
import type { SignInProps } from "./props"
import { ThemeToggle } from "../primitives/ThemeToggle"
import { fill } from "../text/fill"
import { words } from "../words"

export function SignIn({ ways, onKey, oidcHref }: SignInProps) {
  const [key, setKey] = useState("")
  const { busy, problem, run } = useAction(words.signIn.failed)
  const message = useId()
  const field = useRef<HTMLInputElement>(null)
  const alone = !ways.includes("oidc")
  useEffect(() => {
    // As in the composer: on a phone the on-screen keyboard would cover half of the page.
    if (alone && window.matchMedia("(hover: hover)").matches) field.current?.focus({ preventScroll: true })
  }, [alone])
  return (
    <main className="sign-in" data-testid="sign-in">
      <div className="sign-in__theme"><ThemeToggle /></div>
      <div className="sign-in__card">
        <Mark />
        <h1 className="sign-in__title">{words.common.product}</h1>
        <p className="sign-in__lead">{words.signIn.lead}</p>
        {ways.includes("oidc") && <a className="button button--first" href={oidcHref} data-testid="sign-in-oidc">{words.signIn.account}</a>}
        {ways.includes("oidc") && ways.includes("key") && <p className="sign-in__or">{words.signIn.or}</p>}
        {ways.includes("key") && (
          <form
            className="sign-in__form"
            onSubmit={(event) => {
              event.preventDefault()
              run(() => onKey(key.trim()))
            }}
          >
            <label className="sign-in__label">
              {words.signIn.key}
              <input
                ref={field}
                className="sign-in__field"
                type="password"
                name="key"
                autoComplete="current-password"
                spellCheck={false}
                required
                aria-invalid={problem !== null}
                aria-describedby={problem !== null ? message : undefined}
                value={key}
                onChange={(event) => setKey(event.target.value)}
              />
            </label>
            <button type="submit" className={ways.includes("oidc") ? "button" : "button button--first"} disabled={busy || key.trim() === ""}>
              {busy ? words.signIn.signingIn : words.signIn.signIn}
            </button>
          </form>
        )}
        {problem !== null && <p id={message} className="form-error" role="alert">{problem}</p>}
        {ways.includes("key") && <p className="sign-in__note">{fill(words.signIn.note, { command: <code>pellucid keys create</code> })}</p>}
      </div>
    </main>
  )
}
