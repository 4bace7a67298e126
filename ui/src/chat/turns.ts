// The turns of a conversation, from the store and from the pending answer.
import type { Answer, QuestionEvent } from "../api/types"
import type { ShownFile } from "../compose/questionFile"
import { answerId, threadBefore, questionText, threadOf } from "../stream/reducer"
import type { Store } from "../stream/reducer"
import type { PendingAnswer } from "../stream/pendingAnswer"

/** A question and its answer. */
export interface Turn {
  key: string
  /** The answer's id; undefined until the gateway has assigned it. */
  id: string | undefined
  question: { text: string; files: readonly ShownFile[]; event?: QuestionEvent }
  answer: Answer | undefined
  /** Set until there is a final event, if this page reads the answer. */
  pending: PendingAnswer | undefined
}

export function turnsOf(store: Store, conversationId: string | null, pending: PendingAnswer | null, keyOf: (id: string) => string): Turn[] {
  const thread = conversationId === null ? [] : threadOf(store, conversationId)
  const here = pending !== null && pending.conversation_id === conversationId ? pending : null
  const shown = here?.question ? threadBefore(thread, here.question.replaces) : thread
  const turns: Turn[] = []
  for (const id of shown) {
    const event = store.events[id]
    if (event?.role === "user") {
      turns.push({ key: keyOf(id), id: answerId(id), question: { text: questionText(event), files: event.attachments ?? [], event }, answer: undefined, pending: undefined })
    } else if (event) {
      const last = turns.at(-1)
      if (last?.id === id) last.answer = event
    }
  }
  if (!here) return turns
  const mine = here.event_id === null ? undefined : turns.find((turn) => turn.id === here.event_id)
  if (mine) mine.pending = mine.answer ? undefined : here
  else if (here.question) {
    turns.push({ key: here.key, id: here.event_id ?? undefined, question: { text: here.question.text, files: here.question.files ?? [] }, answer: undefined, pending: here })
  }
  return turns
}

