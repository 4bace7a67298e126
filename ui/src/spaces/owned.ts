// Requests that take no participant's token: the spaces of the signed-in user, and links.
import { client, queryString, requestJson, withBody } from "../api/client"
import type { View } from "../api/types"
import { spacePath } from "../routes"

export interface SpaceRow {
  name: string
  topic?: string
  /** The configuration file has it, and it is deleted there. */
  configured?: true
}

export interface ParticipantToken {
  participant: string
  token: string
}

export interface NewSpace {
  name: string
  participant: string
  topic?: string
  conversation_id?: string
}

export const RIGHTS = ["read", "talk", "propose", "approve"] as const
export type Right = (typeof RIGHTS)[number]

export interface LinkRequest {
  participant: string
  rights: readonly Right[]
  expires_in_seconds: number
}

export const mayCreateSpaces = () => client.session().then(({ create_spaces }) => create_spaces ?? false, () => false)

export const ownSpaces = () => requestJson<{ spaces: SpaceRow[] }>("/api/spaces").then(({ spaces }) => spaces)

/** `view`: in which view the space begins with the chat, if with one. */
export const createSpace = (body: NewSpace, view?: View) => requestJson<ParticipantToken>(`/api/spaces${queryString({ view })}`, withBody("POST", body))

/** Delete a space of the signed-in user with all that is in it. */
export const deleteSpace = (space: string) => requestJson<{ name: string }>(`/api${spacePath(space)}`, { method: "DELETE" })

export const enterSpace = (space: string, participant: string) =>
  requestJson<ParticipantToken>(`/api${spacePath(space)}/participants`, withBody("POST", { participant }))

/** What a link gives. */
export interface InvitationContent {
  participant: string
  invited_by: string
  rights: readonly Right[]
}

/** Make a link; return what goes behind `#join=`. */
export function makeLink(space: string, token: string, body: LinkRequest): Promise<string> {
  const init = withBody("POST", body)
  const headers = { ...init.headers, authorization: `Bearer ${token}` }
  return requestJson<{ link: string }>(`${spacePath(space)}/links`, { ...init, headers, credentials: "omit" }).then(({ link }) => link)
}

/** Read a link without using it. One that cannot be used is refused. */
export const readInvitation = (space: string, link: string) =>
  requestJson<InvitationContent>(`${spacePath(space)}/invitation`, { ...withBody("POST", { link }), credentials: "omit" })

export const joinByLink = (space: string, link: string) =>
  requestJson<ParticipantToken>(`${spacePath(space)}/join`, { ...withBody("POST", { link }), credentials: "omit" })
