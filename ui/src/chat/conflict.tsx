// A question that was refused because another window continued the chat: what happened, and two ways on. The question is
// never lost: it is sent, or goes back into the composer.
import { createContext, useContext } from "react"

import { ErrorState } from "../primitives/ErrorState"
import type { PendingAnswer } from "../stream/pendingAnswer"
import { words } from "../words"

export interface ConflictChoices {
  /** Show what the other window did; the question goes back into the composer. */
  onShow: (pending: PendingAnswer) => void
  /** `moved`: send the question as a branch. `busy`: send it when the other answer has ended. */
  onSend: (pending: PendingAnswer) => void
}

const none = () => undefined
export const ConflictContext = createContext<ConflictChoices>({ onShow: none, onSend: none })

export function Conflict({ pending, kind }: { pending: PendingAnswer; kind: "moved" | "busy" }) {
  const { onShow, onSend } = useContext(ConflictContext)
  const text = words.live.conflict[kind]
  return (
    <ErrorState
      title={text.title}
      message={text.message}
      retry={text.send}
      onRetry={() => onSend(pending)}
      other={words.live.conflict.show}
      onOther={() => onShow(pending)}
    />
  )
}
