// Confirmation before a chat is deleted.
import { useState } from "react"

import { plain } from "../text/visible"
import { Dialog } from "./Dialog"
import { words } from "../words"

interface Props {
  title: string
  onDelete: () => Promise<void>
  onClose: () => void
}

export function DeleteDialog({ title, onDelete, onClose }: Props) {
  const [state, setState] = useState<"asking" | "deleting" | "failed">("asking")
  return (
    <Dialog className="dialog" label={words.sidebar.deleteTitle} onClose={onClose}>
      <div className="dialog__inner">
        <h2 className="dialog__title">{words.sidebar.deleteTitle}</h2>
        <p dir="auto">{words.sidebar.deleteText(plain(title) || words.common.untitled)}</p>
        {state === "failed" && <p className="form-error" role="alert">{words.sidebar.deleteFailed}</p>}
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onClose}>{words.common.cancel}</button>
          <button
            type="button"
            className="button button--danger"
            data-testid="confirm-delete"
            disabled={state === "deleting"}
            onClick={() => {
              setState("deleting")
              onDelete().then(onClose, () => setState("failed"))
            }}
          >
            {words.sidebar.delete}
          </button>
        </div>
      </div>
    </Dialog>
  )
}
