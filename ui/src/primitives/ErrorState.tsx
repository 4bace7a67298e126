// An error message with an optional retry button.
import type { Ref } from "react"

import { visible } from "../text/visible"
import { words } from "../words"

interface Props {
  title: string
  message?: string
  /** Disables the button; it stays in place so that nothing moves. */
  busy?: boolean
  /** The label of the button. */
  retry?: string
  onRetry?: () => void
  retryButton?: Ref<HTMLButtonElement>
  /** The label of a second button. */
  other?: string
  onOther?: () => void
}

export function ErrorState({ title, message, busy = false, retry = words.common.tryAgain, onRetry, retryButton, other, onOther }: Props) {
  return (
    <div className="error-state" data-testid="error-state" role="alert">
      <div className="error-state__text">
        <strong className="error-state__title">{title}</strong>
        {message && <p className="error-state__message" dir="auto">{visible(message)}</p>}
      </div>
      {(onOther ?? onRetry) && (
        <div className="error-state__choices">
          {onOther && <button type="button" className="button" data-testid="retry-other" onClick={onOther}>{other}</button>}
          {onRetry && <button ref={retryButton} type="button" className="button" data-testid="retry" disabled={busy} onClick={onRetry}>{retry}</button>}
        </div>
      )}
    </div>
  )
}
