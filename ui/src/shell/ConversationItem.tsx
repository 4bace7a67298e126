// One chat in the list: a link, and a small menu to rename or delete it.
import * as Menu from "@radix-ui/react-dropdown-menu"
import { useEffect, useRef, useState } from "react"

import { client } from "../api/client"
import type { ConversationInfo } from "../api/types"
import { plain } from "../text/visible"
import { MoreIcon } from "../primitives/icons"
import { words } from "../words"

interface Props {
  row: ConversationInfo
  current: boolean
  /** An answer is in progress. */
  answering: boolean
  onOpen: () => void
  onRename: (title: string) => Promise<void>
  onDelete: () => void
  /** Absent if chats cannot be shared. */
  onShare?: () => void
}

export function ConversationItem({ row, current, answering, onOpen, onRename, onDelete, onShare }: Props) {
  const [editing, setEditing] = useState(false)
  const [failed, setFailed] = useState(false)
  const field = useRef<HTMLInputElement>(null)
  const opener = useRef<HTMLButtonElement>(null)
  const byKey = useRef(false)
  useEffect(() => {
    if (editing) field.current?.select()
    // After keyboard input, the focus returns to the menu button.
    else if (byKey.current) opener.current?.focus()
    byKey.current = false
  }, [editing])

  const rename = (title: string) => {
    setEditing(false)
    const trimmed = title.trim()
    if (trimmed && trimmed !== row.title) onRename(trimmed).then(() => setFailed(false), () => setFailed(true))
  }

  // A dialog returns the focus to the element that had it before; the menu item no longer exists by then.
  const ask = (action: () => void) => {
    opener.current?.focus()
    action()
  }

  if (editing) {
    return (
      <li className="chats__item">
        <input
          ref={field}
          className="chats__rename"
          aria-label={words.sidebar.titleField}
          dir="auto"
          maxLength={200}
          defaultValue={row.title}
          onBlur={(event) => rename(event.target.value)}
          onKeyDown={(event) => {
            if (event.nativeEvent.isComposing) return
            byKey.current = event.key === "Enter" || event.key === "Escape"
            if (event.key === "Enter") rename(event.currentTarget.value)
            if (event.key === "Escape") {
              event.preventDefault()
              event.stopPropagation()
              setEditing(false)
            }
          }}
        />
      </li>
    )
  }
  return (
    <li className={current ? "chats__item chats__item--current" : "chats__item"} data-testid="conversation-item" data-conversation-id={row.id}>
      <a
        className="chats__link"
        href={`/c/${encodeURIComponent(row.id)}`}
        aria-current={current ? "page" : undefined}
        title={plain(row.title)}
        data-leaves
        onClick={(event) => {
          if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return
          event.preventDefault()
          onOpen()
        }}
      >
        <span className="chats__title">
          {answering && <span className="chats__answering" role="img" data-testid="answering" aria-label={words.sidebar.answering} title={words.sidebar.answering} />}
          <span dir="auto">{plain(row.title) || words.common.untitled}</span>
        </span>
        {row.snippet && <span className="chats__snippet" dir="auto">{plain(row.snippet)}</span>}
        {failed && <span className="chats__failed">{words.sidebar.renameFailed}</span>}
      </a>
      <Menu.Root modal={false}>
        <Menu.Trigger ref={opener} className="icon-button chats__more" aria-label={words.sidebar.menu(plain(row.title))}>
          <MoreIcon />
        </Menu.Trigger>
        <Menu.Content className="menu" align="start" sideOffset={4} collisionPadding={8} onCloseAutoFocus={(event) => editing && event.preventDefault()}>
          {/* Deferred until the menu has returned the focus, so that the field keeps it. */}
          <Menu.Item className="menu__item" onSelect={() => setTimeout(() => setEditing(true))}>{words.sidebar.rename}</Menu.Item>
          {onShare && <Menu.Item className="menu__item" onSelect={() => setTimeout(() => ask(onShare))}>{words.share.item}</Menu.Item>}
          {(["markdown", "json"] as const).map((format) => (
            <Menu.Item key={format} className="menu__item" asChild>
              <a href={client.exportHref(row.id, format)} download>{words.export[format]}</a>
            </Menu.Item>
          ))}
          <Menu.Separator className="menu__line" />
          <Menu.Item className="menu__item menu__item--danger" onSelect={() => setTimeout(() => ask(onDelete))}>{words.sidebar.deleteItem}</Menu.Item>
        </Menu.Content>
      </Menu.Root>
    </li>
  )
}
