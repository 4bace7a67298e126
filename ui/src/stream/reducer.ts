// The store of conversations and events. Only loaded conversations and message_final write to it; answers in progress
// are in the streaming bus.
import type { Answer, ChatEvent, ConversationInfo, OpenConversation, QuestionEvent } from "../api/types"
import { storedFiles } from "../compose/questionFile"
import type { ShownFile } from "../compose/questionFile"

export interface Store {
  conversations: Readonly<Record<string, ConversationInfo>>
  events: Readonly<Record<string, ChatEvent>>
  /** The event ids of a conversation's open branch, in order. */
  threads: Readonly<Record<string, readonly string[]>>
}

export type Action =
  | { type: "opened"; loaded: OpenConversation }
  | { type: "changed"; conversation: ConversationInfo }
  | { type: "deleted"; conversation_id: string }
  /** message_final, with its question if this page asked it. */
  | { type: "final"; event: Answer; question?: Question }

export interface Question {
  text: string
  files?: readonly ShownFile[]
  created_at: number
  /** The question or answer that it replaces. */
  replaces?: string
}

export const EMPTY: Store = { conversations: {}, events: {}, threads: {} }

/** The store of one page. Its listeners get the action after the state has changed. */
export class ChatStore {
  private state = EMPTY
  private readonly listeners = new Set<(action: Action) => void>()

  readonly get = (): Store => this.state

  readonly dispatch = (action: Action): void => {
    this.state = reduce(this.state, action)
    for (const listener of this.listeners) listener(action)
  }

  readonly subscribe = (listener: (action: Action) => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }
}

export const questionId = (answerId: string) => answerId.replace(/^evt_/, "ask_")
export const answerId = (id: string) => id.replace(/^ask_/, "evt_")

/** The open branch of a conversation. The id comes from the address, so it may be `__proto__`. */
export const threadOf = (store: Store, id: string): readonly string[] =>
  (Object.hasOwn(store.threads, id) && store.threads[id]) || []

/** An event that the store has. */
export const eventOf = (store: Store, id: string): ChatEvent | undefined => (Object.hasOwn(store.events, id) ? store.events[id] : undefined)

/** The id of the last answer that is shown in a conversation. */
export const newestAnswer = (store: Store, conversation: string) => threadOf(store, conversation).findLast((one) => one.startsWith("evt_"))

export const questionText = (event: QuestionEvent) => event.segments.map((segment) => segment.text).join("\n\n")

export function reduce(store: Store, action: Action): Store {
  switch (action.type) {
    case "opened":
      return withLoaded(store, action.loaded)
    case "changed":
      return {
        ...store,
        conversations: { ...store.conversations, [action.conversation.id]: action.conversation },
      }
    case "deleted":
      return withoutConversation(store, action.conversation_id)
    case "final":
      return withFinal(store, action.event, action.question)
  }
}

/** The part of a thread before the replaced event. */
export function threadBefore(thread: readonly string[], replaces: string | undefined): readonly string[] {
  if (replaces === undefined) return thread
  const at = thread.indexOf(questionId(replaces))
  return at < 0 ? thread : thread.slice(0, at)
}

function withLoaded(store: Store, { conversation, events, active }: OpenConversation): Store {
  const done = events.filter((event) => event.status !== "in_progress" && event.id !== active)
  const byId: Record<string, ChatEvent> = { ...store.events }
  for (const event of done) byId[event.id] = event
  return {
    conversations: { ...store.conversations, [conversation.id]: conversation },
    events: byId,
    threads: { ...store.threads, [conversation.id]: done.map((event) => event.id) },
  }
}

function withoutConversation(store: Store, id: string): Store {
  const { [id]: conversation, ...conversations } = store.conversations
  const { [id]: thread, ...threads } = store.threads
  if (!conversation && !thread) return store
  const events = Object.fromEntries(Object.entries(store.events).filter(([, event]) => event.conversation_id !== id))
  return { conversations, threads, events }
}

function withFinal(store: Store, event: Answer, question: Question | undefined): Store {
  const id = event.conversation_id
  const askId = questionId(event.id)
  const known = threadOf(store, id)
  const earlier = known.includes(askId) ? known.filter((one) => one !== event.id) : threadBefore(known, question?.replaces)
  const events = { ...store.events, [event.id]: event }
  const thread = [...earlier]
  if (question && !events[askId]) events[askId] = questionEvent(store, event, question)
  if (events[askId] && !thread.includes(askId)) thread.push(askId)
  const place = thread.indexOf(askId)
  thread.splice(place < 0 ? thread.length : place + 1, 0, event.id)
  return { ...store, events, threads: { ...store.threads, [id]: thread } }
}

function questionEvent(store: Store, answer: Answer, question: Question): QuestionEvent {
  const event: QuestionEvent = {
    id: questionId(answer.id),
    conversation_id: answer.conversation_id,
    role: "user",
    created_at: answer.created_at,
    status: "completed",
    segments: [{ id: `${questionId(answer.id)}_text`, type: "text", text: question.text }],
    ...(question.files?.length && { attachments: storedFiles(answer.id, question.files) }),
  }
  if (question.replaces === undefined) return event
  const old = store.events[questionId(question.replaces)]
  const versions = (old?.role === "user" && old.versions) || [answerId(question.replaces)]
  return { ...event, versions: [...versions.filter((one) => one !== answer.id), answer.id] }
}
