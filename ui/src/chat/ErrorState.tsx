// What went wrong, in words, and a way to try again.
import { visible } from "../text/visible"

interface Props {
  title: string
  message?: string
  /** The button waits; it stays where it is, so that nothing moves. */
  busy?: boolean
  /** What its button says. */
  retry?: string
  onRetry?: () => void
}

export function ErrorState({ title, message, busy = false, retry = "Try again", onRetry }: Props) {
  return (
    <div className="error-state" data-testid="error-state" role="alert">
      <div className="error-state__words">
        <strong className="error-state__title">{title}</strong>
        {message && <p className="error-state__message" dir="auto">{visible(message)}</p>}
      </div>
      {onRetry && (
        <button type="button" className="button error-state__retry" data-testid="retry" disabled={busy} onClick={onRetry}>
          {retry}
        </button>
      )}
    </div>
  )
}
