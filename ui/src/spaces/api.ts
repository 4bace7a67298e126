// The history of a space over HTTP, read with the participant's token. Failures are ApiErrors whose messages can be
// shown to users.
import { ApiError } from "../api/client"
import { readEnvelope } from "./envelope"
import type { Envelope } from "./envelope"

export interface Page {
  envelopes: Envelope[]
  /** There are more envelopes in the direction of reading. */
  more: boolean
  /** The range of numbers that was read, including envelopes that this participant may not see. */
  first: number | null
  last: number | null
}

export interface SearchHit {
  envelope: Envelope
  /** The text around the match. */
  snippet: string
}

export interface SearchResults {
  hits: SearchHit[]
  more: boolean
  before: number | null
}

export interface PageQuery {
  after?: number
  before?: number
  limit?: number
  newest?: boolean
}

export interface History {
  page: (query: PageQuery, signal?: AbortSignal) => Promise<Page>
  /** Newest first; older results are those before `before`. */
  search: (query: string, before: number | null, signal?: AbortSignal) => Promise<SearchResults>
}

type Obj = Record<string, unknown>

const object = (value: unknown): Obj => (typeof value === "object" && value !== null ? (value as Obj) : {})
const number = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : null)

function rows(body: Obj): unknown[] {
  for (const name of ["envelopes", "hits"]) if (Array.isArray(body[name])) return body[name]
  return []
}

export function historyOf(space: string, token: string, fetchFunction: typeof fetch = (input, init) => fetch(input, init)): History {
  const base = `/spaces/${encodeURIComponent(space)}`

  async function get(path: string, query: Record<string, string | number | boolean | undefined>, signal?: AbortSignal): Promise<Obj> {
    const params = new URLSearchParams()
    for (const [name, value] of Object.entries(query)) if (value !== undefined) params.set(name, `${value}`)
    let response: Response
    try {
      response = await fetchFunction(`${base}${path}?${params}`, {
        headers: { accept: "application/json", authorization: `Bearer ${token}` },
        credentials: "omit",
        cache: "no-store",
        signal: signal ?? null,
      })
    } catch (error) {
      if (signal?.aborted) throw error
      throw new ApiError("The gateway cannot be reached. Check your connection and try again.", 0)
    }
    const body = object(await response.json().catch(() => null))
    if (response.ok) return body
    const message = object(body["error"])["message"] ?? body["message"]
    throw new ApiError(typeof message === "string" ? message : `The gateway answered with an error (${response.status}).`, response.status)
  }

  return {
    async page({ after, before, limit = 500, newest }, signal) {
      const body = await get("/envelopes", { after_seq: after, before_seq: before, limit, newest: newest || undefined, dialect: "mew/v0.4" }, signal)
      const envelopes = rows(body).map(readEnvelope).filter((one) => one !== null)
      return {
        envelopes,
        more: typeof body["has_more"] === "boolean" ? body["has_more"] : envelopes.length >= limit,
        first: number(body["first"]),
        last: number(body["last"]),
      }
    },

    async search(query, before, signal) {
      const body = await get("/search", { q: query, limit: 40, before_seq: before ?? undefined, dialect: "mew/v0.4" }, signal)
      const hits = rows(body).flatMap((row) => {
        const one = object(row)
        const envelope = readEnvelope(one["envelope"])
        const snippet = one["snippet"]
        return envelope ? [{ envelope, snippet: typeof snippet === "string" ? snippet : "" }] : []
      })
      return { hits, more: body["has_more"] === true, before: number(body["before"]) }
    },
  }
}
