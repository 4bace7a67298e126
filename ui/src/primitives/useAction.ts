// A request of a form: whether it is running, and why it failed.
import { useState } from "react"

import { errorMessage } from "../api/client"

interface Action {
  busy: boolean
  problem: string | null
  /** `why` replaces the fallback. */
  run: (work: () => Promise<unknown>, why?: string) => void
}

/**
 * @param fallback Why it failed, if the gateway does not say it.
 * @param describe The message for people of what the gateway says.
 */
export function useAction(fallback: string, describe = errorMessage): Action {
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState<string | null>(null)
  const run = (work: () => Promise<unknown>, why = fallback) => {
    setBusy(true)
    setProblem(null)
    work()
      .catch((error: unknown) => setProblem(describe(error, why)))
      .finally(() => setBusy(false))
  }
  return { busy, problem, run }
}
