// Search in all messages of a space. A result scrolls to its place.
import { useEffect, useRef, useState } from "react"
import type { KeyboardEvent } from "react"

import { errorMessage } from "../api/client"
import { Dialog } from "../primitives/Dialog"
import { CloseIcon, SearchIcon } from "../primitives/icons"
import { useDebounced } from "../primitives/useDebounced"
import { plain, visible } from "../text/visible"
import type { SearchResults } from "./api"
import { familyOf, ownEntry, textOf } from "./envelope"
import { Timestamp, ParticipantName } from "./badges"
import { words } from "../words"

interface Props {
  search: (query: string, before: number | null, signal: AbortSignal) => Promise<SearchResults>
  onShow: (seq: number) => void
  onClose: () => void
}

interface Shown extends SearchResults {
  query: string
  problem?: string
}

const NONE: Shown = { query: "", hits: [], more: false, before: null }

export function SearchDialog({ search, onShow, onClose }: Props) {
  const [query, setQuery] = useState("")
  const settled = useDebounced(query.trim(), 250)
  const [results, setResults] = useState<Shown>(NONE)
  const [busy, setBusy] = useState(false)
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => field.current?.focus(), [])

  useEffect(() => {
    if (settled === "") {
      setResults(NONE)
      return
    }
    const abort = new AbortController()
    setBusy(true)
    search(settled, null, abort.signal).then(
      (answer) => { setResults({ query: settled, ...answer }); setBusy(false) },
      (error: unknown) => {
        if (abort.signal.aborted) return
        setResults({ ...NONE, query: settled, problem: errorMessage(error, words.spaces.search.failed) })
        setBusy(false)
      },
    )
    return () => abort.abort()
  }, [settled, search])

  const more = () => {
    setBusy(true)
    search(results.query, results.before, new AbortController().signal).then(
      (answer) => { setResults({ ...results, ...answer, hits: [...results.hits, ...answer.hits] }); setBusy(false) },
      (error: unknown) => { setResults({ ...results, problem: errorMessage(error, words.spaces.search.failed) }); setBusy(false) },
    )
  }

  // A search field would only clear itself at the first Escape.
  const closeOnEscape = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || event.nativeEvent.isComposing) return
    event.preventDefault()
    onClose()
  }

  return (
    <Dialog className="dialog search-dialog" label={words.spaces.search.label} onClose={onClose}>
      <div className="search-dialog__inner" data-testid="search-dialog">
        <div className="search-dialog__head">
          <label className="search search-dialog__field">
            <SearchIcon />
            <span className="visually-hidden">{words.spaces.search.field}</span>
            <input ref={field} type="search" className="search__field" data-testid="space-search" placeholder={words.spaces.search.field} dir="auto" value={query} onKeyDown={closeOnEscape} onChange={(event) => setQuery(event.target.value)} />
          </label>
          <button type="button" className="icon-button" aria-label={words.spaces.search.close} onClick={onClose}><CloseIcon /></button>
        </div>
        <div className="search-dialog__results" aria-busy={busy} role="status">
          {results.problem !== undefined && <p className="form-error">{results.problem}</p>}
          {results.query !== "" && !busy && results.hits.length === 0 && results.problem === undefined && <p className="sidebar__empty">{words.common.noResults}</p>}
          {results.hits.length > 0 && (
            <ul className="search-dialog__list">
              {results.hits.map(({ envelope, snippet }) => (
                <li key={envelope.seq}>
                  <button type="button" className="search-dialog__hit" data-testid="search-hit" onClick={() => onShow(envelope.seq)}>
                    <span className="search-dialog__sender"><ParticipantName id={envelope.from} small /><span className="step__label">{plain(kindText(envelope.kind))}</span><Timestamp ts={envelope.ts} full /></span>
                    <span className="search-dialog__snippet" dir="auto">{highlighted(snippet || textOf(envelope).slice(0, 300), results.query)}</span>
                  </button>
                </li>
              ))}
            </ul>
          )}
          {results.more && <button type="button" className="text-button sidebar__more" disabled={busy} onClick={more}>{busy ? words.common.loading : words.spaces.search.earlier}</button>}
        </div>
      </div>
    </Dialog>
  )
}

/** The kind in words; an unknown one by its family. */
const kindText = (kind: string): string => ownEntry(words.spaces.search.kinds, kind) ?? ownEntry(words.spaces.search.families, familyOf(kind)) ?? kind

function highlighted(text: string, query: string) {
  const at = text.toLowerCase().indexOf(query.toLowerCase())
  if (at < 0) return visible(text)
  return <>{visible(text.slice(0, at))}<mark>{visible(text.slice(at, at + query.length))}</mark>{visible(text.slice(at + query.length))}</>
}
