// What stands in a conversation: its turns, from the store and from the session under way.
import type { Answer, QuestionEvent } from "../api/types"
import { answerId, before, questionText, threadOf } from "../stream/reducer"
import type { Store } from "../stream/reducer"
import type { Asking } from "../stream/advance"

/** A question and its answer. */
export interface Turn {
  key: string
  /** The answer's id; absent until the gateway has named it. */
  id: string | undefined
  question: { text: string; event?: QuestionEvent }
  answer: Answer | undefined
  /** While there is no final event, and this page is after it. */
  asking: Asking | undefined
}

export function turnsOf(store: Store, conversationId: string | null, asking: Asking | null, keyOf: (id: string) => string): Turn[] {
  const thread = conversationId === null ? [] : threadOf(store, conversationId)
  const here = asking !== null && asking.conversation_id === conversationId ? asking : null
  const shown = here?.question ? before(thread, here.question.replaces) : thread
  const turns: Turn[] = []
  for (const id of shown) {
    const event = store.events[id]
    if (event?.role === "user") {
      turns.push({ key: keyOf(id), id: answerId(id), question: { text: questionText(event), event }, answer: undefined, asking: undefined })
    } else if (event) {
      const last = turns.at(-1)
      if (last?.id === id) last.answer = event
    }
  }
  if (!here) return turns
  const mine = here.event_id === null ? undefined : turns.find((turn) => turn.id === here.event_id)
  if (mine) mine.asking = mine.answer ? undefined : here
  else if (here.question) {
    turns.push({ key: here.key, id: here.event_id ?? undefined, question: { text: here.question.text }, answer: undefined, asking: here })
  }
  return turns
}

