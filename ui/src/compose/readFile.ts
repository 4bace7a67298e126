// Reads a file for a question: its progress, its type by its content, and its content in base64. Images that are larger
// than models use are scaled down first.
import type { AttachmentLimits } from "../api/types"
import { words } from "../words"
import type { QuestionFile } from "./questionFile"
import { mediaTypeOf, problemOf, sizeProblem } from "./check"
import { isAnimated, isScalable, MAX_SCALED_BYTES, scaleInWorker } from "./scale"
import type { Scale } from "./scale"

const CHUNK = 0x8000

function toBase64(bytes: Uint8Array): string {
  let text = ""
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK))
  return btoa(text)
}

/** Read a file, and report each change; the last change has its content, or the problem with it. */
export function readFile(file: File, limits: AttachmentLimits, onChange: (change: Partial<QuestionFile>) => void, scale: Scale = scaleInWorker): void {
  const tooLarge = sizeProblem(file.size, limits)
  const mayShrink = isScalable(file.type) && file.size <= MAX_SCALED_BYTES
  if (tooLarge !== undefined && !mayShrink) return onChange({ problem: tooLarge, progress: 1 })
  const reader = new FileReader()
  reader.onprogress = ({ loaded, total }) => onChange({ progress: total > 0 ? Math.min(0.99, loaded / total) : 0 })
  reader.onerror = () => onChange({ problem: words.attach.unreadable, progress: 1 })
  reader.onload = async () => {
    const original = new Uint8Array(reader.result as ArrayBuffer)
    const type = mediaTypeOf(original)
    const problem = problemOf(file.type, original, type)
    if (problem !== undefined || type === undefined) return onChange({ problem: problem ?? words.attach.wrongType, progress: 1 })
    const scaled = isScalable(type) && !isAnimated(original, type) ? await scale({ image: file, media_type: type, max_bytes: limits.max_file_bytes }).catch(() => null) : null
    if (scaled === null && tooLarge !== undefined) return onChange({ problem: tooLarge, progress: 1 })
    const { bytes, media_type } = scaled ?? { bytes: original, media_type: type }
    const data = toBase64(bytes)
    onChange({
      media_type,
      data,
      progress: 1,
      ...(media_type.startsWith("image/") && { url: `data:${media_type};base64,${data}` }),
      ...(scaled && { name: nameOfType(file.name, type, media_type), size: bytes.length, scaled: { width: scaled.width, height: scaled.height } }),
    })
  }
  reader.readAsArrayBuffer(file)
}

/** The name of a file whose type has changed. */
const nameOfType = (name: string, before: string, now: string) =>
  before === now ? name : `${name.replace(/\.[^.]{1,5}$/, "")}.${now === "image/jpeg" ? "jpg" : now.slice(6)}`
