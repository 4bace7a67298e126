// What the shell asks of whoever wires it: plain data and functions, no fetching of its own.
import type { ReactNode } from "react"

import type { ConversationPage, Effort, ModelInfo, View } from "../api/types"

/** Where the sidebar's list comes from: the client's functions. */
export interface ConversationSource {
  list: (query: { q?: string; after?: string; limit?: number }) => Promise<ConversationPage>
  rename: (id: string, title: string) => Promise<unknown>
  remove: (id: string) => Promise<unknown>
}

export interface SidebarProps {
  source: ConversationSource
  /** The conversation on the screen, if any. */
  current: string | null
  /** Changes whenever the list should be read again (a chat was made, answered, renamed elsewhere). */
  version: number
  onNew: () => void
  onOpen: (id: string) => void
  /** The one on the screen was deleted. */
  onGone: () => void
  /** Absent: nobody is signed in (and nobody needs to be). */
  owner?: { name?: string; onSignOut: () => void }
}

export interface ShellProps {
  sidebar: ReactNode
  /** What stands at the top of the main column, e.g. the chat's title. */
  title?: string
  /** What stays at the foot of the main column: the composer. */
  foot?: ReactNode
  /** Fills the column between top and foot, and scrolls by itself. */
  children: ReactNode
}

export interface ComposerProps {
  /** The question from here on is its answer's, also where it is refused: a retry there asks it again. */
  onSend: (text: string) => void
  onStop: () => void
  /** An answer is under way: the button stops it. */
  busy: boolean
  disabled?: boolean
  /** The pickers, beneath the text. */
  children?: ReactNode
  /**
   * Another key begins with an empty field that has the focus (another chat). It should stay the same when a new chat
   * gets its id: what is being written meanwhile is kept.
   */
  draftKey?: string
}

export interface PickersProps {
  models: readonly ModelInfo[]
  /** The views this reader may ask for. */
  views: readonly View[]
  /** What is chosen; absent means: as the server has it. */
  model?: string
  effort?: Effort
  view?: View
  onModel: (model: string) => void
  onEffort: (effort: Effort | undefined) => void
  onView: (view: View | undefined) => void
}

export interface ViewBadgeProps {
  view: View
}

export interface SignInProps {
  ways: readonly ("key" | "oidc")[]
  /** Rejects with an Error whose message may be read by people. */
  onKey: (key: string) => Promise<unknown>
  /** Where the OIDC button leads. */
  oidcHref: string
}

export interface EmptyStateProps {
  model?: ModelInfo
  /** The gateway has no model to offer. */
  none?: boolean
  onAsk: (text: string) => void
}
