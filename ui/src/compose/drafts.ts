// Questions that were written and not sent, for each chat: texts and the names of files in the browser's storage, files
// only in this page. One that is being sent is held until the gateway has it: after a reload, it is in the field again.
// They belong to one owner: those of another one are deleted unread, and signing out deletes all.
import { browserStorage } from "../storage"
import type { BrowserStorage } from "../storage"
import { joinQuestions } from "./questionFile"
import type { QuestionFile, QuestionDraft } from "./questionFile"

const STORAGE_KEY = "pellucid.drafts"
const MAX_DRAFTS = 30
const MAX_CHARACTERS = 200_000
const heldId = (chat: string | null) => `held ${chat ?? ""}`

interface Stored {
  owner: string
  /** The oldest first. The chat without an id is the new one. */
  texts: Entry[]
}

/** Chat, text, and the names of attached files. */
type Entry = [chat: string, text: string, names?: readonly string[]]

const NO_NAMES: readonly string[] = []
const MAX_NAMES = 20
const MAX_NAME_CHARACTERS = 200
const namesOf = (files: readonly QuestionFile[]) => files.slice(0, MAX_NAMES).map(({ name }) => name.slice(0, MAX_NAME_CHARACTERS))

export class Drafts {
  private readonly files = new Map<string, readonly QuestionFile[]>()
  private closed = false

  constructor(
    private readonly owner: string,
    private readonly storage: BrowserStorage = browserStorage,
  ) {
    // Another owner's are deleted now, and not only when this one writes.
    this.write(this.read())
  }

  of(chat: string | null): QuestionDraft {
    const held = this.get(heldId(chat))
    const lost = this.lostFiles(heldId(chat))
    if (held.text !== "" || held.files.length > 0 || lost.length > 0) {
      this.release(chat)
      this.put(chat, joinQuestions(held, this.get(chat)), [...lost, ...this.lostFiles(chat)])
    }
    return this.get(chat)
  }

  /** The names of the files that an earlier page had. */
  lostFiles(chat: string | null): readonly string[] {
    const id = chat ?? ""
    return this.files.has(id) ? NO_NAMES : (this.read().find(([one]) => one === id)?.[2] ?? NO_NAMES)
  }

  forgetLostFiles(chat: string | null): void {
    this.put(chat, this.get(chat), NO_NAMES)
  }

  /** Keep a question that is being sent. */
  hold(chat: string | null, question: QuestionDraft): void {
    this.keep(heldId(chat), question)
  }

  /** The gateway has the question, or its reader has it again. */
  release(chat: string | null): void {
    this.keep(heldId(chat), { text: "", files: [] })
  }

  private get(chat: string | null): QuestionDraft {
    const id = chat ?? ""
    return { text: this.read().find(([one]) => one === id)?.[1] ?? "", files: this.files.get(id) ?? [] }
  }

  /** Add a question to what is written already. */
  add(chat: string | null, question: QuestionDraft): void {
    this.keep(chat, joinQuestions(this.of(chat), question))
  }

  keep(chat: string | null, question: QuestionDraft): void {
    // A question without text and files was sent, or given up.
    this.put(chat, question, question.text.trim() === "" ? NO_NAMES : this.lostFiles(chat))
  }

  private put(chat: string | null, { text, files }: QuestionDraft, lost: readonly string[]): void {
    const id = chat ?? ""
    if (this.closed) return
    if (files.length > 0) this.files.set(id, files)
    else this.files.delete(id)
    const before = this.read()
    const names = files.length > 0 ? namesOf(files) : lost
    const known = before.find(([one]) => one === id)
    if ((known?.[1] ?? "") === text && (known?.[2] ?? NO_NAMES).join("\n") === names.join("\n")) return
    const rest = before.filter(([one]) => one !== id)
    const isEmpty = text.trim() === "" && names.length === 0
    this.write(isEmpty ? rest : newestWithinBounds([...rest, names.length > 0 ? [id, text, names] : [id, text]]))
  }

  /** Delete all; what a component writes afterwards is not stored. */
  close(): void {
    this.closed = true
    this.files.clear()
    this.storage.set(STORAGE_KEY, null)
  }

  private read(): Entry[] {
    const stored = this.storage.getJson(STORAGE_KEY) as Stored | null
    if (stored?.owner !== this.owner || !Array.isArray(stored.texts)) return []
    return stored.texts
      .filter((one) => Array.isArray(one) && typeof one[0] === "string" && typeof one[1] === "string")
      .map(([id, text, names]) => (Array.isArray(names) && names.every((name) => typeof name === "string") ? [id, text, names] : [id, text]))
  }

  private write(texts: Entry[]): void {
    this.storage.set(STORAGE_KEY, texts.length === 0 ? null : JSON.stringify({ owner: this.owner, texts } satisfies Stored))
  }
}

/** The newest drafts that fit; the last one only if it fits alone. */
function newestWithinBounds(texts: Entry[]): Entry[] {
  let left = MAX_CHARACTERS
  return texts
    .toReversed()
    .slice(0, MAX_DRAFTS)
    .filter(([, text]) => (left -= text.length) >= 0)
    .toReversed()
}
