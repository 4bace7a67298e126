// The page of a space: the form to join, and the room. Loaded on demand, with its styles.
import "../styles/spaces/colours.css"
import "../styles/spaces/room.css"
import "../styles/spaces/lanes.css"
import "../styles/spaces/conversation.css"
import "../styles/spaces/foot.css"
import "../styles/spaces/small.css"
import { useCallback, useEffect, useState } from "react"

import { onWake } from "../api/wake"
import { spacePath } from "../routes"
import { plain } from "../text/visible"
import { Invitation, takeLink } from "./Invitation"
import { Join } from "./Join"
import { RoomView } from "./RoomView"
import { SpaceList } from "./SpaceList"
import { SpaceSession } from "./session"
import type { Socket } from "./session"
import { forgetToken, setLeft, storedToken, storeToken } from "./tokens"
import { words } from "../words"

function openSocket(space: string): Socket {
  const url = new URL(`${spacePath(space)}/ws`, location.href)
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:"
  return new WebSocket(url) as unknown as Socket
}

export function Space({ name }: { name: string | null }) {
  const [space, setSpace] = useState(name)
  const [token, setToken] = useState(() => (name === null ? null : storedToken(name)))
  const [link, setLink] = useState(takeLink)
  const [problem, setProblem] = useState<string | null>(null)
  const [session, setSession] = useState<SpaceSession | null>(null)

  useEffect(() => {
    document.title = words.common.title(space === null ? words.spaces.title : plain(space))
  }, [space])

  useEffect(() => {
    if (space === null || token === null) return
    setLeft(space, false)
    const made = new SpaceSession({ space, token, open: () => openSocket(space) })
    setSession(made)
    made.start()
    const stopWaking = onWake((reason) => made.wake(reason))
    return () => {
      stopWaking()
      made.leave()
      setSession(null)
    }
  }, [space, token])

  const leave = useCallback((why: string | null) => {
    if (space !== null) forgetToken(space, why === null ? "tab" : undefined)
    // A token that the browser keeps: back to the list, where it can be forgotten.
    if (space !== null && storedToken(space) !== null) {
      setLeft(space, true)
      return location.assign("/spaces")
    }
    setToken(null)
    setProblem(why)
  }, [space])

  const enter = (chosen: string, given: string, keep: "tab" | "browser") => {
    storeToken(chosen, given, keep)
    if (chosen !== name) history.replaceState(null, "", spacePath(chosen))
    setProblem(null)
    setLink(null)
    setSpace(chosen)
    setToken(given)
  }

  if (space === null) return <SpaceList onJoin={(chosen, typed) => enter(chosen, typed, "tab")} />
  if (link !== null && token === null) return <Invitation space={space} link={link} onJoined={(given) => enter(space, given, "browser")} />
  if (token === null) {
    return <Join key={space} space={space} problem={problem} onJoin={(chosen, typed) => enter(chosen, typed, "tab")} onEntered={(given) => enter(space, given, "browser")} />
  }
  return session && <RoomView key={space} session={session} onLeave={leave} />
}
