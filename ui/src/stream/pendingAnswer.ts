// The state machine of the pending answer.
import type { AskBody } from "../api/types"
import type { Question } from "./reducer"
import { words } from "../words"

export type Phase =
  /** Sent; no response yet. */
  | "asking"
  /** Waiting for the model to be free. */
  | "queued"
  | "streaming"
  | "reconnecting"
  /** Reconnecting failed; a retry continues reading. */
  | "lost"
  /** The gateway rejected the question, or could not save or find the answer: a retry asks again. */
  | "refused"

/** Events that change the phase. */
type Step = "queued" | "started" | "delta" | "broken" | "lost" | "refused" | "retried"

/** Events that a phase does not list have no effect in it. */
const PHASES: Record<Phase, Partial<Record<Step, Phase>>> = {
  asking: { queued: "queued", started: "streaming", delta: "streaming", broken: "reconnecting", lost: "lost", refused: "refused" },
  queued: { started: "streaming", delta: "streaming", broken: "reconnecting", lost: "lost", refused: "refused" },
  streaming: { started: "streaming", broken: "reconnecting", lost: "lost", refused: "refused" },
  reconnecting: { started: "streaming", delta: "streaming", lost: "lost", refused: "refused" },
  lost: { retried: "reconnecting" },
  refused: { retried: "reconnecting" },
}

const LIVE: ReadonlySet<Phase> = new Set(["asking", "queued", "streaming", "reconnecting"])

/** `moved`: the conversation has newer turns; `busy`: another answer is in progress. */
export type Conflict = "moved" | "busy"

/** The pending answer, as this page follows it. */
export interface PendingAnswer {
  /** The React key: the same from the question to the final event and after. */
  key: string
  phase: Phase
  conversation_id: string | null
  event_id: string | null
  /** The question of this page; absent if the answer was already in progress. */
  question?: Question
  /** The request body, to ask again. */
  body?: AskBody
  stopping: boolean
  error?: string
  /** Why the question was refused, if another window continued the conversation. */
  conflict?: Conflict
  /** The browser's clock minus the server's, in milliseconds. */
  skew: number
}

export type AnswerEvent =
  | { type: "queued" }
  /** The answer got its id … */
  | { type: "started"; event_id: string; conversation_id: string }
  /** … or was found in the conversation. */
  | { type: "located"; event_id: string }
  /** A frame of the answer arrived. */
  | { type: "delta" }
  /** The state of the connection. */
  | { type: "broken" }
  | { type: "lost" }
  | { type: "refused"; error: string; conflict?: Conflict }
  | { type: "retried" }
  /** What another window does in a conversation that went on: an answer began or ended there. */
  | { type: "overtaken"; conflict: Conflict }
  /** The user stops the answer. */
  | { type: "stopped" }
  /** Stopping failed. */
  | { type: "unstopped" }
  | { type: "clock"; skew: number }

/** Whether the answer may still arrive without a retry. */
export const isLive = (pending: PendingAnswer): boolean => LIVE.has(pending.phase)

/** Return the next state; the same object if nothing changes. */
export function advance(pending: PendingAnswer, event: AnswerEvent): PendingAnswer {
  switch (event.type) {
    case "located":
      return { ...pending, event_id: event.event_id }
    case "overtaken":
      return pending.conflict !== undefined && pending.conflict !== event.conflict ? { ...pending, conflict: event.conflict } : pending
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
      return { ...pending, phase, error: words.gateway.lost }
    case "refused":
      return { ...pending, phase, error: event.error, ...(event.conflict && { conflict: event.conflict }) }
    default: {
      const { error: _, conflict: __, ...rest } = pending
      return { ...rest, phase }
    }
  }
}
