// What the page says of a model: whose it is, and how large.
import type { ModelInfo } from "../api/types"
import { formatNumber } from "../formats"
import { plain } from "../text/visible"
import { words } from "../words"

const sizeOf = ({ bytes }: ModelInfo) => (bytes ? words.modelNotes.gigabytes(formatNumber(Math.round(bytes / 1e8) / 10)) : "")

/** The note of a model in the list. */
export function modelNote(model: ModelInfo): string {
  const tokens = model.context_tokens
  const parts = model.embedded
    ? [sizeOf(model), words.modelNotes.onMachine, words.modelNotes.small]
    : [plain(model.provider ?? ""), tokens ? words.modelNotes.context(formatNumber(Math.round(tokens / 1000))) : ""]
  return parts.filter(Boolean).join(" · ")
}

/** The name of a model on the start page, with its size if it is known. */
export function modelName(model: ModelInfo): string {
  // The full name may end with the form of its weights, in brackets.
  const name = plain(model.title?.replace(/ \([^)]*\)$/, "") ?? model.id)
  const size = sizeOf(model)
  return size ? words.modelNotes.withSize(name, size) : name
}
