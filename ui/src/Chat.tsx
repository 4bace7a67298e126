// The chat page of a signed-in user: lays out the list of conversations, the open conversation and the composer.
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react"

import { ApiError, client, errorMessage } from "./api/client"
import type { Effort, Models } from "./api/types"
import { Announcer } from "./chat/Announcer"
import type { Conversation as ConversationType } from "./chat/Conversation"
import { ErrorState } from "./primitives/ErrorState"
import { answerText, CurrencyContext } from "./chat/format"
import { turnsOf } from "./chat/turns"
import type { Turn } from "./chat/turns"
import { choicesOf, chosenModel, lostModel, supportedChoices, useChoices } from "./compose/choices"
import { AddMenu } from "./compose/AddMenu"
import type { QuestionDraft } from "./compose/questionFile"
import type { Drafts } from "./compose/drafts"
import { AskingContext } from "./compose/useQuestionFiles"
import { useToolChoice } from "./compose/toolChoice"
import { listenToKeys } from "./compose/listenToKeys"
import type { Actions } from "./compose/listenToKeys"
import { ConflictContext } from "./chat/conflict"
import type { ConflictChoices } from "./chat/conflict"
import { useFeed } from "./live/useFeed"
import { LostModel } from "./compose/LostModel"
import { Composer } from "./compose/Composer"
import type { ComposerHandle } from "./compose/Composer"
import { EmptyState } from "./shell/EmptyState"
import { LostFiles } from "./shell/LostFiles"
import { Offline } from "./shell/Offline"
import { Pickers } from "./shell/Pickers"
import type { SidebarProps } from "./shell/props"
import { SpaceIcon } from "./primitives/icons"
import { Shell } from "./shell/Shell"
import { Sidebar } from "./shell/Sidebar"
import { ChatController } from "./stream/ChatController"
import { BusContext, useStore } from "./stream/hooks"
import { isLive } from "./stream/pendingAnswer"
import { ChatStore, eventOf } from "./stream/reducer"
import { StreamingBus } from "./stream/streamingBus"
import { StreamingSessionManager } from "./stream/StreamingSessionManager"
import { prepare } from "./text/prepare"
import { plain } from "./text/visible"
import { words } from "./words"

const ConnectDialog = lazy(() => import("./connect/ConnectDialog").then(({ ConnectDialog }) => ({ default: ConnectDialog })))
const FollowUp = lazy(() => import("./compose/FollowUp").then(({ FollowUp }) => ({ default: FollowUp })))
const Instructions = lazy(() => import("./compose/Instructions").then(({ Instructions }) => ({ default: Instructions })))
const Tools = lazy(() => import("./compose/Tools").then(({ Tools }) => ({ default: Tools })))
const HelpSheet = lazy(() => import("./compose/HelpSheet").then(({ HelpSheet }) => ({ default: HelpSheet })))
const NewSpaceDialog = lazy(() => import("./spaces/NewSpaceDialog").then(({ NewSpaceDialog }) => ({ default: NewSpaceDialog })))

/** Not part of the first load: the page for a first question has no conversation yet. */
const loadConversation = async (): Promise<{ default: typeof ConversationType }> => {
  try {
    return { default: (await import("./chat/Conversation")).Conversation }
  } catch (error) {
    if (navigator.onLine) throw error
    await new Promise((done) => addEventListener("online", done, { once: true }))
    return loadConversation()
  }
}
const Conversation = lazy(loadConversation)

interface Props {
  /** The drafts of the signed-in user. */
  drafts: Drafts
  mayCreateSpaces: boolean
  owner?: SidebarProps["owner"]
  onSignedOut: () => void
}

/** How often the page asks whether the embedded model has loaded. */
const LOADING_MS = 2_000

/** The title of a chat until the gateway has sent one. */
const provisionalTitle = (text: string) => (text.length > 80 ? `${text.slice(0, 79).trimEnd()}…` : text)

/** The parts of one page that are not rendered. */
function createChat(drafts: Drafts) {
  const bus = new StreamingBus()
  const store = new ChatStore()
  const session = new StreamingSessionManager({ client, bus, store })
  const chat = new ChatController({
    client,
    store,
    session,
    drafts,
    prepare: ({ events }) => prepare(events.map((event) => (event.role === "assistant" ? answerText(event) : ""))),
  })
  return { bus, store, session, chat }
}

