// The application: finds the signed-in user and the page that the address names (a chat or a space), and renders it.
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from "react"

import { sharedTokenIn, spaceIn } from "./routes"
import { client, errorMessage, setOwner, startOver } from "./api/client"
import { onWake } from "./api/wake"
import type { Session } from "./api/types"
import { Chat } from "./Chat"
import { Drafts } from "./compose/drafts"
import { ErrorState } from "./primitives/ErrorState"
import { SignIn } from "./shell/SignIn"
import { words } from "./words"

const Space = lazy(() => import("./spaces/Space").then(({ Space }) => ({ default: Space })))
const SharedChatPage = lazy(() => import("./conversation/SharedChatPage").then(({ SharedChatPage }) => ({ default: SharedChatPage })))

export function App() {
  // A space needs only the participant's token, no sign-in.
  const [space] = useState(() => spaceIn(location.pathname))
  const [shared] = useState(() => sharedTokenIn(location.pathname))
  if (shared !== undefined) {
    return (
      <Suspense>
        <SharedChatPage token={shared} />
      </Suspense>
    )
  }
  if (space === undefined) return <ChatApp />
  return (
    <Suspense>
      <Space name={space} />
    </Suspense>
  )
}

const showsChats = ({ needed, signed_in }: Session) => !needed || signed_in

function ChatApp() {
  const [session, setSession] = useState<Session | null>(null)
  const [failure, setFailure] = useState<string | null>(null)

  const shown = useRef<Session | null>(null)
  const show = useCallback((next: Session): void => {
    const before = shown.current
    // Another tab signed somebody else in.
    if (before && showsChats(before) && showsChats(next) && before.owner !== next.owner) return startOver()
    shown.current = next
    setOwner(next.owner)
    setSession(next)
  }, [])
  const loadSession = useCallback(async (): Promise<void> => {
    setFailure(null)
    try {
      show(await client.session())
    } catch (error) {
      setFailure(errorMessage(error, words.page.loadFailed))
    }
  }, [show])
  useEffect(() => void loadSession(), [loadSession])
  useEffect(
    () =>
      onWake(() => {
        if (shown.current && showsChats(shown.current)) void client.session().then(show, () => undefined)
      }),
    [show],
  )

  const owner = session === null ? null : (session.owner ?? "")
  const drafts = useMemo(() => (owner === null ? null : new Drafts(owner)), [owner])
  const signOut = useMemo(() => {
    if (!session?.needed || !session.signed_in) return undefined
    return () => {
      drafts?.close()
      void client.signOut().then(loadSession, loadSession)
    }
  }, [session, drafts, loadSession])

  if (failure !== null) {
    return (
      <main className="page-failure">
        <ErrorState title={words.page.notLoaded} message={failure} onRetry={() => void loadSession()} />
      </main>
    )
  }
  if (session === null || drafts === null) return null
  if (session.needed && !session.signed_in) {
    const next = encodeURIComponent(location.pathname)
    return (
      <SignIn
        ways={session.ways}
        onKey={(key) => client.signIn(key).then(loadSession)}
        oidcHref={`/api/session/oidc?next=${next}`}
      />
    )
  }
  return <Chat key={owner} drafts={drafts} mayCreateSpaces={session.create_spaces ?? false} onSignedOut={loadSession} {...(signOut && { owner: { ...(session.name && { name: session.name }), onSignOut: signOut } })} />
}
