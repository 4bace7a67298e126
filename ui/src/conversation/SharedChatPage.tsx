// A chat that a link shares, read-only, with the components of the chat.
import { useCallback, useEffect, useMemo, useState } from "react"

import { ApiError, client, errorMessage } from "../api/client"
import type { SharedChat } from "../api/types"
import { Conversation } from "../chat/Conversation"
import { ErrorState } from "../primitives/ErrorState"
import { turnsOf } from "../chat/turns"
import { ViewBadge } from "../primitives/ViewBadge"
import { ThemeToggle } from "../primitives/ThemeToggle"
import { EMPTY, reduce } from "../stream/reducer"
import { plain } from "../text/visible"
import { words } from "../words"
import { formatDay } from "./days"

const SHARED = "shared"

export function SharedChatPage({ token }: { token: string }) {
  const [chat, setChat] = useState<SharedChat | null>(null)
  const [failure, setFailure] = useState<{ message: string; final: boolean } | null>(null)
  const load = useCallback(() => {
    setFailure(null)
    client.shared(token).then(setChat, (error: unknown) => {
      const final = error instanceof ApiError && error.status === 404
      setFailure({ message: final ? words.share.gone : errorMessage(error, words.page.broken), final })
    })
  }, [token])
  useEffect(load, [load])
  const title = plain(chat?.title ?? "")
  useEffect(() => {
    document.title = title ? words.common.title(title) : words.common.product
  }, [title])
  const turns = useMemo(() => {
    if (chat === null) return []
    const conversation = { id: SHARED, title: chat.title, created_at: chat.created_at, updated_at: chat.created_at }
    return turnsOf(reduce(EMPTY, { type: "opened", loaded: { conversation, events: chat.events, active: null } }), SHARED, null, (id) => id)
  }, [chat])
  return (
    <div className="shell shell--shared">
      <div className="shell__main">
        <header className="shell__top">
          <h1 className="shell__title" dir="auto">{title}</h1>
          <div className="shell__actions">
            {chat && chat.view !== "raw" && <ViewBadge view={chat.view} />}
            <ThemeToggle />
          </div>
        </header>
        <main className="shell__content">
          {failure !== null ? (
            <div className="conversation conversation--failed">
              <ErrorState title={words.share.notShown} message={failure.message} {...(!failure.final && { onRetry: load })} />
            </div>
          ) : (
            chat !== null && <Conversation turns={turns} busy={false} />
          )}
        </main>
        {chat && <p className="shared-note" data-testid="shared-note">{words.share.note(formatDay(chat.created_at))}</p>}
      </div>
    </div>
  )
}
