// The list of chats, or of the search results, page by page. Responses to outdated requests are ignored.
import { useCallback, useEffect, useReducer, useRef } from "react"

import { errorMessage } from "../api/client"
import type { ConversationInfo } from "../api/types"
import type { ConversationSource } from "./props"
import { words } from "../words"

const PAGE = 30

interface State {
  rows: readonly ConversationInfo[]
  more: boolean
  last: string | null
  loading: boolean
  error: string | null
  /** The search query of the current rows. */
  resultQuery: string
}

type Action =
  | { type: "requested" }
  | { type: "page"; rows: ConversationInfo[]; more: boolean; last: string | null; first: boolean; query: string }
  | { type: "failed"; message: string }
  | { type: "renamed"; id: string; title: string }
  | { type: "removed"; id: string }

const START: State = { rows: [], more: false, last: null, loading: true, error: null, resultQuery: "" }

function reduce(state: State, action: Action): State {
  switch (action.type) {
    case "requested":
      return { ...state, loading: true, error: null }
    case "page": {
      const known = new Set(action.first ? [] : state.rows.map((row) => row.id))
      const rows = [...(action.first ? [] : state.rows), ...action.rows.filter((row) => !known.has(row.id))]
      return { rows, more: action.more, last: action.last, loading: false, error: null, resultQuery: action.query }
    }
    case "failed":
      return { ...state, loading: false, error: action.message }
    case "renamed":
      return { ...state, rows: state.rows.map((row) => (row.id === action.id ? { ...row, title: action.title } : row)) }
    case "removed":
      return { ...state, rows: state.rows.filter((row) => row.id !== action.id) }
  }
}

export function useConversations(source: ConversationSource, query: string, version: number) {
  const [state, dispatch] = useReducer(reduce, START)
  const turn = useRef(0)

  const read = useCallback(
    async (after: string | null) => {
      const mine = ++turn.current
      dispatch({ type: "requested" })
      try {
        const page = await source.list({ limit: PAGE, ...(query ? { q: query } : {}), ...(after ? { after } : {}) })
        if (mine !== turn.current) return
        dispatch({ type: "page", rows: page.data, more: page.has_more, last: page.last_id ?? null, first: after === null, query })
      } catch (error) {
        if (mine === turn.current) dispatch({ type: "failed", message: errorMessage(error, words.sidebar.listFailed) })
      }
    },
    [source, query],
  )

  useEffect(() => {
    void read(null)
    // `version` is a dependency only to run the effect again.
  }, [read, version])

  return {
    ...state,
    readMore: () => void read(state.last),
    again: () => void read(null),
    rename: async (id: string, title: string) => {
      const before = state.rows.find((row) => row.id === id)?.title ?? ""
      dispatch({ type: "renamed", id, title })
      try {
        await source.rename(id, title)
      } catch (error) {
        dispatch({ type: "renamed", id, title: before })
        throw error
      }
    },
    remove: async (id: string) => {
      await source.remove(id)
      dispatch({ type: "removed", id })
    },
  }
}
