// The choice of models: a list with a search, and a field for names that are not in it.
import { useState } from "react"

import { plain } from "../text/visible"
import { words } from "../words"

interface Props {
  listed: readonly string[]
  chosen: readonly string[]
  onChange: (chosen: string[]) => void
  onAdd: (model: string) => void
}

/** More rows than these are found by searching. */
const MAX_ROWS = 100
const SEARCH_FROM = 9

export function ModelChoice({ listed, chosen, onChange, onAdd }: Props) {
  const [query, setQuery] = useState("")
  const [typed, setTyped] = useState("")
  const matching = listed.filter((name) => name.toLowerCase().includes(query.trim().toLowerCase()))
  const shown = matching.slice(0, MAX_ROWS)
  const add = () => {
    const model = typed.trim()
    if (model === "") return
    onAdd(model)
    if (!chosen.includes(model)) onChange([...chosen, model])
    setTyped("")
  }
  return (
    <fieldset className="connect__models" data-testid="connect-models">
      <legend className="connect__legend">
        {words.connect.models}
        {chosen.length > 0 && <span className="connect__note"> · {words.connect.chosen(chosen.length)}</span>}
      </legend>
      {listed.length >= SEARCH_FROM && (
        <input type="search" className="connect__field" aria-label={words.connect.filter} placeholder={words.connect.filter} value={query} onChange={(event) => setQuery(event.target.value)} />
      )}
      {listed.length > 0 && (
        <ul className="connect__options" tabIndex={0} aria-label={words.connect.models}>
          {shown.map((model) => (
            <li key={model}>
              <label className="connect__check">
                <input
                  type="checkbox"
                  checked={chosen.includes(model)}
                  onChange={(event) => onChange(event.target.checked ? [...chosen, model] : chosen.filter((one) => one !== model))}
                />
                <span dir="auto">{plain(model)}</span>
              </label>
            </li>
          ))}
          {matching.length === 0 && <li className="connect__note">{words.connect.noMatch}</li>}
          {matching.length > shown.length && <li className="connect__note">{words.connect.tooMany(matching.length - shown.length)}</li>}
        </ul>
      )}
      <div className="connect__row">
        <input
          className="connect__field"
          data-testid="connect-model"
          aria-label={words.connect.model}
          placeholder={words.connect.model}
          autoComplete="off"
          spellCheck={false}
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
          onBlur={add}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.nativeEvent.isComposing) return
            event.preventDefault()
            add()
          }}
        />
        <button type="button" className="button" disabled={typed.trim() === ""} onClick={add}>{words.connect.add}</button>
      </div>
    </fieldset>
  )
}
