// Confirmation before a chat is deleted.
import { useAction } from "../primitives/useAction"
import { plain } from "../text/visible"
import { Dialog } from "../primitives/Dialog"
import { words } from "../words"

interface Props {
  title: string
  onDelete: () => Promise<void>
  onClose: () => void
}

export function DeleteDialog({ title, onDelete, onClose }: Props) {
  const { busy, problem, run } = useAction(words.sidebar.deleteFailed)
  return (
    <Dialog className="dialog" label={words.sidebar.deleteTitle} onClose={onClose}>
      <div className="dialog__inner">
        <h2 className="dialog__title">{words.sidebar.deleteTitle}</h2>
        <p dir="auto">{words.sidebar.deleteText(plain(title) || words.common.untitled)}</p>
        {problem !== null && <p className="form-error" role="alert">{problem}</p>}
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onClose}>{words.common.cancel}</button>
          <button
            type="button"
            className="button button--danger"
            data-testid="confirm-delete"
            disabled={busy}
            onClick={() => run(() => onDelete().then(onClose))}
          >
            {words.sidebar.delete}
          </button>
        </div>
      </div>
    </Dialog>
  )
}
