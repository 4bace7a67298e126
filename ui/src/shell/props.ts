// Props of the components in shell/: data and functions; the components fetch nothing themselves.
import type { ReactNode, Ref } from "react"

import type { AttachmentLimits, ConversationPage, Effort, ModelInfo, View } from "../api/types"
import type { Composed } from "../compose/attached"

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

export interface ComposerHandle {
  focus: () => void
  /** Open the browser's dialog for files. */
  pick: () => void
  /** Store the draft now. */
  flush: () => void
  /** Add a question after what is written, and focus the field. */
  insert: (question: Composed) => void
}

export interface ComposerProps {
  ref?: Ref<ComposerHandle>
  /** What the field begins with. */
  initial?: Composed
  /** The question changed, or was sent. */
  onDraft?: (draft: Composed) => void
  /** The question is cleared from the field; if it is rejected, a retry is offered with the answer. */
  onSend: (question: Composed) => void
  onStop: () => void
  /** An answer is in progress: a button stops it, and a question waits for its end. */
  busy: boolean
  /** Undefined while they are not known: nothing can be attached. */
  limits?: AttachmentLimits | undefined
  /** The model that will get the question. */
  model?: ModelInfo | undefined
  /** The menu next to the pickers; it gets the function that opens the dialog for files. */
  menu?: (pick: () => void) => ReactNode
  disabled?: boolean
  /** The pickers below the text. */
  children?: ReactNode
  /**
   * A new key resets the field and focuses it (another chat). It stays the same when a new chat gets its id, so that
   * the draft is kept.
   */
  draftKey?: string
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
  /** Absent if this user may not connect models. */
  onConnect?: () => void
}

export interface ViewBadgeProps {
  view: View
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
  onAsk: (text: string) => void
  /** Absent if this user may not connect models. */
  onConnect?: () => void
}
