// What can be attached, by the limits of the gateway: the same rules, so that nothing is sent in vain.
import type { AttachmentLimits, ModelInfo } from "../api/types"
import { words } from "../words"
import { isImage, sizeText } from "./questionFile"
import type { QuestionFile } from "./questionFile"

const PDF = "application/pdf"
const starts = (bytes: Uint8Array, text: string, at = 0) =>
  [...text].every((one, index) => bytes[at + index] === one.charCodeAt(0))

/** The type of a file by its content; undefined if it cannot be attached. */
export function mediaTypeOf(bytes: Uint8Array): string | undefined {
  if (starts(bytes, "\x89PNG\r\n\x1a\n")) return "image/png"
  if (starts(bytes, "\xff\xd8\xff")) return "image/jpeg"
  if (starts(bytes, "GIF87a") || starts(bytes, "GIF89a")) return "image/gif"
  if (starts(bytes, "RIFF") && starts(bytes, "WEBP", 8)) return "image/webp"
  if (starts(bytes, "%PDF-")) return PDF
  if (bytes.includes(0)) return undefined
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes)
    return "text/plain"
  } catch {
    return undefined
  }
}

/** Why a file cannot be attached, by its declared type and its content. */
export function problemOf(declared: string, bytes: Uint8Array, media_type = mediaTypeOf(bytes)): string | undefined {
  if (bytes.length === 0) return words.attach.empty
  const expected = declared.startsWith("image/") ? "image" : declared === PDF ? PDF : undefined
  const actual = media_type?.startsWith("image/") ? "image" : media_type
  return actual === undefined || (expected !== undefined && expected !== actual) ? words.attach.wrongType : undefined
}

/** Why a file is not even read. */
export const sizeProblem = (size: number, limits: AttachmentLimits): string | undefined =>
  size > limits.max_file_bytes ? words.attach.tooLarge(sizeText(size), sizeText(limits.max_file_bytes)) : undefined

/** Why a model cannot get a file; undefined if it can, or if that is not known. */
export function modelProblem(file: QuestionFile, model: ModelInfo | undefined, name: string): string | undefined {
  if (!model?.accepts) return undefined
  if (isImage(file) && !model.accepts.includes("image")) return words.attach.noImages(name)
  if (file.media_type === PDF && !model.accepts.includes("pdf")) return words.attach.noPdf(name)
  return undefined
}

/** Why the files cannot be sent together. */
export function totalProblem(files: readonly QuestionFile[], limits: AttachmentLimits): string | undefined {
  if (files.length > limits.max_files) return words.attach.tooMany(limits.max_files)
  const total = files.reduce((sum, { size }) => sum + size, 0)
  return total > limits.max_total_bytes ? words.attach.tooLargeTogether(sizeText(total), sizeText(limits.max_total_bytes)) : undefined
}
