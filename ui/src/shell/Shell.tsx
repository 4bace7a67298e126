// The page layout: the sidebar next to the chat, or as a drawer on narrow screens.
import { useState } from "react"

import { Dialog } from "../primitives/Dialog"
import { CloseIcon, MenuIcon } from "../primitives/icons"
import type { ShellProps } from "./props"
import { ThemeToggle } from "../primitives/ThemeToggle"
import { useNarrow } from "./useNarrow"
import { words } from "../words"

export function Shell({ sidebar, title, actions, foot, children }: ShellProps) {
  const narrow = useNarrow()
  const [open, setOpen] = useState(false)
  return (
    <div className="shell">
      {!narrow && <aside className="shell__side" aria-label={words.sidebar.chats}>{sidebar}</aside>}
      {narrow && open && (
        <Dialog className="drawer" label={words.sidebar.chats} onClose={() => setOpen(false)}>
          {/* Links and buttons with data-leaves close the drawer; keyboard activation arrives as a click too. */}
          <div className="drawer__inner" onClick={(event) => (event.target as Element).closest("[data-leaves]") && setOpen(false)}>
            <button type="button" className="icon-button drawer__close" aria-label={words.sidebar.closeList} onClick={() => setOpen(false)}>
              <CloseIcon />
            </button>
            {sidebar}
          </div>
        </Dialog>
      )}
      <div className="shell__main">
        <header className="shell__top">
          {narrow && (
            <button type="button" className="icon-button" data-testid="menu" aria-label={words.sidebar.chats} aria-expanded={open} onClick={() => setOpen(true)}>
              <MenuIcon />
            </button>
          )}
          <h1 className="shell__title" dir="auto">{title || <span className="visually-hidden">{words.sidebar.newChat}</span>}</h1>
          <div className="shell__actions">
            {actions}
            <ThemeToggle />
          </div>
        </header>
        <main className="shell__content">{children}</main>
        {foot && <div className="shell__foot">{foot}</div>}
      </div>
    </div>
  )
}
