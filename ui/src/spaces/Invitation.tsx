// The page behind a link: joining exchanges the link for the participant's token.
import { Mark } from "../primitives/icons"
import { ThemeToggle } from "../primitives/ThemeToggle"
import { plain } from "../text/visible"
import { words } from "../words"
import { joinByLink } from "./owned"
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
  const { busy, problem, run } = useAction(words.spaces.invitation.failed)
  return (
    <main className="sign-in" data-testid="invitation">
      <div className="sign-in__theme"><ThemeToggle /></div>
      <div className="sign-in__card">
        <Mark />
        <h1 className="sign-in__title" dir="auto">{words.spaces.invitation.title(plain(space))}</h1>
        <p className="sign-in__lead">{words.spaces.invitation.text}</p>
        <button type="button" className="button button--first" data-testid="use-link" disabled={busy} onClick={() => run(async () => onJoined((await joinByLink(space, link)).token))}>{words.spaces.invitation.join}</button>
        {problem !== null && <p className="form-error" role="alert">{problem}</p>}
      </div>
    </main>
  )
}
