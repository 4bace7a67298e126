// Props of the components in shell/.
import type { ReactNode } from "react"

import type { ConversationInfo, ConversationPage, Effort, ModelInfo, View } from "../api/types"

/** Data source of the list of chats: functions of the API client. */
export interface ConversationSource {
  list: (query: { q?: string; after?: string; limit?: number }) => Promise<ConversationPage>
  rename: (id: string, title: string) => Promise<unknown>
  remove: (id: string) => Promise<unknown>
}

export interface SidebarProps {
  source: ConversationSource
  /** The id of the open conversation, or null. */
  current: string | null
  /** Changes when the list should be loaded again (a chat was created, answered or renamed). */
  version: number
  /** Whether an answer in this chat is in progress. */
  isAnswering: (row: ConversationInfo) => boolean
  onNew: () => void
  onOpen: (id: string) => void
  /** The open conversation was deleted. */
  onDeleted: () => void
  /** The views in which this user may share chats; absent if chats cannot be shared. */
  shareableViews?: readonly View[]
  /** Absent if the gateway requires no sign-in. */
  owner?: { name?: string; onSignOut: () => void }
}

export interface ShellProps {
  sidebar: ReactNode
  /** The title of the main column, usually that of the chat. */
  title?: string
  /** Buttons next to the title. */
  actions?: ReactNode
  /** The bottom of the main column: the composer. */
  foot?: ReactNode
  /** The content between top and bottom; it scrolls by itself. */
  children: ReactNode
}

export interface PickersProps {
  models: readonly ModelInfo[]
  /** The views that this user may choose. */
  views: readonly View[]
  /** The chosen values; undefined means the server's default. */
  model?: string
  effort?: Effort
  view?: View
  onModel: (model: string) => void
  onEffort: (effort: Effort | undefined) => void
  onView: (view: View | undefined) => void
  /** A choice was made, and its menu is closed. Returns whether something else has the focus now. */
  onChosen: () => boolean
  /** Make the chosen model the default of the gateway; absent if this user may not. */
  onDefault?: (model: string) => void
  /** What is true of the default model. */
  defaultRemark?: string
  /** Absent if this user may not connect models. */
  onConnect?: () => void
}

export interface SignInProps {
  ways: readonly ("key" | "oidc")[]
  /** Rejects with an Error whose message can be shown to users. */
  onKey: (key: string) => Promise<unknown>
  /** Target of the OIDC button. */
  oidcHref: string
}

export interface EmptyStateProps {
  model?: ModelInfo
  /** The gateway has no model. */
  none?: boolean
  /** Absent if nothing can be asked now. */
  onAsk?: (text: string) => void
  /** Absent if this user may not connect models. */
  onConnect?: () => void
}
