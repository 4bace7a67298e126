// A request of a form: whether it is running, and why it failed.
import { useState } from "react"

import { errorMessage } from "../api/client"

export function useAction(fallback: string): { busy: boolean; problem: string | null; run: (work: () => Promise<void>) => void } {
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState<string | null>(null)
  const run = (work: () => Promise<void>) => {
    setBusy(true)
    setProblem(null)
    work()
      .catch((error: unknown) => setProblem(errorMessage(error, fallback)))
      .finally(() => setBusy(false))
  }
  return { busy, problem, run }
}
