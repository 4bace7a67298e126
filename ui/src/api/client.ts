// Client of the gateway's /api. Every failure is an ApiError whose message can be shown to users.
import type {
  AskBody,
  ConversationInfo,
  ConversationPage,
  Feedback,
  Models,
  OpenConversation,
  ServerTool,
  Session,
  Share,
  SharedChat,
  Status,
  View,
} from "./types"
import { words } from "../words"

export class ApiError extends Error {
  override readonly name = "ApiError"

  constructor(
    message: string,
    /** The HTTP status; 0 if there was no response. */
    readonly status: number,
    readonly code?: string,
    readonly param?: string,
  ) {
    super(message)
  }
}

/** The message of an error for users; `fallback` for errors that are not of the API. */
export const errorMessage = (error: unknown, fallback: string) => (error instanceof ApiError ? error.message : fallback)

async function toApiError(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "")
  try {
    const { error } = JSON.parse(text) as { error: { message: string; code?: string; param?: string } }
    if (typeof error.message === "string") {
      return new ApiError(error.message, response.status, error.code ?? undefined, error.param ?? undefined)
    }
  } catch {
    // Not JSON of the gateway: a proxy in between responded.
  }
  return new ApiError(
    words.gateway.byStatus[response.status] ?? words.gateway.status(response.status),
    response.status,
  )
}

/** The mark of the owner whose chats this page shows. Another tab may sign somebody else in, with the same cookie. */
let owner: string | undefined

/** The mark is sent with each request from now on, and the gateway refuses those of another owner's session. */
export function setOwner(mark: string | undefined): void {
  owner = mark
}

/** Load a clean page: this one shows the chats of another owner. */
export const startOver = () => location.replace("/")

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers)
  if (owner !== undefined) headers.set("pellucid-owner", owner)
  let response: Response
  try {
    response = await fetch(path, { credentials: "same-origin", ...init, headers })
  } catch (error) {
    if (init.signal?.aborted) throw error
    throw new ApiError(navigator.onLine ? words.gateway.unreachable : words.gateway.offline, 0)
  }
  if (!response.ok) {
    const error = await toApiError(response)
    if (error.code === "another_owner") startOver()
    throw error
  }
  return response
}

export async function requestJson<T>(path: string, init: RequestInit = {}): Promise<T> {
  const response = await request(path, init)
  try {
    return (await response.json()) as T
  } catch {
    if (init.signal?.aborted) throw new DOMException("aborted", "AbortError")
    throw new ApiError(words.gateway.unreadable, response.status)
  }
}

/** The name of this window at the gateway. The feed names the window that made a change. */
export const WINDOW = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("")

export function withBody(method: string, body: unknown): RequestInit {
  return { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) }
}

/** A request that changes a conversation. */
function change(method: string, body?: unknown): RequestInit {
  const { headers, ...init } = body === undefined ? { method } : withBody(method, body)
  return { ...init, headers: { ...headers, "pellucid-window": WINDOW } }
}

export function queryString(values: Record<string, string | number | undefined>): string {
  const params = new URLSearchParams()
  for (const [name, value] of Object.entries(values)) if (value !== undefined && value !== "") params.set(name, `${value}`)
  const text = params.toString()
  return text && `?${text}`
}

const encoded = encodeURIComponent

/** An open response stream. */
export interface OpenStream {
  body: ReadableStream<Uint8Array>
  /** The server's clock at the time of the response (`Date` header), in milliseconds since 1970. */
  date: number | null
}

function toOpenStream(response: Response): OpenStream {
  if (!response.body) throw new ApiError(words.gateway.unreadable, response.status)
  const date = Date.parse(response.headers.get("date") ?? "")
  return { body: response.body, date: Number.isNaN(date) ? null : date }
}

const STREAM = { accept: "text/event-stream" }

export const client = {
  session: () => requestJson<Session>("/api/session"),
  signIn: (key: string) => requestJson<{ signed_in: boolean }>("/api/session", withBody("POST", { key })),
  signOut: () => request("/api/session", { method: "DELETE" }),
  models: () => requestJson<Models>("/api/models"),
  /** Choose the model that answers where a question names none. */
  chooseDefault: (model: string) => requestJson<{ model: string | null }>("/api/models/default", withBody("PUT", { model })),
  conversations: (filter: { q?: string; limit?: number; after?: string }) =>
    requestJson<ConversationPage>(`/api/conversations${queryString(filter)}`),
  /** The feed of changes of all conversations, after the event with the id `after`. */
  async feed(after: string | null, signal: AbortSignal): Promise<OpenStream> {
    const headers = after === null ? STREAM : { ...STREAM, "last-event-id": after }
    return toOpenStream(await request("/api/events", { headers, signal, cache: "no-store" }))
  },
  conversation: (id: string, signal?: AbortSignal) =>
    requestJson<OpenConversation>(`/api/conversations/${encoded(id)}`, { signal: signal ?? null }),
  tools: () => requestJson<{ data: ServerTool[] }>("/api/tools"),
  change: (id: string, changes: { title?: string; head?: string; instructions?: string }) =>
    requestJson<ConversationInfo>(`/api/conversations/${encoded(id)}`, change("PATCH", changes)),
  remove: (id: string) => requestJson<{ id: string }>(`/api/conversations/${encoded(id)}`, change("DELETE")),
  /** The address of a chat as a file. */
  exportHref: (id: string, format: "markdown" | "json") => `/api/conversations/${encoded(id)}/export?format=${format}`,
  shares: (id: string) => requestJson<{ data: Share[]; allowed: boolean }>(`/api/conversations/${encoded(id)}/shares`),
  share: (id: string, body: { view: View; expires_in_seconds?: number }) =>
    requestJson<Share>(`/api/conversations/${encoded(id)}/shares`, withBody("POST", body)),
  deleteShare: (id: string, share: string) =>
    requestJson<{ id: string }>(`/api/conversations/${encoded(id)}/shares/${encoded(share)}`, { method: "DELETE" }),
  shared: (token: string) => requestJson<SharedChat>(`/api/shared/${encoded(token)}`),
  setFeedback: (eventId: string, feedback: Feedback | null) =>
    requestJson<{ id: string }>(`/api/chat/${encoded(eventId)}/feedback`, change("PUT", feedback ?? { rating: null })),
  cancel: (eventId: string) =>
    requestJson<{ id: string; status: Status }>(`/api/chat/${encoded(eventId)}/cancel`, { method: "POST" }),

  /** Ask a question. The response is a stream of frames. */
  async ask(body: AskBody, signal: AbortSignal): Promise<OpenStream> {
    const init = change("POST", body)
    return toOpenStream(await request("/api/chat", { ...init, headers: { ...init.headers, ...STREAM }, signal }))
  },

  /** Read the stream of an answer, live or finished: from its beginning, or after the frame with the id `after`. */
  async read(eventId: string, after: string | null, signal: AbortSignal): Promise<OpenStream> {
    const headers = after === null ? STREAM : { ...STREAM, "last-event-id": after }
    return toOpenStream(await request(`/api/chat/${encoded(eventId)}`, { headers, signal, cache: "no-store" }))
  },
}

export type Client = typeof client
