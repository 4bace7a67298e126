// The chat page of a signed-in user: connects the list of conversations, the open conversation and the composer to the
// session.
import { lazy, startTransition, Suspense, useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState, useSyncExternalStore } from "react"
import { flushSync } from "react-dom"

import { goTo, useConversationId } from "./routes"
import { ApiError, client, errorMessage } from "./api/client"
import type { AskBody, Models } from "./api/types"
import { Announcer } from "./chat/Announcer"
import { ErrorState } from "./chat/ErrorState"
import { answerText, CurrencyContext } from "./chat/format"
import { turnsOf } from "./chat/turns"
import type { Turn } from "./chat/turns"
import { chosenModel, supportedChoices, useChoices } from "./choices"
import { inputOf, joined } from "./compose/attached"
import type { Attached, Composed, ShownFile } from "./compose/attached"
import type { Drafts } from "./compose/drafts"
import { AskingContext } from "./compose/useAttached"
import { useToolChoice } from "./compose/toolChoice"
import type { Actions } from "./compose/listenToKeys"
import { ConflictContext } from "./live/conflict"
import type { ConflictChoices } from "./live/conflict"
import { useFeed } from "./live/useFeed"
import { onWake } from "./live/wake"
import { Composer } from "./shell/Composer"
import { EmptyState } from "./shell/EmptyState"
import { Pickers } from "./shell/Pickers"
import type { ComposerHandle, SidebarProps } from "./shell/props"
import { PlusIcon, SpaceIcon } from "./shell/icons"
import { Shell } from "./shell/Shell"
import { Sidebar } from "./shell/Sidebar"
import { isLive } from "./stream/pendingAnswer"
import type { PendingAnswer } from "./stream/pendingAnswer"
import { BusContext } from "./stream/hooks"
import { EMPTY, reduce, threadOf } from "./stream/reducer"
import type { Action, Store } from "./stream/reducer"
import { StreamingBus } from "./stream/streamingBus"
import { StreamingSessionManager } from "./stream/StreamingSessionManager"
import { prepare } from "./text/prepare"
import { plain } from "./text/visible"
import { words } from "./words"

const ConnectDialog = lazy(() => import("./connect/ConnectDialog").then(({ ConnectDialog }) => ({ default: ConnectDialog })))
const AddMenu = lazy(() => import("./compose/AddMenu").then(({ AddMenu }) => ({ default: AddMenu })))
const FollowUp = lazy(() => import("./compose/FollowUp").then(({ FollowUp }) => ({ default: FollowUp })))
const Instructions = lazy(() => import("./compose/Instructions").then(({ Instructions }) => ({ default: Instructions })))
const Tools = lazy(() => import("./compose/Tools").then(({ Tools }) => ({ default: Tools })))
const HelpSheet = lazy(() => import("./compose/HelpSheet").then(({ HelpSheet }) => ({ default: HelpSheet })))
const NewSpaceDialog = lazy(() => import("./spaces/NewSpaceDialog").then(({ NewSpaceDialog }) => ({ default: NewSpaceDialog })))

/** Not part of the first load: the page for a first question has no conversation yet. */
const loadConversation = () => import("./chat/Conversation").then(({ Conversation }) => ({ default: Conversation }))
const Conversation = lazy(loadConversation)

interface Props {
  /** The drafts of the signed-in user. */
  drafts: Drafts
  mayCreateSpaces: boolean
  owner?: SidebarProps["owner"]
  onSignedOut: () => void
}

interface Failure {
  conversation: string
  title: string
  message: string
  /** The conversation does not exist, so a retry would not help. */
  missing: boolean
}

/** The id of the last answer that is shown in a conversation. */
const newestAnswer = (store: Store, conversation: string) => threadOf(store, conversation).findLast((one) => one.startsWith("evt_"))

/** The title of a chat until the gateway has sent one. */
const provisionalTitle = (text: string) => (text.length > 80 ? `${text.slice(0, 79).trimEnd()}…` : text)

