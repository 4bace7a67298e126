// How far the answer under way is, and where what happens leads.
import type { AskBody } from "../api/types"
import type { Question } from "./reducer"

export type Phase =
  /** Sent; nothing came back yet. */
  | "asking"
  /** The model is not free yet. */
  | "queued"
  | "streaming"
  | "reconnecting"
  /** Given up for now; a retry reads on. */
  | "lost"
  /** The gateway did not take the question, or could not keep or find the answer: a retry asks again. */
  | "refused"

/** What leads from phase to phase. */
type Step = "queued" | "started" | "delta" | "broken" | "lost" | "refused" | "retried"

/** What a phase does not name changes nothing in it. */
const PHASES: Record<Phase, Partial<Record<Step, Phase>>> = {
  asking: { queued: "queued", started: "streaming", delta: "streaming", broken: "reconnecting", lost: "lost", refused: "refused" },
  queued: { started: "streaming", delta: "streaming", broken: "reconnecting", lost: "lost", refused: "refused" },
  streaming: { started: "streaming", broken: "reconnecting", lost: "lost", refused: "refused" },
  reconnecting: { started: "streaming", delta: "streaming", lost: "lost", refused: "refused" },
  lost: { retried: "reconnecting" },
  refused: { retried: "reconnecting" },
}

const LIVE: ReadonlySet<Phase> = new Set(["asking", "queued", "streaming", "reconnecting"])

/** The turn under way, as this page goes after its answer. */
export interface PendingAnswer {
  /** Stays the same from the question to the final event and after. */
  key: string
  phase: Phase
  conversation_id: string | null
  event_id: string | null
  /** What this page asked; absent where the answer was found under way. */
  question?: Question
  /** The body, to ask again. */
  body?: AskBody
  stopping: boolean
  error?: string
  /** Our clock minus the server's. */
  skew: number
}

export type AnswerEvent =
  | { type: "queued" }
  /** The answer has its name … */
  | { type: "started"; event_id: string; conversation_id: string }
  /** … or it was found under way, by looking for it. */
  | { type: "located"; event_id: string }
  /** Something of the answer came. */
  | { type: "delta" }
  /** The connection. */
  | { type: "broken" }
  | { type: "lost" }
  | { type: "refused"; error: string }
  | { type: "retried" }
  /** Somebody wants it stopped. */
  | { type: "stopped" }
  /** It could not be. */
  | { type: "unstopped" }
  | { type: "clock"; skew: number }

/** Whether its answer may still come by itself; otherwise a retry is offered. */
export const isLive = (pending: PendingAnswer): boolean => LIVE.has(pending.phase)

/** The same object, where that changes nothing. */
export function advance(pending: PendingAnswer, event: AnswerEvent): PendingAnswer {
  switch (event.type) {
    case "located":
      return { ...pending, event_id: event.event_id }
    case "stopped":
      return isLive(pending) && !pending.stopping ? { ...pending, stopping: true } : pending
    case "unstopped":
      return pending.stopping ? { ...pending, stopping: false } : pending
    case "clock":
      return pending.skew === event.skew ? pending : { ...pending, skew: event.skew }
  }
  const phase = PHASES[pending.phase][event.type]
  if (phase === undefined) return pending
  switch (event.type) {
    case "started":
      return { ...pending, phase, event_id: event.event_id, conversation_id: event.conversation_id }
    case "lost":
      return { ...pending, phase, error: "The connection to the gateway was lost." }
    case "refused":
      return { ...pending, phase, error: event.error }
    default: {
      const { error: _, ...rest } = pending
      return { ...rest, phase }
    }
  }
}
