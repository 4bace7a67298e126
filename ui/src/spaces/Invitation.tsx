// The page behind a link: who invites, under which name and to do what. Joining exchanges the link for the participant's
// token; a link that cannot be used offers nothing.
import { useEffect, useState } from "react"

import { ApiError } from "../api/client"
import { Mark } from "../primitives/icons"
import { ThemeToggle } from "../primitives/ThemeToggle"
import { fill } from "../text/fill"
import { plain } from "../text/visible"
import { words } from "../words"
import { joinByLink, readInvitation } from "./owned"
import type { InvitationContent } from "./owned"
import { useAction } from "../primitives/useAction"

interface Props {
  space: string
  link: string
  onJoined: (token: string) => void
}

/** The link in the address. It leaves the address at once, and is in no history. */
export function takeLink(): string | null {
  const link = new URLSearchParams(location.hash.slice(1)).get("join")
  if (link !== null) history.replaceState(null, "", location.pathname)
  return link
}

export function Invitation({ space, link, onJoined }: Props) {
  const texts = words.spaces.invitation
  const { busy, problem, run } = useAction(texts.failed)
  const [content, setContent] = useState<InvitationContent | null>(null)
  const [refused, setRefused] = useState(false)
  const recordRefusal = (error: unknown) => {
    setRefused(error instanceof ApiError && [403, 409].includes(error.status))
    throw error
  }
  const read = () => run(() => readInvitation(space, link).then(setContent, recordRefusal), texts.readFailed)
  const join = () => run(() => joinByLink(space, link).then(({ token }) => onJoined(token), recordRefusal))
  useEffect(read, [space, link])
  return (
    <main className="sign-in" data-testid="invitation">
      <div className="sign-in__theme"><ThemeToggle /></div>
      <div className="sign-in__card">
        <Mark />
        <h1 className="sign-in__title" dir="auto">{texts.title(plain(space))}</h1>
        {content && (
          <>
            <p className="sign-in__lead" data-testid="invited-by">
              {fill(texts.invites, { who: <strong dir="auto">{plain(content.invited_by)}</strong>, you: <strong dir="auto">{plain(content.participant)}</strong> })}
            </p>
            <p className="sign-in__lead">{texts.rightsGiven(content.rights.map((right) => (right === "read" ? texts.readAlong : texts.rightNote[right])))}</p>
          </>
        )}
        {content && !refused && <button type="button" className="button button--first" data-testid="use-link" disabled={busy} onClick={join}>{texts.join}</button>}
        {!content && !refused && problem !== null && <button type="button" className="button button--first" data-testid="read-link" disabled={busy} onClick={read}>{texts.again}</button>}
        {problem !== null && <p className="form-error" role="alert">{problem}</p>}
      </div>
    </main>
  )
}
