// The history of a space over HTTP, read with the participant's token. Failures are ApiErrors whose messages can be
// shown to users.
import { queryString, requestJson } from "../api/client"
import { spacePath } from "../routes"
import { DIALECT, isObject, readEnvelope } from "./envelope"
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

const numberOrNull = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : null)

const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])

/** What a space is about; empty if nobody said, or if it could not be read. */
export const topicOf = (space: string, token: string, signal: AbortSignal): Promise<string> =>
  requestJson<{ settings?: { topic?: unknown } }>(spacePath(space), {
    headers: { accept: "application/json", authorization: `Bearer ${token}` },
    credentials: "omit",
    cache: "no-store",
    signal,
  }).then(({ settings }) => (typeof settings?.topic === "string" ? settings.topic : ""), () => "")

export function historyOf(space: string, token: string): History {
  async function get(path: string, query: Record<string, string | number | undefined>, signal?: AbortSignal): Promise<Record<string, unknown>> {
    const body = await requestJson<unknown>(`${spacePath(space)}${path}${queryString({ ...query, dialect: DIALECT })}`, {
      headers: { accept: "application/json", authorization: `Bearer ${token}` },
      credentials: "omit",
      cache: "no-store",
      signal: signal ?? null,
    })
    return isObject(body) ? body : {}
  }

  return {
    async page({ after, before, limit = 500, newest }, signal) {
      const body = await get("/envelopes", { after_seq: after, before_seq: before, limit, newest: newest ? "true" : undefined }, signal)
      const envelopes = list(body["envelopes"]).map(readEnvelope).filter((one) => one !== null)
      return {
        envelopes,
        more: typeof body["has_more"] === "boolean" ? body["has_more"] : envelopes.length >= limit,
        first: numberOrNull(body["first"]),
        last: numberOrNull(body["last"]),
      }
    },

    async search(query, before, signal) {
      const body = await get("/search", { q: query, limit: 40, before_seq: before ?? undefined }, signal)
      const hits = list(body["hits"]).filter(isObject).flatMap(({ envelope: written, snippet }) => {
        const envelope = readEnvelope(written)
        return envelope ? [{ envelope, snippet: typeof snippet === "string" ? snippet : "" }] : []
      })
      return { hits, more: body["has_more"] === true, before: numberOrNull(body["before"]) }
    },
  }
}
