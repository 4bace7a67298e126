// What stands in a conversation: pairs of a question and its answer, from the store and from the session under way.
import type { AnswerEvent, QuestionEvent } from "../api/types"
import { answerId, before } from "../stream/reducer"
import type { Store } from "../stream/reducer"
import type { Turn } from "../stream/StreamingSessionManager"

export interface Pair {
  key: string
  /** The answer's id; absent until the gateway has named it. */
  id: string | undefined
  question: { text: string; event?: QuestionEvent }
  answer: AnswerEvent | undefined
  turn: Turn | undefined
}

const textOf = (event: QuestionEvent) => event.segments.map((segment) => segment.text).join("\n\n")

export function pairsOf(store: Store, conversationId: string | null, turn: Turn | null, keyOf: (id: string) => string): Pair[] {
  const thread = conversationId === null ? [] : (store.threads[conversationId] ?? [])
  const here = turn !== null && turn.conversation_id === conversationId ? turn : null
  const shown = here?.question ? before(thread, here.question.replaces) : thread
  const pairs: Pair[] = []
  for (const id of shown) {
    const event = store.events[id]
    if (event?.role === "user") {
      pairs.push({ key: keyOf(id), id: answerId(id), question: { text: textOf(event), event }, answer: undefined, turn: undefined })
    } else if (event) {
      const last = pairs.at(-1)
      if (last?.id === id) last.answer = event
    }
  }
  if (!here) return pairs
  const mine = here.event_id === null ? undefined : pairs.find((pair) => pair.id === here.event_id)
  if (mine) mine.turn = mine.answer ? undefined : here
  else if (here.question) {
    pairs.push({ key: here.key, id: here.event_id ?? undefined, question: { text: here.question.text }, answer: undefined, turn: here })
  }
  return pairs
}