export function Chat({ drafts, mayCreateSpaces, owner, onSignedOut }: Props) {
  const [store, dispatch] = useReducer(reduce, EMPTY)
  const [models, setModels] = useState<Models | null>(null)
  const [choices, choose] = useChoices()
  const [version, setVersion] = useState(0)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  const [ended, setEnded] = useState<string | null>(null)
  const [taking, setTaking] = useState(false)
  const deleting = useRef(new Set<string>())
  const id = useConversationId()

  useEffect(() => void loadConversation().catch(() => undefined), [])
  const [bus] = useState(() => new StreamingBus())
  const [session] = useState(() => new StreamingSessionManager({ client, bus }))
  const latestStore = useRef(store)
  useEffect(() => {
    latestStore.current = store
  }, [store])
  useEffect(
    () =>
      session.connect({
        // The final event is rendered before the overlay's buffers are cleared, so nothing flickers.
        commit: (action: Action) => {
          flushSync(() => {
            if (action.type === "final") setEnded(action.event.status)
            dispatch(action)
          })
        },
        has: (event) => Object.hasOwn(latestStore.current.events, event),
        newest: (conversation) => newestAnswer(latestStore.current, conversation),
        // Load the newer events; the rejected question is shown after them.
        onMoved: async (conversation) => {
          try {
            const loaded = await client.conversation(conversation)
            dispatch({ type: "opened", loaded })
            return loaded.active !== null
          } catch {
            return false
          }
        },
        onConversation: (conversation) => {
          setVersion((now) => now + 1)
          if (session.current()?.conversation_id === conversation) goTo(conversation)
        },
        onSignedOut,
      }),
    [session, onSignedOut],
  )
  const pending = useSyncExternalStore(session.subscribe, session.current)

  // A composer belongs to one chat. It stays the same when a new chat gets its id.
  const [place, setPlace] = useState({ id, key: 0 })
  if (place.id !== id) {
    const isSame = place.id === null && session.current()?.conversation_id === id
    setPlace({ id, key: isSame ? place.key : place.key + 1 })
  }
  const composer = useRef<ComposerHandle>(null)
  const onDraft = useCallback((draft: Composed) => drafts.keep(id, draft), [drafts, id])
  const initial = useMemo(() => drafts.of(id), [drafts, place.key])
  const [dialog, setDialog] = useState<"instructions" | "tools" | "help" | null>(null)
  const tools = useToolChoice()

  const open = useCallback(
    async (conversation: string, signal: AbortSignal, isRefresh = false) => {
      setFailure(null)
      try {
        const loaded = await client.conversation(conversation, signal)
        await prepare(loaded.events.map((event) => (event.role === "assistant" ? answerText(event) : "")))
        if (signal.aborted) return
        // A long chat is rendered in slices, so that the page can be used meanwhile.
        startTransition(() => dispatch({ type: "opened", loaded }))
        // A question of this page that was refused, or waits for its answer, stays.
        if (loaded.active !== null && session.current() === null) session.resume(conversation, loaded.active)
      } catch (error) {
        if (signal.aborted) return
        if (error instanceof ApiError && error.status === 401) onSignedOut()
        const missing = error instanceof ApiError && error.status === 404
        if (isRefresh && !missing) return
        setFailure({ conversation, title: missing ? words.chat.missing : words.chat.openFailed, message: errorMessage(error, words.page.broken), missing })
      }
    },
    [session, onSignedOut],
  )

  const [attempt, setAttempt] = useState(0)
  useEffect(() => {
    // A conversation that was started on this page is already loaded.
    if (session.current()?.conversation_id === id && (id !== null || session.streaming)) return
    session.leave()
    setEnded(null)
    if (id === null) return
    const abort = new AbortController()
    void open(id, abort.signal)
    return () => abort.abort()
    // `attempt` is a dependency only to run the effect again.
  }, [id, open, session, attempt])

  const loadModels = useCallback(async () => {
    try {
      setModels(await client.models())
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) onSignedOut()
      else setProblem(errorMessage(error, words.page.broken))
    }
  }, [onSignedOut])
  useEffect(() => void loadModels(), [loadModels])
  const [connecting, setConnecting] = useState(false)
  const onConnect = models?.connect ? () => setConnecting(true) : undefined

  const turns = useMemo(() => turnsOf(store, id, pending, (one) => session.keyOf(one)), [store, id, pending, session])
  const busy = pending !== null && isLive(pending)

  const storedTitle = id === null ? undefined : store.conversations[id]?.title
  const title = plain(storedTitle ?? provisionalTitle(turns[0]?.question.text ?? ""))
  useEffect(() => {
    document.title = title ? words.common.title(title) : words.common.product
  }, [title])

  useEffect(() => onWake((reason) => session.wake(reason)), [session])
  // Other windows and other people may continue, change or delete conversations.
  const refreshing = useRef<AbortController>(undefined)
  useFeed({
    open: id,
    reading: () => {
      const one = session.current()
      return one === null || one.conflict ? undefined : one.event_id
    },
    has: (event) => Object.hasOwn(latestStore.current.events, event),
    onList: () => setVersion((now) => now + 1),
    onConversation: (conversation) => {
      refreshing.current?.abort()
      refreshing.current = new AbortController()
      void open(conversation, refreshing.current.signal, true)
    },
    onDeleted: (conversation) => {
      if (deleting.current.has(conversation)) return
      if (session.current()?.conversation_id === conversation) session.leave()
      dispatch({ type: "deleted", conversation_id: conversation })
      if (conversation === id) setFailure({ conversation, title: words.live.deleted, message: "", missing: true })
    },
    onModels: () => void client.models().then(setModels, () => undefined),
    onSignedOut,
  })

  const chosen = models ? chosenModel(models.data, choices.model) : undefined
  const isAgent = chosen?.agent ?? false
  const asking = useMemo(() => ({ limits: models?.attachments, model: chosen }), [models, chosen])
  // The gateway has the instructions of a chat that it knows; until then, this page has them.
  const [given, setGiven] = useState({ key: 0, text: "" })
  const stored = id === null ? undefined : store.conversations[id]
  const instructions = stored ? stored.instructions ?? "" : given.key === place.key ? given.text : ""
  const saveInstructions = async (text: string) => {
    if (id !== null) dispatch({ type: "changed", conversation: await client.change(id, { instructions: text }) })
    else if (pending !== null) throw new Error("The chat has no id yet.")
    else setGiven({ key: place.key, text })
  }

  const ask = useCallback(
    (text: string, files: readonly ShownFile[] = [], replaces?: string) => {
      const follows = id === null || replaces !== undefined ? undefined : newestAnswer(latestStore.current, id)
      const body: AskBody = {
        text,
        ...(id !== null && { conversation_id: id }),
        ...supportedChoices(choices, models),
        ...(replaces && { replaces }),
        ...(follows && { follows }),
        ...(files.length > 0 && { attachments: files.map(inputOf) }),
        ...(id === null && replaces === undefined && instructions !== "" && { instructions }),
        ...(tools.names && !isAgent && { tools: tools.names }),
      }
      setProblem(null)
      setEnded(null)
      session.ask(body, files)
    },
    [choices, id, models, session, instructions, tools.names, isAgent],
  )

  // A question that waits for the end of the answer. With its chat it becomes a draft; without an end, its reader decides.
  const [followUp, setFollowUp] = useState<(Composed & { key: number; chat: string | null }) | null>(null)
  const send = (question: Composed) => {
    if (!busy) return ask(question.text, question.files)
    setFollowUp({ ...(followUp ? joined(followUp, question) : question), key: place.key, chat: id })
  }
  useLayoutEffect(() => {
    if (followUp === null) return
    if (followUp.key !== place.key) {
      drafts.add(followUp.chat, followUp)
      setFollowUp(null)
    } else if (followUp.chat !== id) setFollowUp({ ...followUp, chat: id })
    else if (pending === null && ended === "completed") {
      setFollowUp(null)
      ask(followUp.text, followUp.files)
    }
  }, [followUp, place.key, id, drafts, pending, ended, ask])
  useEffect(() => {
    if (followUp === null) return
    const keep = () => drafts.add(followUp.chat, followUp)
    addEventListener("pagehide", keep)
    return () => removeEventListener("pagehide", keep)
  }, [followUp, drafts])
  /** Put a question back into the field, after what is there. */
  const giveBack = (question: Composed) => {
    // A new field begins with the draft.
    composer.current?.flush()
    drafts.add(id, question)
    setPlace({ id, key: place.key + 1 })
    setGiven({ ...given, key: place.key + 1 })
  }
  const editFollowUp = () => {
    if (followUp === null) return
    setFollowUp(null)
    giveBack(followUp)
  }
  // A question that was refused because another window continued the chat.
  const withdraw = async ({ conversation_id, question }: PendingAnswer): Promise<Composed> => {
    session.leave()
    if (conversation_id !== null) await open(conversation_id, new AbortController().signal)
    return { text: question?.text ?? "", files: (question?.files ?? []) as readonly Attached[] }
  }
  const branch = async ({ conversation_id, body }: PendingAnswer) => {
    if (!conversation_id || !body?.follows) return
    const { follows, ...rest } = body
    const next = () => {
      const thread = threadOf(latestStore.current, conversation_id)
      const at = thread.indexOf(follows)
      return at < 0 ? undefined : (thread[at + 1] ?? null)
    }
    if (next() === undefined) {
      // Another branch is shown: find the place of the question first.
      await client.change(conversation_id, { head: follows })
      const loaded = await client.conversation(conversation_id)
      flushSync(() => dispatch({ type: "opened", loaded }))
      latestStore.current = reduce(latestStore.current, { type: "opened", loaded })
    }
    const replaces = next()
    session.ask({ ...rest, conversation_id, ...(replaces ? { replaces } : { follows }) })
  }
  const conflict: ConflictChoices = {
    onShow: (refused) => void withdraw(refused).then(giveBack),
    onSend: (refused) => {
      if (refused.conflict === "moved") void branch(refused).catch((error: unknown) => setProblem(errorMessage(error, words.page.broken)))
      else {
        void withdraw(refused).then((question) => {
          if (session.current() === null) ask(question.text, question.files)
          else setFollowUp({ ...question, key: place.key, chat: id })
        })
      }
    },
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
      rename: async (conversation: string, name: string) => {
        dispatch({ type: "changed", conversation: await client.change(conversation, { title: name }) })
      },
      remove: async (conversation: string) => {
        deleting.current.add(conversation)
        try {
          await client.remove(conversation)
        } catch (error) {
          deleting.current.delete(conversation)
          throw error
        }
        if (session.current()?.conversation_id === conversation) session.leave()
        drafts.keep(conversation, { text: "", files: [] })
        dispatch({ type: "deleted", conversation_id: conversation })
      },
    }),
    [session, drafts],
  )

  const leaveFor = useCallback(
    (conversation: string | null) => {
      setProblem(null)
      if (conversation === id && conversation === null) session.leave()
      goTo(conversation)
    },
    [id, session],
  )

  const retry = (turn: Turn) => {
    if (turn.pending) session.retry()
    else if (turn.id !== undefined) ask(turn.question.text, turn.question.files, turn.id)
  }

  const switchTo = async (answer: string) => {
    if (id === null) return
    try {
      dispatch({ type: "changed", conversation: await client.change(id, { head: answer }) })
      dispatch({ type: "opened", loaded: await client.conversation(id) })
    } catch (error) {
      setProblem(errorMessage(error, words.page.broken))
    }
  }

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
      new: () => leaveFor(null),
      attach: () => composer.current?.pick(),
      instructions: () => openDialog("instructions"),
      tools: () => openDialog("tools"),
      help: () => openDialog("help"),
    }
  })
  useEffect(() => {
    const over = new AbortController()
    void import("./compose/listenToKeys").then(({ listenToKeys }) => listenToKeys(actions, over.signal), () => undefined)
    return () => over.abort()
  }, [])

  const hasNoModel = models !== null && models.data.length === 0
  const openFailure = failure !== null && failure.conversation === id ? failure : null

  return (
    <BusContext value={bus}>
      <CurrencyContext value={models?.currency}>
      <ConflictContext value={conflict}>
      <AskingContext value={asking}>
      <Shell
        title={title}
        actions={
          mayCreateSpaces && id !== null && turns.length > 0 && (
            <button type="button" className="icon-button" data-testid="take-to-space" aria-label={words.chat.takeToSpace} title={words.chat.takeToSpace} disabled={busy} onClick={() => setTaking(true)}>
              <SpaceIcon />
            </button>
          )
        }
        sidebar={
          <Sidebar
            source={source}
            current={id}
            version={version}
            onNew={() => leaveFor(null)}
            onOpen={leaveFor}
            onDeleted={() => leaveFor(null)}
            {...(models && { shareableViews: models.views })}
            {...(owner && { owner })}
          />
        }
        foot={
          <>
            {problem !== null && <ErrorState title={words.chat.requestFailed} message={problem} />}
            {tools.unknown && tools.failed && <ErrorState title={words.compose.toolsFailed} message="" onRetry={tools.load} />}
            {followUp !== null && followUp.key === place.key && (
              <Suspense>
                <FollowUp
                  question={followUp}
                  waiting={busy}
                  onSend={() => {
                    setFollowUp(null)
                    ask(followUp.text, followUp.files)
                  }}
                  onEdit={editFollowUp}
                  onDiscard={() => {
                    setFollowUp(null)
                    composer.current?.focus()
                  }}
                />
              </Suspense>
            )}
            <Composer
              ref={composer}
              draftKey={`${place.key}`}
              initial={initial}
              onDraft={onDraft}
              busy={busy}
              disabled={openFailure !== null || hasNoModel || tools.unknown}
              limits={models?.attachments}
              model={chosen}
              menu={(pick) => (
                <Suspense fallback={<span className="pick pick--add"><PlusIcon /></span>}>
                  <AddMenu model={chosen} toolsOff={tools.off.length} onAttach={pick} onOpen={openDialog} />
                </Suspense>
              )}
              onSend={send}
              onStop={() => session.stop()}
            >
              {models && (
                <Pickers
                  models={models.data}
                  views={models.views}
                  {...choices}
                  onModel={(model) => choose({ model })}
                  onEffort={(effort) => choose({ effort })}
                  onView={(view) => choose({ view })}
                  {...(onConnect && { onConnect })}
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
                <Instructions text={instructions} maxLength={models.max_instructions_chars} agent={isAgent} onSave={saveInstructions} onClose={closeDialog} />
              )}
              {dialog === "tools" && <Tools choice={tools} onClose={closeDialog} />}
              {dialog === "help" && <HelpSheet onClose={closeDialog} />}
            </Suspense>
          </>
        }
      >
        {openFailure ? (
          <div className="conversation conversation--failed">
            {openFailure.missing ? (
              <ErrorState title={openFailure.title} message={openFailure.message} retry={words.sidebar.newChat} onRetry={() => leaveFor(null)} />
            ) : (
              <ErrorState title={openFailure.title} message={openFailure.message} onRetry={() => setAttempt((now) => now + 1)} />
            )}
          </div>
        ) : turns.length > 0 ? (
          <Suspense>
            <Conversation
              key={turns[0]?.key}
              turns={turns}
              busy={busy}
              onEdit={(turn, text, files) => ask(text, files, turn.id ?? turn.pending?.body?.replaces)}
              onRetry={retry}
              onVersion={(answer) => void switchTo(answer)}
            />
          </Suspense>
        ) : id === null ? (
          <EmptyState none={hasNoModel} onAsk={(text) => ask(text)} {...(chosen && { model: chosen })} {...(onConnect && { onConnect })} />
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