export function Chat({ drafts, mayCreateSpaces, owner, onSignedOut }: Props) {
  const [{ bus, store, session, chat }] = useState(() => createChat(drafts))
  const state = useStore(store)
  const pending = useSyncExternalStore(session.subscribe, session.current)
  const { id, key, failure, problem, ended, followUp, listVersion, ...shown } = useSyncExternalStore(chat.subscribe, chat.current)
  const busy = chat.isBusy()
  const turns = useMemo(() => turnsOf(state, id, pending, (one) => session.keyOf(one)), [state, id, pending, session])

  const [models, setModels] = useState<Models | null>(null)
  const loadModels = useCallback(async () => {
    try {
      setModels(await client.models())
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) onSignedOut()
      else chat.showProblem(errorMessage(error, words.page.broken))
    }
  }, [chat, onSignedOut])
  useEffect(() => void loadModels(), [loadModels])
  const isLoading = models?.data.some((model) => model.loading) ?? false
  useEffect(() => {
    if (!isLoading) return
    const timer = setInterval(() => void client.models().then(setModels, () => undefined), LOADING_MS)
    return () => clearInterval(timer)
  }, [isLoading])
  const [stored, keepChoices] = useChoices()
  // The chat in which the reader made a choice; in others, the last answer is the choice.
  const [decided, setDecided] = useState<number | null>(null)
  const last = turns.findLast((turn) => turn.answer)?.answer
  const choices = decided === key ? stored : choicesOf(last, stored, models?.data ?? [])
  const choose = (changes: { model?: string; effort?: Effort | undefined }) => {
    setDecided(key)
    keepChoices({ model: choices.model, effort: choices.effort, ...changes })
  }
  const tools = useToolChoice()
  const chosen = models ? chosenModel(models.data, choices.model) : undefined
  const lost = models ? lostModel(models.data, choices.model) : undefined
  const isAgent = chosen?.agent ?? false
  const asking = useMemo(() => ({ limits: models?.attachments, model: chosen }), [models, chosen])

  const composer = useRef<ComposerHandle>(null)
  const latest = useRef({ settings: () => ({}), onSignedOut })
  useEffect(() => {
    const settings = () => ({ ...supportedChoices(choices, models), ...(tools.names && !isAgent && { tools: tools.names }) })
    latest.current = { settings, onSignedOut }
  })
  useEffect(
    () =>
      chat.start({
        settings: () => latest.current.settings(),
        storeDraft: () => composer.current?.flush(),
        onSignedOut: () => latest.current.onSignedOut(),
      }),
    [chat],
  )
  // Other windows and other people may continue, change or delete conversations.
  useFeed({
    open: id,
    reading: () => {
      const one = session.current()
      return one === null || one.conflict ? undefined : one.event_id
    },
    has: (event) => eventOf(store.get(), event) !== undefined,
    onList: chat.onListChanged,
    onConversation: chat.onChanged,
    onDeleted: chat.onDeleted,
    onModels: () => void client.models().then(setModels, () => undefined),
    onSignedOut,
  })
  useEffect(() => {
    const load = () => void loadConversation().catch(() => undefined)
    if (id !== null) return load()
    // Not before there are signs of a question.
    const over = new AbortController()
    for (const sign of ["keydown", "input", "pointerdown"]) addEventListener(sign, load, { once: true, signal: over.signal })
    return () => over.abort()
  }, [id])

  const info = id === null ? undefined : state.conversations[id]
  const title = plain(info?.title ?? provisionalTitle(turns[0]?.question.text ?? ""))
  useEffect(() => {
    document.title = title ? words.common.title(title) : words.common.product
  }, [title])
  // The gateway has the instructions of a chat that it knows; until then, this page has them.
  const instructions = info ? info.instructions ?? "" : shown.instructions

  const [lostFiles, setLostFiles] = useState<readonly string[]>([])
  const onDraft = useCallback(
    (draft: QuestionDraft) => {
      drafts.keep(id, draft)
      setLostFiles(drafts.lostFiles(id))
    },
    [drafts, id],
  )
  const initial = useMemo(() => drafts.of(id), [drafts, key])
  useEffect(() => setLostFiles(drafts.lostFiles(id)), [drafts, id, key])
  /** Put a question back into the field, after what is there. */
  const giveBack = (question: QuestionDraft | null) => {
    if (question !== null) composer.current?.insert(question)
  }
  const conflict: ConflictChoices = {
    onShow: (refused) => void chat.withdraw(refused).then(giveBack),
    onSend: (refused) => void chat.sendRefused(refused),
  }
  const retry = (turn: Turn) => {
    if (turn.pending) session.retry()
    else if (turn.id !== undefined) chat.ask(turn.question.text, turn.question.files, turn.id)
  }

  useEffect(() => {
    if (!busy) return
    const escape = (event: KeyboardEvent) => {
      // In a dialog, Escape closes it.
      if (event.key === "Escape" && !event.defaultPrevented && !event.isComposing && !document.querySelector("dialog[open]")) session.stop()
    }
    addEventListener("keydown", escape)
    return () => removeEventListener("keydown", escape)
  }, [busy, session])

  const source = useMemo(
    () => ({
      list: client.conversations,
      rename: (conversation: string, name: string) => chat.rename(conversation, name),
      remove: (conversation: string) => chat.remove(conversation),
    }),
    [chat],
  )

  const [dialog, setDialog] = useState<"instructions" | "tools" | "help" | null>(null)
  const [connecting, setConnecting] = useState(false)
  const [taking, setTaking] = useState(false)
  const onConnect = models?.connect ? () => setConnecting(true) : undefined
  const makeDefault = (model: string) =>
    void client.chooseDefault(model).then(loadModels, (error: unknown) => chat.showProblem(errorMessage(error, words.page.broken)))
  const openDialog = (name: "instructions" | "tools" | "help") => {
    if (name === "tools") {
      if (isAgent) return
      tools.load()
    }
    setDialog(name)
  }
  const closeDialog = () => setDialog(null)
  const actions = useRef<Actions>({})
  useEffect(() => {
    actions.current = {
      write: () => composer.current?.focus(),
      new: () => chat.leaveFor(null),
      attach: () => composer.current?.pick(),
      instructions: () => openDialog("instructions"),
      tools: () => openDialog("tools"),
      help: () => openDialog("help"),
    }
  })
  useEffect(() => {
    const over = new AbortController()
    listenToKeys(actions, over.signal)
    return () => over.abort()
  }, [])

  const hasNoModel = models !== null && models.data.length === 0

  return (
    <BusContext value={bus}>
      <CurrencyContext value={models?.currency}>
      <ConflictContext value={conflict}>
      <AskingContext value={asking}>
      <Shell
        title={title}
        actions={
          mayCreateSpaces && id !== null && turns.length > 0 && (
            <button type="button" className="icon-button icon-button--labelled" data-testid="take-to-space" aria-label={words.chat.takeToSpace} title={words.chat.takeToSpace} disabled={busy} onClick={() => setTaking(true)}>
              <SpaceIcon /> <span className="icon-button__label">{words.chat.toSpace}</span>
            </button>
          )
        }
        sidebar={
          <Sidebar
            source={source}
            current={id}
            version={listVersion}
            isAnswering={(row) => {
              if (pending !== null && isLive(pending) && pending.conversation_id === row.id) return true
              // What this page has read itself may have ended since the list was loaded.
              return row.active !== undefined && (eventOf(state, row.active)?.status ?? "in_progress") === "in_progress"
            }}
            onNew={() => chat.leaveFor(null)}
            onOpen={(conversation) => chat.leaveFor(conversation)}
            onDeleted={() => chat.leaveFor(null)}
            {...(models && { shareableViews: models.views })}
            {...(owner && { owner })}
          />
        }
        foot={
          <>
            <Offline />
            {problem !== null && <ErrorState title={words.chat.requestFailed} message={problem} />}
            {tools.unknown && tools.failed && <ErrorState title={words.compose.toolsFailed} message="" onRetry={tools.load} />}
            {followUp !== null && (
              <Suspense>
                <FollowUp
                  question={followUp}
                  waiting={busy}
                  onSend={() => chat.sendFollowUp()}
                  onEdit={() => giveBack(chat.takeFollowUp())}
                  onDiscard={() => {
                    chat.takeFollowUp()
                    composer.current?.focus()
                  }}
                />
              </Suspense>
            )}
            {lost !== undefined && chosen && (
              <LostModel lost={lost} other={chosen.id} onOther={() => choose({ model: chosen.id })} onConnect={onConnect} />
            )}
            {lostFiles.length > 0 && (
              <LostFiles
                names={lostFiles}
                onAttach={() => composer.current?.pick()}
                onDismiss={() => {
                  drafts.forgetLostFiles(id)
                  setLostFiles([])
                  composer.current?.focus()
                }}
              />
            )}
            <Composer
              ref={composer}
              key={key}
              initial={initial}
              onDraft={onDraft}
              busy={busy}
              disabled={failure !== null || hasNoModel || lost !== undefined || tools.unknown}
              limits={models?.attachments}
              model={chosen}
              menu={(pick) => <AddMenu model={chosen} toolsOff={tools.off.length} onAttach={pick} onOpen={openDialog} />}
              onSend={(question) => chat.send(question)}
              onStop={() => session.stop()}
            >
              {models && (
                <Pickers
                  models={models.data}
                  views={models.views}
                  {...choices}
                  onModel={(model) => choose({ model })}
                  onEffort={(effort) => choose({ effort })}
                  onView={(view) => keepChoices({ view })}
                  onChosen={() => composer.current?.resume() ?? false}
                  {...(onConnect && { onConnect })}
                  {...(onConnect && !models.default_configured && { onDefault: makeDefault })}
                  {...(models.default_configured && models.data.length > 1 && { defaultRemark: words.pickers.defaultConfigured })}
                />
              )}
              {instructions !== "" && (
                <button type="button" className="pick" data-testid="instructions" onClick={() => setDialog("instructions")}>
                  <span className="pick__value">{words.compose.instructions}</span>
                </button>
              )}
            </Composer>
            <Suspense>
              {dialog === "instructions" && models && (
                <Instructions text={instructions} maxLength={models.max_instructions_chars} agent={isAgent} onSave={(text) => chat.setInstructions(text)} onClose={closeDialog} />
              )}
              {dialog === "tools" && <Tools choice={tools} onClose={closeDialog} />}
              {dialog === "help" && <HelpSheet onClose={closeDialog} />}
            </Suspense>
          </>
        }
      >
        {failure ? (
          <div className="conversation conversation--failed">
            {failure.missing ? (
              <ErrorState title={failure.title} message={failure.message} retry={words.sidebar.newChat} onRetry={() => chat.leaveFor(null)} />
            ) : (
              <ErrorState title={failure.title} message={failure.message} onRetry={() => chat.retry()} />
            )}
          </div>
        ) : turns.length > 0 ? (
          <Suspense>
            <Conversation
              key={turns[0]?.key}
              turns={turns}
              busy={busy}
              onEdit={(turn, text, files) => chat.ask(text, files, turn.id ?? turn.pending?.body?.replaces)}
              onRetry={retry}
              onVersion={(answer) => void chat.showVersion(answer)}
            />
          </Suspense>
        ) : id === null ? (
          <EmptyState none={hasNoModel} {...(lost === undefined && { onAsk: (text: string) => chat.ask(text) })} {...(chosen && lost === undefined && { model: chosen })} {...(onConnect && { onConnect })} />
        ) : null}
        <Announcer pending={pending} ended={ended} />
        {taking && id !== null && (
          <Suspense>
            <NewSpaceDialog chat={{ id, title, ...(choices.view && models?.views.includes(choices.view) && { view: choices.view }) }} onClose={() => setTaking(false)} />
          </Suspense>
        )}
      </Shell>
      {connecting && (
        <Suspense>
          <ConnectDialog
            onClose={() => setConnecting(false)}
            onChanged={(model) => {
              if (model !== undefined) choose({ model })
              void loadModels()
            }}
          />
        </Suspense>
      )}
      </AskingContext>
      </ConflictContext>
      </CurrencyContext>
    </BusContext>
  )
}
