// The page of a space: the form to join, and the room. Loaded on demand, with its styles.
import "../styles/spaces/colours.css"
import "../styles/spaces/room.css"
import "../styles/spaces/lanes.css"
import "../styles/spaces/conversation.css"
import "../styles/spaces/foot.css"
import "../styles/spaces/small.css"
import { useCallback, useEffect, useState } from "react"

import { plain } from "../text/visible"
import { Join } from "./Join"
import { RoomView } from "./RoomView"
import { SpaceSession } from "./session"
import type { Socket } from "./session"
import { words } from "../words"

const KEY = "pellucid.space."

function storedToken(space: string): string | null {
  try {
    return sessionStorage.getItem(KEY + space)
  } catch {
    return null
  }
}

function storeToken(space: string, token: string | null): void {
  try {
    if (token === null) sessionStorage.removeItem(KEY + space)
    else sessionStorage.setItem(KEY + space, token)
  } catch {
    // Without storage the user enters the token again after a reload.
  }
}

function openSocket(space: string): Socket {
  const url = new URL(`/spaces/${encodeURIComponent(space)}/ws`, location.href)
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:"
  return new WebSocket(url) as unknown as Socket
}

export function Space({ name }: { name: string | null }) {
  const [space, setSpace] = useState(name)
  const [token, setToken] = useState(() => (name === null ? null : storedToken(name)))
  const [problem, setProblem] = useState<string | null>(null)
  const [session, setSession] = useState<SpaceSession | null>(null)

  useEffect(() => {
    document.title = words.common.title(space === null ? words.spaces.title : plain(space))
  }, [space])

  useEffect(() => {
    if (space === null || token === null) return
    const made = new SpaceSession({ space, token, open: () => openSocket(space) })
    setSession(made)
    made.start()
    const look = () => {
      if (document.visibilityState === "visible") made.reconnectNow()
    }
    addEventListener("online", made.reconnectNow)
    document.addEventListener("visibilitychange", look)
    return () => {
      removeEventListener("online", made.reconnectNow)
      document.removeEventListener("visibilitychange", look)
      made.leave()
      setSession(null)
    }
  }, [space, token])

  const leave = useCallback((why: string | null) => {
    if (space !== null) storeToken(space, null)
    setToken(null)
    setProblem(why)
  }, [space])

  if (space === null || token === null) {
    return (
      <Join
        key={space ?? ""}
        space={space}
        problem={problem}
        onJoin={(chosen, typed) => {
          storeToken(chosen, typed)
          if (chosen !== name) history.replaceState(null, "", `/spaces/${encodeURIComponent(chosen)}`)
          setProblem(null)
          setSpace(chosen)
          setToken(typed)
        }}
      />
    )
  }
  return session && <RoomView key={space} session={session} onLeave={leave} />
}
