// The search in the thoughts of the open chat, within what its reader may see. Every occurrence in an opened thought is
// marked; going to one opens the thought that it is in.
import { useCallback, useEffect, useMemo, useRef, useState } from "react"
import { flushSync } from "react-dom"

import type { Answer } from "../api/types"
import "../styles/chat/find.css"
import { CloseIcon, DownIcon } from "../primitives/icons"
import { hitsIn, MAX_HITS, rangesIn } from "./thoughtMatches"
import type { Hit } from "./thoughtMatches"
import type { Thoughts } from "./thoughts"
import { words } from "../words"

interface Props {
  answers: readonly Answer[]
  /** Where the search begins. */
  from: string
  box: Element
  openers: Thoughts["openers"]
  onClose: () => void
}

const ALL = "matches"
const CURRENT = "current-match"
/** The most occurrences that are marked. */
const MAX_MARKED = 2_000
/** The page may change many times a second while an answer streams. */
const REFRESH_MS = 200

export function FindBar({ answers, from, box, openers, onClose }: Props) {
  const [query, setQuery] = useState("")
  const [current, setCurrent] = useState<Hit | null>(null)
  const field = useRef<HTMLInputElement>(null)
  const hits = useMemo(() => hitsIn(answers, query), [answers, query])
  const at = current ? hits.findIndex((hit) => isSame(hit, current)) : -1

  useEffect(() => {
    const before = document.activeElement
    field.current?.focus()
    return () => (before instanceof HTMLElement && before.isConnected ? before : null)?.focus()
  }, [])

  // The marks are ranges of the page's texts: they are made again when the page has changed.
  const mark = useCallback((): Range | null => {
    const highlights = marks()
    if (query === "") {
      highlights?.clear()
      return null
    }
    const all: Range[] = []
    for (const part of box.querySelectorAll('[data-testid="reasoning-part"]')) {
      if (all.length < MAX_MARKED) all.push(...rangesIn(part, query, MAX_MARKED - all.length))
    }
    const chosen = current && rangeOf(box, current, query)
    highlights?.set(ALL, new Highlight(...all))
    highlights?.set(CURRENT, new Highlight(...(chosen ? [chosen] : [])))
    return chosen
  }, [box, current, query])
  useEffect(() => {
    mark()
    let timer = 0
    const changed = new MutationObserver(() => {
      if (timer) return
      timer = window.setTimeout(() => {
        timer = 0
        const chosen = mark()
        // A chunk that came near has been rendered, so its heights have changed.
        if (chosen && performance.now() - shownAt.current < 2 * REFRESH_MS + 300) show(box, chosen)
      }, REFRESH_MS)
    })
    changed.observe(box, { childList: true, subtree: true, characterData: true })
    return () => {
      changed.disconnect()
      clearTimeout(timer)
    }
  }, [box, mark])
  useEffect(() => () => marks()?.clear(), [])

  const shownAt = useRef(-Infinity)
  const go = (by: 1 | -1) => {
    if (hits.length === 0) return
    const start = hits.findIndex((hit) => hit.answerId === from)
    const next = at >= 0 ? at + by : by > 0 ? Math.max(0, start) : (start < 0 ? hits.length : start) - 1
    const hit = hits[(next + hits.length) % hits.length]
    if (!hit) return
    if (!partOf(box, hit)) flushSync(() => openers.get(hit.answerId)?.())
    setCurrent(hit)
    const range = rangeOf(box, hit, query)
    shownAt.current = performance.now()
    if (range) show(box, range)
    else partOf(box, hit)?.scrollIntoView({ block: "center" })
  }

  return (
    <form
      className="find"
      role="search"
      data-testid="find"
      aria-label={words.find.label}
      onSubmit={(event) => {
        event.preventDefault()
        go(1)
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") onClose()
        else if (event.key === "Enter" && event.shiftKey) go(-1)
        else return
        event.preventDefault()
        event.stopPropagation()
      }}
    >
      <input
        ref={field}
        className="find__field"
        type="search"
        data-testid="find-field"
        aria-label={words.find.label}
        placeholder={words.find.label}
        dir="auto"
        value={query}
        onChange={(event) => {
          setQuery(event.target.value)
          setCurrent(null)
        }}
      />
      <span className="find__count" data-testid="find-count" aria-live="polite">{query === "" ? "" : countOf(at, hits.length)}</span>
      <button type="button" className="icon-button find__previous" data-testid="find-previous" aria-label={words.find.previous} disabled={hits.length === 0} onClick={() => go(-1)}><DownIcon /></button>
      <button type="button" className="icon-button" data-testid="find-next" aria-label={words.find.next} disabled={hits.length === 0} onClick={() => go(1)}><DownIcon /></button>
      <button type="button" className="icon-button" data-testid="find-close" aria-label={words.find.close} onClick={onClose}><CloseIcon /></button>
    </form>
  )
}

function countOf(at: number, count: number): string {
  if (count === 0) return words.find.none
  const all = count >= MAX_HITS ? `${count}+` : `${count}`
  return at < 0 ? words.find.count(count, all) : words.find.position(at + 1, all)
}

const isSame = (a: Hit, b: Hit) => a.answerId === b.answerId && a.segmentId === b.segmentId && a.part === b.part && a.ordinal === b.ordinal

/** The marks of the page; undefined in a browser that has none. */
const marks = () => ("highlights" in CSS ? CSS.highlights : undefined)

function partOf(box: Element, { answerId, segmentId, part }: Hit): Element | null {
  for (const segment of box.querySelectorAll<HTMLElement>("[data-segment-id]")) {
    const answer = segment.closest<HTMLElement>("[data-event-id]")
    if (segment.dataset["segmentId"] === segmentId && answer?.dataset["eventId"] === answerId) return segment.querySelector(`[data-summary-index="${part}"]`)
  }
  return null
}

/** The hit on the page. The text there may have fewer occurrences than its source, which has addresses and signs. */
function rangeOf(box: Element, hit: Hit, query: string): Range | null {
  const part = partOf(box, hit)
  const ranges = part ? rangesIn(part, query, hit.ordinal + 1) : []
  return ranges[hit.ordinal] ?? ranges.at(-1) ?? null
}

/** Scroll to a range, if it is not visible already. */
function show(box: Element, range: Range) {
  const { top, bottom } = range.getBoundingClientRect()
  const seen = box.getBoundingClientRect()
  if (top >= seen.top + seen.height * 0.15 && bottom <= seen.bottom - seen.height * 0.1) return
  box.scrollTop += top - seen.top - seen.height / 3
}
