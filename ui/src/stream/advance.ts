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
type Step = "queued" | "started" | "told" | "broken" | "lost" | "refused" | "retried"

/** What a phase does not name changes nothing in it. */
const PHASES: Record<Phase, Partial<Record<Step, Phase>>> = {
  asking: { queued: "queued", started: "streaming", told: "streaming", broken: "reconnecting", lost: "lost", refused: "refused" },
  queued: { started: "streaming", told: "streaming", broken: "reconnecting", lost: "lost", refused: "refused" },
  streaming: { started: "streaming", broken: "reconnecting", lost: "lost", refused: "refused" },
  reconnecting: { started: "streaming", told: "streaming", lost: "lost", refused: "refused" },
  lost: { retried: "reconnecting" },
  refused: { retried: "reconnecting" },
}

const LIVE: ReadonlySet<Phase> = new Set(["asking", "queued", "streaming", "reconnecting"])

/** The turn under way, as this page goes after its answer. */
export interface Asking {
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

export type Happened =
  | { type: "queued" }
  /** The answer has its name … */
  | { type: "started"; event_id: string; conversation_id: string }
  /** … or it was found under way, by looking for it. */
  | { type: "found"; event_id: string }
  /** Something of the answer came. */
  | { type: "told" }
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
export const isLive = (asking: Asking): boolean => LIVE.has(asking.phase)

/** The same object, where that changes nothing. */
export function advance(asking: Asking, happened: Happened): Asking {
  switch (happened.type) {
    case "found":
      return { ...asking, event_id: happened.event_id }
    case "stopped":
      return isLive(asking) && !asking.stopping ? { ...asking, stopping: true } : asking
    case "unstopped":
      return asking.stopping ? { ...asking, stopping: false } : asking
    case "clock":
      return asking.skew === happened.skew ? asking : { ...asking, skew: happened.skew }
  }
  const phase = PHASES[asking.phase][happened.type]
  if (phase === undefined) return asking
  switch (happened.type) {
    case "started":
      return { ...asking, phase, event_id: happened.event_id, conversation_id: happened.conversation_id }
    case "lost":
      return { ...asking, phase, error: "The connection to the gateway was lost." }
    case "refused":
      return { ...asking, phase, error: happened.error }
    default: {
      const { error: _, ...rest } = asking
      return { ...rest, phase }
    }
  }
}
