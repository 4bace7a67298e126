// Hooks for the streaming bus. Components are rendered at most once in an animation frame.
import { createContext, useCallback, useContext, useSyncExternalStore } from "react"

import { StreamingBus, topics } from "./streamingBus"
import type { LiveMessage, LiveTool } from "./streamingBus"

export const BusContext = createContext(new StreamingBus())

const useBus = () => useContext(BusContext)

/** Render again when the topic changes. */
export function useTopic(topic: string): number {
  const bus = useBus()
  const subscribe = useCallback((listener: () => void) => bus.subscribe(topic, listener), [bus, topic])
  return useSyncExternalStore(subscribe, () => bus.version(topic))
}

/** The pending answer; rendered when a step, part or text opens or closes, not on every delta. */
export function useLiveMessage(eventId: string): LiveMessage | undefined {
  useTopic(topics.steps(eventId))
  return useBus().message(eventId)
}

/** The pending answer; rendered on every delta of its text. */
export function useLiveText(eventId: string): LiveMessage | undefined {
  useTopic(topics.text(eventId))
  return useBus().message(eventId)
}

export function useLiveTool(eventId: string, callId: string): LiveTool | undefined {
  useTopic(topics.tool(eventId, callId))
  return useBus().message(eventId)?.tools.get(callId)
}
