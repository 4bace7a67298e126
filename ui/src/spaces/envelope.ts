// An envelope of a space as the gateway writes it (mew/v0.4), and access to its texts. Input from the wire is
// validated: invalid fields are left out, and nothing throws.
import type { Json } from "../api/types"
import { words } from "../words"

export type Payload = Readonly<Record<string, Json | undefined>>

/** A remark of the gateway about an envelope. */
export interface Flag {
  code: string
  message: string
}

export interface Envelope {
  /** The sequence number in the space, which is order and key. 0 if there is none (welcome, error). */
  seq: number
  id: string
  /** Milliseconds since 1970, by the sender's clock. */
  ts: number
  from: string
  to: readonly string[]
  /** Who may read it, if its context is not for everyone; empty: everyone, or `to`. */
  audience: readonly string[]
  kind: string
  correlation: readonly string[]
  context: string | null
  payload: Payload
  flags: readonly Flag[]
  /** Its content was erased. */
  erased: boolean
}

/** The dialect in which the page reads and writes envelopes. */
export const DIALECT = "mew/v0.4"

export const GATEWAY = "system:gateway"

export const START = "reasoning/start"
export const CONCLUSION = "reasoning/conclusion"
export const CANCEL = "reasoning/cancel"
export const SHARE = "reasoning/share"
export const REQUEST = "mcp/request"
export const RESPONSE = "mcp/response"
export const PROPOSAL = "mcp/proposal"
export const WITHDRAW = "mcp/withdraw"
export const REJECT = "mcp/reject"
export const PRESENCE = "system/presence"
export const INVITE = "space/invite"
export const LIMIT = "system/limit"

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const texts = (value: unknown): string[] =>
  typeof value === "string" ? [value] : Array.isArray(value) ? value.filter((one): one is string => typeof one === "string") : []

function time(value: unknown): number {
  const read = typeof value === "number" ? value : typeof value === "string" ? Date.parse(value) : Number.NaN
  return Number.isFinite(read) ? read : 0
}

const flags = (value: unknown): Flag[] =>
  (Array.isArray(value) ? value : []).flatMap((one) =>
    isObject(one) && typeof one["code"] === "string" && typeof one["message"] === "string" ? [{ code: one["code"], message: one["message"] }] : [],
  )

/** Return the envelope, or null if the value is not one. */
export function readEnvelope(value: unknown): Envelope | null {
  if (!isObject(value) || typeof value["kind"] !== "string") return null
  const { seq, id, from, kind, context, payload } = value
  return {
    seq: typeof seq === "number" && Number.isSafeInteger(seq) && seq > 0 ? seq : 0,
    id: typeof id === "string" ? id : "",
    ts: time(value["ts"]),
    from: typeof from === "string" ? from : GATEWAY,
    to: texts(value["to"]),
    audience: texts(value["audience"]),
    kind: kind.replaceAll(".", "/"),
    correlation: texts(value["correlation_id"] ?? value["correlationId"]),
    context: typeof context === "string" && context !== "" ? context : null,
    payload: isObject(payload) ? (payload as Payload) : {},
    flags: flags(value["flags"]),
    // The mark alone does not suffice: the sender may have written it.
    erased: value["erased"] === true && (!isObject(payload) || Object.keys(payload).length === 0),
  }
}

export function readFrame(text: string): Envelope | null {
  try {
    return readEnvelope(JSON.parse(text))
  } catch {
    return null
  }
}

export const familyOf = (kind: string) => kind.slice(0, kind.indexOf("/") < 0 ? undefined : kind.indexOf("/"))

/** The fields in which the text of an envelope may be, as in the gateway's table (`envelopes/kinds.py`). */
const TEXT_FIELDS: Record<string, readonly string[]> = {
  chat: ["text", "message", "content"],
  "reasoning/question": ["message", "content", "questions"],
  "reasoning/hypothesis": ["hypothesis", "message", "content"],
  "system/error": ["message", "error"],
  "system/limit": ["message"],
}
const COMMON_TEXT_FIELDS = ["message", "reasoning", "text", "content", "input", "goal", "decision", "recommendation", "reason"]

/** Look up an own property, for names that come from outside (`constructor` is not found). */
export const ownEntry = <T>(table: Readonly<Record<string, T>>, name: string): T | undefined => (Object.hasOwn(table, name) ? table[name] : undefined)

/** The text of an envelope, wherever the sender put it; empty if there is none. */
export function textOf({ kind, payload }: Pick<Envelope, "kind" | "payload">): string {
  for (const name of ownEntry(TEXT_FIELDS, kind) ?? COMMON_TEXT_FIELDS) {
    const value = payload[name]
    if (typeof value === "string" && value !== "") return value
    const lines = Array.isArray(value) ? texts(value) : []
    if (lines.length > 0) return lines.join("\n")
  }
  return ""
}

