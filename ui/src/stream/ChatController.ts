// The chat that the page shows: opens it, asks in it, keeps the question that waits for an answer, and resolves conflicts
// with other windows. What was begun for one chat ends when another one is shown.
import { ApiError, errorMessage } from "../api/client"
import type { Client } from "../api/client"
import type { AskBody, OpenConversation, Status } from "../api/types"
import { inputOf, joinQuestions } from "../compose/questionFile"
import type { QuestionFile, QuestionDraft, ShownFile } from "../compose/questionFile"
import type { Drafts } from "../compose/drafts"
import { linkedAbort, onLeft, onWake } from "../api/wake"
import { conversationId, goTo, onNavigate } from "../routes"
import { isLive } from "./pendingAnswer"
import type { PendingAnswer } from "./pendingAnswer"
import { eventOf, newestAnswer, questionId, questionText, threadOf } from "./reducer"
import type { Action, ChatStore } from "./reducer"
import type { StreamingSessionManager } from "./StreamingSessionManager"
import { words } from "../words"

export interface Failure {
  title: string
  message: string
  /** The chat does not exist, so a retry would not help. */
  missing: boolean
}

/** A question that waits for the end of an answer. */
export interface FollowUp extends QuestionDraft {
  /** The id of the answer; null until it has one. */
  after: string | null
}

/** What the page shows of its chat, besides the store and the pending answer. */
export interface ShownChat {
  /** null: a new chat, which has no id yet. */
  id: string | null
  /** Another one for each chat that is shown; the same when a new chat gets its id. */
  key: number
  /** Why the chat cannot be shown. */
  failure: Failure | null
  /** Why the last request failed. */
  problem: string | null
  /** The status of the last answer that ended here. */
  ended: Status | null
  followUp: FollowUp | null
  /** The instructions that a new chat begins with. The store has those of a chat that it knows. */
  instructions: string
  /** Changes when the list of chats should be loaded again. */
  listVersion: number
}

export type Settings = Pick<AskBody, "model" | "effort" | "view" | "tools">

export interface Options {
  client: Pick<Client, "conversation" | "change" | "remove">
  store: ChatStore
  session: StreamingSessionManager
  drafts: Pick<Drafts, "add" | "keep" | "hold" | "release">
  /** Load what a conversation needs before it is shown. */
  prepare?: (loaded: OpenConversation) => Promise<void>
}

/** Callbacks into the page. */
export interface Page {
  /** The settings of the next question. */
  settings: () => Settings
  /** Store what is written in the field as the draft of the chat. */
  storeDraft: () => void
  onSignedOut: () => void
}

export class ChatController {
  private state: ShownChat = {
    id: conversationId(),
    key: 0,
    failure: null,
    problem: null,
    ended: null,
    followUp: null,
    instructions: "",
    listVersion: 0,
  }
  private page: Page | null = null
  private readonly listeners = new Set<() => void>()
  /** Aborted when another chat is shown. */
  private shown = new AbortController()
  private reading: AbortController | null = null
  private newestLoad: Promise<void> | null = null
  /** The chat to which a question is being sent; undefined if none is, or if the gateway has it. */
  private asking: string | null | undefined

  constructor(private readonly options: Options) {}

  // --- interface for the page

