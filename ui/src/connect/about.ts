// What the page says of a model: whose it is, and how large.
import type { ModelInfo } from "../api/types"
import { formatNumber } from "../formats"
import { plain } from "../text/visible"
import { words } from "../words"

/** A number of bytes in gigabytes; empty if it is not known. */
export const sizeOf = (bytes: number | undefined) => (bytes ? words.modelNotes.gigabytes(formatNumber(Math.round(bytes / 1e8) / 10)) : "")

/** The note of a model in the list. */
export function modelNote(model: ModelInfo): string {
  const tokens = model.context_tokens
  const parts = model.embedded
    ? [sizeOf(model.bytes), words.modelNotes.onMachine, words.modelNotes.small]
    : [plain(model.provider ?? ""), tokens ? words.modelNotes.context(formatNumber(Math.round(tokens / 1000))) : ""]
  return [...parts, model.default ? words.modelNotes.default : ""].filter(Boolean).join(" · ")
}

/** The full name of an embedded model, without the form of its weights, which may stand at its end in brackets. */
export const shortTitle = (title: string) => plain(title.replace(/ \([^)]*\)$/, ""))

/** The name of a model on the start page, with its size if it is known. */
export function modelName({ id, title, bytes }: { id?: string; title?: string; bytes?: number }): string {
  const name = title === undefined ? plain(id ?? "") : shortTitle(title)
  const size = sizeOf(bytes)
  return size ? words.modelNotes.withSize(name, size) : name
}
