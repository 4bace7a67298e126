// Questions that were written and not sent, for each chat: texts in the browser's storage, files only in this page. One
// that is being sent is held until the gateway has it: after a reload, it is in the field again.
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
  /** Chat and text, the oldest first. The chat without an id is the new one. */
  texts: [string, string][]
}

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
    if (held.text !== "" || held.files.length > 0) {
      this.release(chat)
      this.keep(chat, joinQuestions(held, this.get(chat)))
    }
    return this.get(chat)
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

  keep(chat: string | null, { text, files }: QuestionDraft): void {
    const id = chat ?? ""
    if (this.closed) return
    if (files.length > 0) this.files.set(id, files)
    else this.files.delete(id)
    const before = this.read()
    if ((before.find(([one]) => one === id)?.[1] ?? "") === text) return
    const rest = before.filter(([one]) => one !== id)
    this.write(text.trim() === "" ? rest : newestWithinBounds([...rest, [id, text]]))
  }

  /** Delete all; what a component writes afterwards is not stored. */
  close(): void {
    this.closed = true
    this.files.clear()
    this.storage.set(STORAGE_KEY, null)
  }

  private read(): [string, string][] {
    const stored = this.storage.getJson(STORAGE_KEY) as Stored | null
    if (stored?.owner !== this.owner || !Array.isArray(stored.texts)) return []
    return stored.texts.filter((one) => Array.isArray(one) && typeof one[0] === "string" && typeof one[1] === "string")
  }

  private write(texts: [string, string][]): void {
    this.storage.set(STORAGE_KEY, texts.length === 0 ? null : JSON.stringify({ owner: this.owner, texts } satisfies Stored))
  }
}

/** The newest drafts that fit; the last one only if it fits alone. */
function newestWithinBounds(texts: [string, string][]): [string, string][] {
  let left = MAX_CHARACTERS
  return texts
    .toReversed()
    .slice(0, MAX_DRAFTS)
    .filter(([, text]) => (left -= text.length) >= 0)
    .toReversed()
}
