// The application: finds the signed-in user and the page that the address names (a chat or a space), and renders it.
import { lazy, Suspense, useCallback, useEffect, useMemo, useState } from "react"

import { sharedTokenIn, spaceIn } from "./routes"
import { client, errorMessage } from "./api/client"
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

function ChatApp() {
  const [session, setSession] = useState<Session | null>(null)
  const [failure, setFailure] = useState<string | null>(null)

  const loadSession = useCallback(async (): Promise<void> => {
    setFailure(null)
    try {
      setSession(await client.session())
    } catch (error) {
      setFailure(errorMessage(error, words.page.loadFailed))
    }
  }, [])
  useEffect(() => void loadSession(), [loadSession])

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
