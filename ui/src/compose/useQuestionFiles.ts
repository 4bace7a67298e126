// The files of a question that is being written: read, checked and removed. Used by the composer and by the form that
// edits a question.
import { createContext, useCallback, useState } from "react"

import type { AttachmentLimits, ModelInfo } from "../api/types"
import { lazyModule } from "../text/lazyModule"
import { words } from "../words"
import { isReady } from "./questionFile"
import type { QuestionFile, ShownFile } from "./questionFile"

const loadKit = () => import("./attachedFiles")
const useKit = lazyModule(loadKit)
let count = 0
const newKey = () => `${++count}`

/** What a question is asked with: the limits of files, undefined while they are not known, and the chosen model. */
export interface Asking {
  limits?: AttachmentLimits | undefined
  model?: ModelInfo | undefined
}

export const AskingContext = createContext<Asking>({})

/** The files of a question that was asked, to be changed. */
export const filesToChange = (files: readonly ShownFile[]): QuestionFile[] => files.map((file) => ({ ...file, key: newKey(), progress: 1 }))

export function useQuestionFiles(initial: () => readonly QuestionFile[], { limits, model }: Asking) {
  const [files, setFiles] = useState(initial)
  const kit = useKit(files.length > 0)
  const problems = kit?.problemsOf(files, limits, model)
  const attach = useCallback(
    (chosen: readonly File[]) => {
      if (!limits || chosen.length === 0) return
      const added = chosen.map((file): QuestionFile => ({ key: newKey(), name: file.name, media_type: file.type, size: file.size, progress: 0 }))
      setFiles((now) => [...now, ...added])
      const change = (key: string, changes: Partial<QuestionFile>) =>
        setFiles((now) => now.map((one) => (one.key === key ? { ...one, ...changes } : one)))
      loadKit().then(
        ({ readFile }) => added.forEach(({ key }, index) => readFile(chosen[index] as File, limits, (changes) => change(key, changes))),
        () => added.forEach(({ key }) => change(key, { problem: words.page.broken, progress: 1 })),
      )
    },
    [limits],
  )
  const add = useCallback((others: readonly QuestionFile[]) => setFiles((now) => [...now, ...others]), [])
  const remove = (key: string) => setFiles((now) => now.filter((one) => one.key !== key))
  const clear = () => setFiles([])
  /** All can be sent. */
  const isComplete = files.length === 0 || (problems !== undefined && !problems.any && files.every(isReady))
  const list = files.length > 0 && kit && problems ? { AttachedFiles: kit.AttachedFiles, problems } : null
  return { files, attach, add, remove, clear, isComplete, problems, list }
}
