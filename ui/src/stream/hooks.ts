// How components hear of the streaming bus: they are drawn again at most once in an animation frame.
import { createContext, useCallback, useContext, useSyncExternalStore } from "react"

import { StreamingBus, topics } from "./streamingBus"
import type { LiveMessage, LiveTool } from "./streamingBus"

export const BusContext = createContext(new StreamingBus())

const useBus = () => useContext(BusContext)

/** Draws again whenever the topic changed. */
export function useTopic(topic: string): number {
  const bus = useBus()
  const subscribe = useCallback((listener: () => void) => bus.subscribe(topic, listener), [bus, topic])
  return useSyncExternalStore(subscribe, () => bus.version(topic))
}

/** The answer under way; drawn again when a step, part or text opens or closes, not on every delta. */
export function useLiveMessage(eventId: string): LiveMessage | undefined {
  useTopic(topics.steps(eventId))
  return useBus().message(eventId)
}

/** The same, drawn again on every bit of its text. */
export function useLiveText(eventId: string): LiveMessage | undefined {
  useTopic(topics.text(eventId))
  return useBus().message(eventId)
}

export function useLiveTool(eventId: string, callId: string): LiveTool | undefined {
  useTopic(topics.tool(eventId, callId))
  return useBus().message(eventId)?.tools.get(callId)
}
