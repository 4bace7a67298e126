// The list of shortcuts, and the switch of single keys.
import "../styles/compose/dialogs.css"
import { useState } from "react"

import { Dialog } from "../primitives/Dialog"
import { words } from "../words"
import { KEYS, setSingleKeys, singleKeys } from "./shortcuts"
import type { Action } from "./shortcuts"

const { keys: names, actions } = words.shortcuts
const FIXED: [string, string][] = [[names.enter, actions.send], [names.shiftEnter, actions.line], [names.escape, actions.stop], [names.find, actions.find]]
const SINGLE = Object.entries(KEYS).map(([key, action]): [string, string] => [key.toUpperCase(), actions[action satisfies Action]])

const rows = (table: readonly [string, string][]) => (
  <dl className="shortcuts">
    {table.map(([key, action]) => (
      <div key={key} className="shortcuts__row">
        <dt><kbd className="shortcuts__key">{key}</kbd></dt>
        <dd>{action}</dd>
      </div>
    ))}
  </dl>
)

export function HelpSheet({ onClose }: { onClose: () => void }) {
  const [single, setSingle] = useState(singleKeys)
  return (
    <Dialog className="dialog dialog--wide" label={words.shortcuts.title} onClose={onClose}>
      <div className="dialog__inner" data-testid="help-sheet">
        <h2 className="dialog__title">{words.shortcuts.title}</h2>
        {rows(FIXED)}
        <label className="tool-choice__tool">
          <input
            type="checkbox"
            data-testid="single-keys"
            checked={single}
            onChange={(event) => {
              setSingle(event.target.checked)
              setSingleKeys(event.target.checked)
            }}
          />
          <span className="tool-choice__words">
            {words.shortcuts.single}
            <span className="tool-choice__note">{words.shortcuts.singleNote}</span>
          </span>
        </label>
        {single && rows(SINGLE)}
        <div className="dialog__actions">
          <button type="button" className="button button--first" onClick={onClose}>{words.shortcuts.close}</button>
        </div>
      </div>
    </Dialog>
  )
}
