// Requests of the dialog that connects models.
import { ApiError, errorMessage, requestJson, withBody } from "../api/client"
import { words } from "../words"

export interface Provider {
  profile: string
  title: string
  /** Other names, by which it is found. */
  names: string[]
  /** Its usual address, or "". */
  base_url: string
  key: "required" | "optional"
  local: boolean
  common: boolean
}

/** A model that can run inside Pellucid, instead of a smaller one or of none. */
export interface LargerModel {
  name: string
  title: string
  note: string
  bytes: number
  memory_bytes: number
  licence: string
  licence_url: string
  /** It was fetched before. */
  cached: boolean
  command: string
  /** The command that installs what it needs, if that is missing. */
  install?: string
}

export interface Providers {
  data: Provider[]
  larger_models: LargerModel[]
}

export interface ConnectionInfo {
  name: string
  profile: string
  title: string
  base_url: string
  models: string[]
  served_as: string[]
  has_key: boolean
  key_end?: string
  /** The addresses of an own network to which somebody agreed. */
  private_addresses?: string[]
  replaced?: true
}

export interface Connections {
  data: ConnectionInfo[]
  taken: string[]
  problems: string[]
  file: string
}

export interface ConnectionTest {
  ok: boolean
  models: string[]
  has_list: boolean
  base_url?: string
  /** `private_addresses`: those of an own network, which must be agreed to. */
  problem?: { code: string; message: string; detail?: string; private_addresses?: string[] }
}

export interface ConnectionDraft {
  profile: string
  base_url: string | null
  /** null: the stored key; empty: none. */
  api_key: string | null
  /** null: those that are stored. */
  private_addresses: string[] | null
}

const pathOf = (name: string) => `/api/connections/${encodeURIComponent(name)}`

export const connections = {
  list: () => requestJson<Connections>("/api/connections"),
  providers: () => requestJson<Providers>("/api/providers"),
  test: (draft: ConnectionDraft & { model: string | null; name: string | null }, signal: AbortSignal) =>
    requestJson<ConnectionTest>("/api/providers/test", { ...withBody("POST", draft), signal }),
  save: (name: string, draft: ConnectionDraft & { models: string[] }) => requestJson<ConnectionInfo>(pathOf(name), withBody("PUT", draft)),
  remove: (name: string) => requestJson<{ name: string }>(pathOf(name), { method: "DELETE" }),
}

/** The gateway's message as a sentence, without the name of the field, which people do not know. */
export function sentence(error: unknown, fallback: string): string {
  const message = errorMessage(error, fallback)
  const field = error instanceof ApiError && error.param ? `${error.param}: ` : ""
  const text = field && message.startsWith(field) ? message.slice(field.length) : message
  // A name or an address keeps its letters: vLLM, localhost:8000.
  return text.replace(/^\p{Ll}+(?=[ ,])/u, (word) => word.charAt(0).toUpperCase() + word.slice(1))
}

/** A name that no other provider has: the profile's, with a number if it is taken. */
export function freeName(profile: string, taken: ReadonlySet<string>): string {
  let name = profile
  for (let n = 2; taken.has(name); n++) name = `${profile}-${n}`
  return name
}

/** The profile for every address that no other provider has. */
export const ANY_SERVER = "openai-compat"

/** The providers that a search finds: all words are in its title, its names, or what else people call it. */
export function matchingProviders(providers: readonly Provider[], query: string): Provider[] {
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean)
  const known: Readonly<Record<string, string>> = words.connect.alsoCalled
  return providers.filter(({ title, profile, names, local }) => {
    const text = [title, profile, ...names, known[profile] ?? "", local ? words.connect.calledLocal : ""].join(" ").toLowerCase()
    return terms.every((term) => text.includes(term))
  })
}
