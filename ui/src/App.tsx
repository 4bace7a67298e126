// The page: who is there, which conversation or space the address names, and what is done with it.
import { lazy, Suspense, useCallback, useEffect, useMemo, useState } from "react"

import { spaceIn } from "./routes"
import { ApiError, client } from "./api/client"
import type { Session } from "./api/types"
import { Chat } from "./Chat"
import { ErrorState } from "./chat/ErrorState"
import { SignIn } from "./shell/SignIn"

const Space = lazy(() => import("./spaces/Space").then(({ Space }) => ({ default: Space })))

export function App() {
  // Whoever comes into a space has a token for it: nobody is asked for anything else.
  const [space] = useState(() => spaceIn(location.pathname))
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
      setFailure(error instanceof ApiError ? error.message : "The page could not be loaded.")
    }
  }, [])
  useEffect(() => void loadSession(), [loadSession])

  const signOut = useMemo(
    () => (session?.needed && session.signed_in ? () => void client.signOut().then(loadSession, loadSession) : undefined),
    [session, loadSession],
  )

  if (failure !== null) {
    return (
      <main className="page-failure">
        <ErrorState title="Pellucid could not be loaded." message={failure} onRetry={() => void loadSession()} />
      </main>
    )
  }
  if (session === null) return null
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
  return <Chat onSignedOut={loadSession} {...(signOut && { owner: { ...(session.name && { name: session.name }), onSignOut: signOut } })} />
}
