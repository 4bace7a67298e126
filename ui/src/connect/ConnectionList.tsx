// The connections that exist, to change or delete them.
import { useState } from "react"

import { plain } from "../text/visible"
import { words } from "../words"
import { sentence } from "./api"
import type { ConnectionInfo, Connections } from "./api"

interface Props {
  existing: Connections
  onEdit: (connection: ConnectionInfo) => void
  onDelete: (name: string) => Promise<void>
  onNew: () => void
}

const keyText = ({ has_key, key_end }: ConnectionInfo) =>
  key_end !== undefined ? words.connect.keyEnds(key_end) : has_key ? words.connect.hasKey : words.connect.noKey

export function ConnectionList({ existing, onEdit, onDelete, onNew }: Props) {
  const [deleting, setDeleting] = useState<string | null>(null)
  const [failure, setFailure] = useState("")
  const damaged = existing.problems.length > 0
  return (
    <>
      {damaged && (
        <div className="form-error" role="alert">
          {words.connect.damaged(existing.file)}
          <ul className="connect__problems">{existing.problems.map((problem) => <li key={problem}>{plain(problem)}</li>)}</ul>
        </div>
      )}
      {failure && <p className="form-error" role="alert">{failure}</p>}
      <ul className="connect__list">
        {existing.data.map((one) => (
          <li key={one.name} className="connect__connection" data-testid="connection" data-name={one.name}>
            <div className="connect__about">
              <strong>{plain(one.name)}</strong>
              <span className="connect__note">{[plain(one.title), one.base_url, keyText(one), one.private_addresses && words.connect.inOwnNetwork(one.private_addresses.join(", "))].filter(Boolean).join(" · ")}</span>
              <span className="connect__note">{one.replaced ? words.connect.replaced : one.models.map(plain).join(", ")}</span>
            </div>
            {deleting === one.name ? (
              <div className="connect__row" role="group" aria-label={words.connect.deleteReally(one.name)}>
                <span>{words.connect.deleteReally(plain(one.name))}</span>
                <button type="button" className="button" autoFocus onClick={() => setDeleting(null)}>{words.connect.keep}</button>
                <button
                  type="button"
                  className="button button--danger"
                  onClick={() => {
                    setDeleting(null)
                    setFailure("")
                    onDelete(one.name).catch((error: unknown) => setFailure(sentence(error, words.connect.notDeleted)))
                  }}
                >
                  {words.connect.delete}
                </button>
              </div>
            ) : (
              <div className="connect__row">
                <button type="button" className="button" disabled={damaged} aria-label={words.connect.editOf(one.name)} onClick={() => onEdit(one)}>{words.connect.edit}</button>
                <button type="button" className="button" disabled={damaged} aria-label={words.connect.deleteOf(one.name)} onClick={() => setDeleting(one.name)}>{words.connect.delete}</button>
              </div>
            )}
          </li>
        ))}
      </ul>
      <div className="dialog__actions">
        <button type="button" className="button button--first" data-testid="connect-another" disabled={damaged} onClick={onNew}>
          {existing.data.length > 0 ? words.connect.another : words.modelNotes.connect}
        </button>
      </div>
    </>
  )
}
