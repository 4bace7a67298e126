// A file of a question: one that is being read, one that is ready to be sent, or one that is stored with a question.
import type { AttachmentInfo, AttachmentInput } from "../api/types"
import { formatNumber } from "../formats"
import { words } from "../words"

/** What a question shows of a file. */
export interface ShownFile {
  name: string
  media_type: string
  size: number
  /** Where its content is: a data: URL, or the address at the gateway. */
  url?: string
  /** The id, once it is stored. */
  id?: string
}

export interface QuestionFile extends ShownFile {
  key: string
  /** The part that was read, from 0 to 1. */
  progress: number
  /** The content in base64, once it was read. */
  data?: string
  /** The size in pixels to which it was scaled down. */
  scaled?: { width: number; height: number }
  /** Why it cannot be sent. */
  problem?: string
}

/** Whether it is stored, or was read. */
export const isReady = ({ id, data }: QuestionFile) => id !== undefined || data !== undefined

/** A question that is ready to be sent. */
export interface QuestionDraft {
  text: string
  files: readonly QuestionFile[]
}

/** Two questions as one. */
export const joinQuestions = (first: QuestionDraft, second: QuestionDraft): QuestionDraft => ({
  text: [first.text, second.text].filter((text) => text.trim() !== "").join("\n\n"),
  files: [...first.files, ...second.files],
})

export const isImage = (file: ShownFile) => file.media_type.startsWith("image/")

/** The size for people, in decimal units. */
export const sizeText = (size: number) =>
  size >= 1e6 ? words.attach.megabytes(formatNumber(Number((size / 1e6).toPrecision(3)))) : words.attach.kilobytes(formatNumber(Math.max(1, Math.round(size / 1e3))))

export const inputOf = ({ id, name, media_type, data }: QuestionFile | ShownFile & { data?: string }): AttachmentInput =>
  id !== undefined ? { id } : { name, media_type, ...(data !== undefined && { data }) }

const ATTACHMENTS = "/api/attachments/"

/** The stored files of an answered question, whose ids follow from the id of its answer. */
export const storedFiles = (answerId: string, files: readonly ShownFile[]): AttachmentInfo[] =>
  files.map(({ name, media_type, size }, index) => {
    const id = `${answerId.replace(/^[^_]*/, "att")}_${index}`
    return { id, name, media_type, size, url: `${ATTACHMENTS}${id}` }
  })
