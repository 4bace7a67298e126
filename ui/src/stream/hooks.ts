// Hooks for the store, and for the streaming bus, whose components are rendered at most once in an animation frame.
import { createContext, startTransition, useCallback, useContext, useEffect, useState, useSyncExternalStore } from "react"
import { flushSync } from "react-dom"

import type { ChatStore, Store } from "./reducer"
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

/** The state of the store. Not by useSyncExternalStore, which would render a long chat at once. */
export function useStore(store: ChatStore): Store {
  const [state, setState] = useState(store.get)
  useEffect(() => {
    setState(store.get())
    return store.subscribe(({ type }) => {
      const update = () => setState(store.get())
      // A long chat is rendered in slices, so that the page can be used meanwhile.
      if (type === "opened") startTransition(update)
      // The final event is rendered before the overlay's buffers are cleared, so nothing flickers.
      else if (type === "final") flushSync(update)
      else update()
    })
  }, [store])
  return state
}
