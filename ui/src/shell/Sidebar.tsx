// The sidebar: new chat, search, list of chats, and the signed-in user.
import { lazy, Suspense, useState } from "react"

import type { ConversationInfo } from "../api/types"
import { plain } from "../text/visible"
import { ConversationItem } from "./ConversationItem"
import { dayGroup } from "./dateGroups"
import { DeleteDialog } from "./DeleteDialog"
import { Mark, PlusIcon, SearchIcon } from "../primitives/icons"
import type { SidebarProps } from "./props"
import { useConversations } from "./useConversations"
import { useDebounced } from "../primitives/useDebounced"
import { words } from "../words"

const ShareDialog = lazy(() => import("../conversation/ShareDialog"))

function groups(rows: readonly ConversationInfo[], isSearch: boolean): [string, ConversationInfo[]][] {
  const byHeading = new Map<string, ConversationInfo[]>()
  const now = Date.now()
  for (const row of rows) {
    const name = isSearch ? words.sidebar.results : dayGroup(row.updated_at, now)
    byHeading.set(name, [...(byHeading.get(name) ?? []), row])
  }
  return [...byHeading]
}

export function Sidebar({ source, current, version, isAnswering, onNew, onOpen, onDeleted, owner, shareableViews }: SidebarProps) {
  const [query, setQuery] = useState("")
  const settled = useDebounced(query.trim(), 250)
  const list = useConversations(source, settled, version)
  const [sharing, setSharing] = useState<ConversationInfo | null>(null)
  const [deleting, setDeleting] = useState<ConversationInfo | null>(null)
  return (
    <div className="sidebar">
      <div className="sidebar__head">
        <Mark />
        <span className="sidebar__name">{words.common.product}</span>
      </div>
      <button type="button" className="sidebar__new" data-testid="new-chat" data-leaves onClick={onNew}>
        <PlusIcon />
        {words.sidebar.newChat}
      </button>
      <label className="search">
        <SearchIcon />
        <span className="visually-hidden">{words.sidebar.searchChats}</span>
        <input
          type="search"
          className="search__field"
          data-testid="search"
          placeholder={words.common.search}
          dir="auto"
          value={query}
          onChange={(event) => setQuery(event.target.value)}
        />
      </label>
      <nav className="sidebar__list" aria-label={words.sidebar.chats} aria-busy={list.loading}>
        {groups(list.rows, list.resultQuery !== "").map(([name, rows]) => (
          <section key={name} className="chats" aria-label={name}>
            <h2 className="chats__day">{name}</h2>
            <ul className="chats__items">
              {rows.map((row) => (
                <ConversationItem
                  key={row.id}
                  row={row}
                  current={row.id === current}
                  answering={isAnswering(row)}
                  onOpen={() => onOpen(row.id)}
                  onRename={(title) => list.rename(row.id, title)}
                  onDelete={() => setDeleting(row)}
                  {...(shareableViews && { onShare: () => setSharing(row) })}
                />
              ))}
            </ul>
          </section>
        ))}
        {!list.loading && !list.error && list.rows.length === 0 && (
          <p className="sidebar__empty">{list.resultQuery ? words.sidebar.noResults : words.sidebar.empty}</p>
        )}
        {list.error && (
          <p className="sidebar__empty" role="alert">
            {list.error}{" "}
            <button type="button" className="text-button" onClick={list.again}>{words.common.tryAgain}</button>
          </p>
        )}
        {list.more && (
          <button type="button" className="text-button sidebar__more" disabled={list.loading} onClick={list.readMore}>
            {list.loading ? words.common.loading : words.sidebar.earlier}
          </button>
        )}
      </nav>
      <a className="sidebar__spaces" data-testid="to-spaces" href="/spaces">{words.sidebar.spaces}</a>
      {owner && (
        <div className="sidebar__foot">
          <span className="sidebar__owner" dir="auto" title={plain(owner.name ?? "")}>{plain(owner.name ?? words.sidebar.signedIn)}</span>
          <button type="button" className="text-button" data-testid="sign-out" onClick={owner.onSignOut}>{words.sidebar.signOut}</button>
        </div>
      )}
      {sharing && shareableViews && (
        <Suspense>
          <ShareDialog conversation={sharing.id} title={sharing.title} views={shareableViews} onClose={() => setSharing(null)} />
        </Suspense>
      )}
      {deleting && (
        <DeleteDialog
          title={deleting.title}
          onClose={() => setDeleting(null)}
          onDelete={async () => {
            await list.remove(deleting.id)
            // Close the dialog first: while it is open, nothing else can have the focus.
            setDeleting(null)
            if (deleting.id === current) onDeleted()
          }}
        />
      )}
    </div>
  )
}
