// Confirmation before a chat is deleted.
import { useState } from "react"

import { plain } from "../text/visible"
import { Dialog } from "./Dialog"

interface Props {
  title: string
  onDelete: () => Promise<void>
  onClose: () => void
}

export function DeleteDialog({ title, onDelete, onClose }: Props) {
  const [state, setState] = useState<"asking" | "deleting" | "failed">("asking")
  return (
    <Dialog className="dialog" label="Delete this chat?" onClose={onClose}>
      <div className="dialog__inner">
        <h2 className="dialog__title">Delete this chat?</h2>
        <p dir="auto">“{plain(title) || "Untitled"}” and all its answers will be deleted permanently.</p>
        {state === "failed" && <p className="form-error" role="alert">It could not be deleted. Please try again.</p>}
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onClose}>Cancel</button>
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
            Delete
          </button>
        </div>
      </div>
    </Dialog>
  )
}