  /** Show the chat of the address, and follow the address. Returns a function that ends this. */
  start(page: Page): () => void {
    const { session, store } = this.options
    this.page = page
    this.shown = new AbortController()
    const leaving = new AbortController()
    addEventListener("pagehide", () => this.keepFollowUp(), { signal: leaving.signal })
    const stops = [
      session.connect({ onConversation: this.onConversation, onSignedOut: page.onSignedOut }),
      session.subscribe(this.onPending),
      store.subscribe(this.onAction),
      onNavigate(() => this.show(conversationId())),
      onWake((reason) => session.wake(reason)),
      onLeft(() => session.pause()),
      () => leaving.abort(),
    ]
    if (this.state.id === conversationId()) void this.load()
    else this.show(conversationId())
    return () => {
      this.shown.abort()
      session.leave()
      for (const stop of stops) stop()
      this.page = null
    }
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  readonly current = (): ShownChat => this.state

  /** Whether an answer is in progress in this chat. */
  isBusy(): boolean {
    const pending = this.options.session.current()
    return pending !== null && isLive(pending) && pending.conversation_id === this.state.id
  }

  showProblem(problem: string): void {
    this.set({ problem })
  }

  // --- questions

  ask(text: string, files: readonly ShownFile[] = [], replaces?: string): void {
    const { id, instructions } = this.state
    const follows = id === null || replaces !== undefined ? undefined : newestAnswer(this.options.store.get(), id)
    const body: AskBody = {
      text,
      ...(id !== null && { conversation_id: id }),
      ...this.page?.settings(),
      ...(replaces && { replaces }),
      ...(follows && { follows }),
      ...(files.length > 0 && { attachments: files.map(inputOf) }),
      ...(id === null && replaces === undefined && instructions !== "" && { instructions }),
    }
    this.set({ problem: null, ended: null })
    const asked = replaces === undefined ? undefined : eventOf(this.options.store.get(), questionId(replaces))
    if (asked?.role !== "user" || questionText(asked) !== text) {
      this.options.drafts.hold(id, { text, files: files as readonly QuestionFile[] })
      this.asking = id
    }
    this.options.session.ask(body, files)
  }

  /** Ask, now or when the answer in progress is complete. */
  send(question: QuestionDraft): void {
    const { followUp } = this.state
    if (this.isBusy()) this.wait(followUp ? joinQuestions(followUp, question) : question)
    else this.ask(question.text, question.files)
  }

  /** Ask the follow-up now, also if the answer did not end well. */
  sendFollowUp(): void {
    const question = this.takeFollowUp()
    if (question) this.ask(question.text, question.files)
  }

  /** Return the follow-up, which waits no longer. */
  takeFollowUp(): QuestionDraft | null {
    const { followUp } = this.state
    this.set({ followUp: null })
    return followUp
  }

  /**
   * Give up a question that was refused because of another window, and show what that one did. Returns the question; null
   * if another chat is shown by then, and the question is a draft of its own chat.
   */
  async withdraw({ conversation_id, question }: PendingAnswer): Promise<QuestionDraft | null> {
    const { signal } = this.shown
    const withdrawn = { text: question?.text ?? "", files: (question?.files ?? []) as readonly QuestionFile[] }
    this.options.session.leave()
    await this.load()
    this.release(conversation_id)
    if (!signal.aborted) return withdrawn
    this.options.drafts.add(conversation_id, withdrawn)
    return null
  }

  /** Send a question that was refused because of another window: as a branch, or after the other answer. */
  async sendRefused(refused: PendingAnswer): Promise<void> {
    if (refused.conflict === "moved") return this.report(this.branch(refused))
    const question = await this.withdraw(refused)
    if (question === null) return
    if (this.options.session.current() === null) this.ask(question.text, question.files)
    else this.wait(question)
  }

  // --- the chat

  /** Load the chat again. */
  retry(): void {
    void this.load()
  }

  /** Go to another chat; `null` for a new one. */
  leaveFor(id: string | null): void {
    this.set({ problem: null })
    if (id === null && this.state.id === null) this.options.session.leave()
    goTo(id)
  }

  showVersion(answer: string): Promise<void> {
    const { id } = this.state
    return id === null ? Promise.resolve() : this.report(this.showBranch(id, answer))
  }

  async rename(id: string, title: string): Promise<void> {
    this.options.store.dispatch({ type: "changed", conversation: await this.options.client.change(id, { title }) })
  }

  async setInstructions(instructions: string): Promise<void> {
    const { id } = this.state
    if (id !== null) this.options.store.dispatch({ type: "changed", conversation: await this.options.client.change(id, { instructions }) })
    else if (this.options.session.current() !== null) throw new Error("The chat has no id yet.")
    else this.set({ instructions })
  }

  async remove(id: string): Promise<void> {
    await this.options.client.remove(id)
    this.forget(id)
    this.options.drafts.keep(id, { text: "", files: [] })
    this.options.drafts.release(id)
    if (id === this.state.id) this.set({ followUp: null })
  }

  // --- changes in other windows

  readonly onListChanged = (): void => this.set({ listVersion: this.state.listVersion + 1 })

  readonly onChanged = (id: string): void => {
    if (id === this.state.id) void this.load()
  }

  readonly onDeleted = (id: string): void => {
    this.forget(id)
    if (id !== this.state.id) return
    // The waiting question cannot be asked here any more; a new chat begins with it.
    const question = this.takeFollowUp()
    if (question) this.options.drafts.add(null, question)
    this.set({ failure: { title: words.live.deleted, message: "", missing: true } })
  }

  // --- private

  private show(id: string | null): void {
    const { session } = this.options
    if (id === this.state.id) return
    // A new chat gets its id.
    if (this.state.id === null && session.current()?.conversation_id === id) return this.set({ id })
    this.shown.abort()
    this.shown = new AbortController()
    session.leave()
    this.asking = undefined
    this.keepFollowUp()
    this.set({ id, key: this.state.key + 1, failure: null, ended: null, followUp: null, instructions: "" })
    void this.load()
  }

  /** Load the shown chat; resolves when the newest of these loads has ended. */
  private async load(): Promise<void> {
    this.newestLoad = this.read()
    let awaited: Promise<void> | null = null
    while (awaited !== this.newestLoad) await (awaited = this.newestLoad)
  }

  /** What is loaded already stays if this fails. */
  private async read(): Promise<void> {
    const { client, store, session, prepare } = this.options
    const { id } = this.state
    if (id === null) return
    this.reading?.abort()
    this.reading = linkedAbort(this.shown.signal)
    const { signal } = this.reading
    this.set({ failure: null })
    try {
      const loaded = await client.conversation(id, signal)
      await prepare?.(loaded)
      if (signal.aborted) return
      store.dispatch({ type: "opened", loaded })
      session.setConflict(loaded.active === null ? "moved" : "busy")
      // A question of this page that was refused, or waits for its answer, stays.
      if (loaded.active !== null && session.current() === null) session.resume(id, loaded.active)
    } catch (error) {
      if (signal.aborted) return
      const status = error instanceof ApiError ? error.status : 0
      if (status === 401) this.page?.onSignedOut()
      const missing = status === 404
      if (!missing && threadOf(store.get(), id).length > 0) return
      this.set({ failure: { title: missing ? words.chat.missing : words.chat.openFailed, message: missing ? words.chat.missingMore : errorMessage(error, words.page.broken), missing } })
    }
  }

  private async showBranch(id: string, head: string): Promise<void> {
    const { client, store } = this.options
    const { signal } = this.shown
    store.dispatch({ type: "changed", conversation: await client.change(id, { head }) })
    const loaded = await client.conversation(id, signal)
    if (!signal.aborted) store.dispatch({ type: "opened", loaded })
  }

  /** Ask a refused question after the answer that its reader knew. */
  private async branch({ conversation_id, body }: PendingAnswer): Promise<void> {
    if (!conversation_id || !body) return
    // It followed no answer: there is nothing to branch from.
    if (!body.follows) return this.options.session.retry()
    const { signal } = this.shown
    const { follows, ...rest } = body
    const next = () => {
      const thread = threadOf(this.options.store.get(), conversation_id)
      const at = thread.indexOf(follows)
      return at < 0 ? undefined : (thread[at + 1] ?? null)
    }
    // Another branch is shown: find the place of the question first.
    if (next() === undefined) await this.showBranch(conversation_id, follows)
    signal.throwIfAborted()
    const replaces = next()
    this.options.session.ask({ ...rest, conversation_id, ...(replaces ? { replaces } : { follows }) })
  }

  /** Show why a request for the shown chat failed. */
  private async report(request: Promise<void>): Promise<void> {
    const { signal } = this.shown
    try {
      await request
    } catch (error) {
      if (!signal.aborted) this.showProblem(errorMessage(error, words.page.broken))
    }
  }

  private forget(id: string): void {
    const { session, store } = this.options
    if (session.current()?.conversation_id === id) session.leave()
    store.dispatch({ type: "deleted", conversation_id: id })
  }

  private release(id: string | null): void {
    this.options.drafts.release(id)
    this.asking = undefined
  }

  private wait(question: QuestionDraft): void {
    this.set({ followUp: { ...question, after: this.options.session.current()?.event_id ?? null } })
  }

  private keepFollowUp(): void {
    const { id, followUp } = this.state
    if (followUp === null) return
    // The waiting question comes after it.
    this.page?.storeDraft()
    this.options.drafts.add(id, followUp)
  }

  private readonly onConversation = (id: string): void => {
    this.onListChanged()
    if (this.state.id === null && this.options.session.current()?.conversation_id === id) goTo(id)
  }

  private readonly onAction = (action: Action): void => {
    if (action.type === "final") this.set({ ended: action.event.status })
  }

  private readonly onPending = (): void => {
    const { session, store } = this.options
    const { followUp } = this.state
    const pending = session.current()
    if (this.asking !== undefined && pending !== null && pending.event_id !== null) this.release(this.asking)
    if (followUp === null) return
    if (pending === null) {
      if (followUp.after !== null && eventOf(store.get(), followUp.after)?.status === "completed") this.sendFollowUp()
    } else if (pending.event_id !== null && pending.event_id !== followUp.after && isLive(pending)) {
      this.set({ followUp: { ...followUp, after: pending.event_id } })
    }
  }

  private set(changes: Partial<ShownChat>): void {
    this.state = { ...this.state, ...changes }
    for (const listener of this.listeners) listener()
  }
}
