// Which of the server's tools the model may use: all but those that were switched off in this browser.
import { useCallback, useEffect, useState } from "react"

import { client } from "../api/client"
import type { ServerTool } from "../api/types"
import { browserStorage } from "../storage"

const STORAGE_KEY = "pellucid.tools-off"

function readStored(): readonly string[] {
  const read = browserStorage.getJson(STORAGE_KEY)
  return Array.isArray(read) ? read.filter((one) => typeof one === "string") : []
}

export interface ToolChoice {
  /** null until they are loaded. */
  tools: readonly ServerTool[] | null
  /** Names of tools that are switched off. */
  off: readonly string[]
  failed: boolean
  /** The names to send with a question; undefined: all of them. */
  names: string[] | undefined
  /** A question would have to name the tools, and they are not known yet. */
  unknown: boolean
  load: () => void
  change: (names: readonly string[], on: boolean) => void
}

export function useToolChoice(): ToolChoice {
  const [tools, setTools] = useState<readonly ServerTool[] | null>(null)
  const [failed, setFailed] = useState(false)
  const [off, setOff] = useState(readStored)
  const load = useCallback(() => {
    setFailed(false)
    client.tools().then(({ data }) => setTools(data), () => setFailed(true))
  }, [])
  useEffect(() => {
    if (readStored().length > 0) load()
  }, [load])
  const change = useCallback((names: readonly string[], on: boolean) => {
    setOff((now) => {
      const next = now.filter((one) => !names.includes(one)).concat(on ? [] : names)
      browserStorage.set(STORAGE_KEY, next.length === 0 ? null : JSON.stringify(next))
      return next
    })
  }, [])
  const isAny = tools?.some(({ name }) => off.includes(name)) ?? false
  return {
    tools,
    off: tools === null ? off : off.filter((name) => tools.some((one) => one.name === name)),
    failed,
    names: isAny ? tools?.map(({ name }) => name).filter((name) => !off.includes(name)) : undefined,
    unknown: tools === null && off.length > 0,
    load,
    change,
  }
}
