// The files of a question that is being written, once the code that lists them is loaded.
import type { RefObject } from "react"

import type { useQuestionFiles } from "./useQuestionFiles"

interface Props {
  attached: ReturnType<typeof useQuestionFiles>
  /** The field of the question; it has the focus when a file was removed. */
  field: RefObject<HTMLElement | null>
}

export function Attached({ attached: { files, list, remove }, field }: Props) {
  if (!list) return null
  const removeFile = (key: string) => {
    remove(key)
    field.current?.focus()
  }
  return <list.AttachedFiles files={files} problems={list.problems} onRemove={removeFile} />
}
