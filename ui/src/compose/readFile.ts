// Reads a file for a question: its progress, its type by its content, and its content in base64.
import type { AttachmentLimits } from "../api/types"
import { words } from "../words"
import type { Attached } from "./attached"
import { mediaTypeOf, problemOf, sizeProblem } from "./check"

const CHUNK = 0x8000

function toBase64(bytes: Uint8Array): string {
  let text = ""
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK))
  return btoa(text)
}

/** Read a file, and report each change; the last change has its content, or the problem with it. */
export function readFile(file: File, limits: AttachmentLimits, onChange: (change: Partial<Attached>) => void): void {
  const tooLarge = sizeProblem(file.size, limits)
  if (tooLarge !== undefined) return onChange({ problem: tooLarge, progress: 1 })
  const reader = new FileReader()
  reader.onprogress = ({ loaded, total }) => onChange({ progress: total > 0 ? Math.min(0.99, loaded / total) : 0 })
  reader.onerror = () => onChange({ problem: words.attach.unreadable, progress: 1 })
  reader.onload = () => {
    const bytes = new Uint8Array(reader.result as ArrayBuffer)
    const media_type = mediaTypeOf(bytes)
    const problem = problemOf(file.type, bytes, media_type)
    if (problem !== undefined || media_type === undefined) return onChange({ problem: problem ?? words.attach.wrongType, progress: 1 })
    const data = toBase64(bytes)
    const isImage = media_type.startsWith("image/")
    onChange({ media_type, data, progress: 1, ...(isImage && { url: `data:${media_type};base64,${data}` }) })
  }
  reader.readAsArrayBuffer(file)
}