/** A text of the payload or of its `metadata`. */
export function textAt(payload: Payload, name: string): string | undefined {
  const own = payload[name] ?? metadataOf(payload)[name]
  return typeof own === "string" && own !== "" ? own : undefined
}

/** One or several texts: both a string and a list of strings are accepted. */
export const textsAt = (payload: Payload, name: string): string[] => texts(payload[name] ?? metadataOf(payload)[name])

export const metadataOf = (payload: Payload): Payload => (isObject(payload["metadata"]) ? (payload["metadata"] as Payload) : {})

const fraction = (value: unknown) => (typeof value === "number" && value >= 0 && value <= 1 ? value : undefined)

/** The sender's confidence, from 0 to 1. */
export const confidenceOf = (payload: Payload): number | undefined => fraction(payload["confidence"]) ?? fraction(metadataOf(payload)["confidence"])

export interface Range {
  low: number
  high: number
  source?: string
}

export function uncertaintyOf(payload: Payload): Range | undefined {
  const value = payload["uncertainty"] ?? metadataOf(payload)["uncertainty"]
  if (!isObject(value)) return undefined
  const low = fraction(value["low"])
  const high = fraction(value["high"])
  if (low === undefined || high === undefined || low > high) return undefined
  return { low, high, ...(typeof value["source"] === "string" && { source: value["source"] }) }
}

/** The tool that is called or proposed, otherwise the method. */
export function toolOf({ payload }: Pick<Envelope, "payload">): string {
  const { method, params } = payload
  const name = isObject(params) ? params["name"] : undefined
  if (method === "tools/call" && typeof name === "string" && name !== "") return name
  return typeof method === "string" && method !== "" ? method : words.spaces.step.unknownMethod
}

/** The arguments of the tool call. */
export function argumentsOf({ payload }: Pick<Envelope, "payload">): Json | undefined {
  const { method, params } = payload
  if (method === "tools/call" && isObject(params)) return params["arguments"] as Json | undefined
  return params
}

/** The result in a readable form: texts are taken out of MCP's content blocks. */
export function resultOf({ payload }: Pick<Envelope, "payload">): Json | undefined {
  const { result, error } = payload
  if (error !== undefined && error !== null) return isObject(error) && typeof error["message"] === "string" ? error["message"] : error
  const blocks = isObject(result) ? result["content"] : undefined
  if (Array.isArray(blocks) && blocks.length > 0) {
    const lines = blocks.map((block) => (isObject(block) && block["type"] === "text" && typeof block["text"] === "string" ? block["text"] : null))
    if (lines.every((line) => line !== null)) return lines.join("\n")
  }
  return result
}

export const isFailure = ({ payload }: Pick<Envelope, "payload">): boolean => {
  const { result, error } = payload
  return (error !== undefined && error !== null) || (isObject(result) && result["isError"] === true)
}

/** A notification gets no response. */
export const expectsResponse = ({ payload }: Pick<Envelope, "payload">): boolean =>
  !(typeof payload["method"] === "string" && payload["method"].startsWith("notifications/"))

/** Whether the envelope cancels the request that it correlates to. */
export const isRequestCancellation = ({ kind, payload }: Pick<Envelope, "kind" | "payload">): boolean => kind === REQUEST && payload["method"] === "notifications/cancelled"

/** The reason as text: codes are replaced by words. */
export function reasonOf(payload: Payload): string | undefined {
  const reason = textAt(payload, "reason")
  if (reason === undefined) return undefined
  return ownEntry(words.spaces.step.reasons, reason) ?? (/^[a-z0-9]+(_[a-z0-9]+)+$/.test(reason) ? reason.replaceAll("_", " ") : reason)
}

/** The ids of the thoughts that this one summarizes. */
export const compressedIds = ({ payload }: Pick<Envelope, "payload">): string[] => texts(metadataOf(payload)["compresses"])

export interface Capability {
  kind?: unknown
}

/** Whether these capabilities probably allow that kind. The gateway decides. */
export function mayProbablySend(capabilities: readonly unknown[], kind: string): boolean {
  return capabilities.some((one) => {
    const patterns = isObject(one) ? one["kind"] : one
    return (Array.isArray(patterns) ? patterns : [patterns]).some((pattern) => {
      if (typeof pattern !== "string") return false
      if (pattern === "*" || /[![\](){}|]/.test(pattern) || pattern.startsWith("/")) return true
      const source = pattern.replaceAll(".", "/").replace(/[+^$\\]/g, "\\$&").replace(/\*\*|\*|\?/g, (glob) => (glob === "**" ? ".*" : glob === "*" ? "[^/]*" : "[^/]"))
      return new RegExp(`^${source}$`).test(kind)
    })
  })
}
