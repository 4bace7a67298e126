// The view of a space: the conversation, a lane for each agent, and the history at the bottom.
import { useCallback, useDeferredValue, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react"

import { Mark, SearchIcon } from "../primitives/icons"
import { ThemeToggle } from "../primitives/ThemeToggle"
import { plain, visible } from "../text/visible"
import { topicOf } from "./api"
import { CANCEL, familyOf, INVITE, mayProbablySend, REQUEST, textOf } from "./envelope"
import { Filters, ViewSwitch } from "./Filters"
import type { Item, EnvelopeItem } from "./fold"
import { FilterIcon, InviteIcon, LeaveIcon } from "./icons"
import { InviteDialog } from "./InviteDialog"
import { ConversationPane, LanePane } from "./Panes"
import { colourAssigner, NowContext, RoomContext } from "./room"
import type { Room } from "./room"
import type { Target } from "./RowList"
import { ALL, discoveryKey, isDiscovery, orderedLanes, placeOf } from "./rows"
import type { Filter, Folds } from "./rows"
import { MessageForm } from "./MessageForm"
import { ModelGuide } from "./ModelGuide"
import { Scrubber } from "./Scrubber"
import { SearchDialog } from "./SearchDialog"
import type { SpaceSession } from "./session"
import { ParticipantBar } from "./ParticipantBar"
import { words } from "../words"

interface Props {
  session: SpaceSession
  /** Leave the space; `reason` is set if the gateway closed the connection. */
  onLeave: (reason: string | null) => void
}

/** The scroll target: a pane, and a row in it. */
interface Goal extends Target {
  pane: string
}

export const MAIN = ""

export function RoomView({ session, onLeave }: Props) {
  const state = useSyncExternalStore(session.subscribe, session.snapshot)
  const { fold, scrub, head } = state
  const live = scrub.mode === "live"
  const [colourOf] = useState(colourAssigner)
  const [filter, setFilter] = useState<Filter>(ALL)
  const settled = useDeferredValue(filter)
  const [filtering, setFiltering] = useState(false)
  const [searching, setSearching] = useState(false)
  const [inviting, setInviting] = useState(false)
  const [guiding, setGuiding] = useState(false)
  const [folds, setFolds] = useState<Folds>(new Map())
  const [goal, setGoal] = useState<Goal | null>(null)
  const [pendingSeq, setPendingSeq] = useState<number | null>(null)
  const [replyTo, setReplyTo] = useState<EnvelopeItem | null>(null)
  const panes = useRef<HTMLDivElement>(null)

  useEffect(() => {
    if (state.phase === "refused") onLeave(state.problem)
  }, [state.phase, state.problem, onLeave])

  const [topic, setTopic] = useState("")
  const hasJoined = state.me !== null
  useEffect(() => {
    if (!hasJoined) return
    const over = new AbortController()
    void topicOf(session.space, session.token, over.signal).then((text) => !over.signal.aborted && setTopic(text))
    return () => over.abort()
  }, [session, hasJoined])

  const change = useCallback((next: Filter) => {
    setFilter((now) => {
      // Another view starts with its own defaults: manual folding belongs to the previous one.
      if (now.view !== next.view) setFolds(new Map())
      return next
    })
  }, [])

  const scrollToPane = useCallback((pane: string) => {
    const element = panes.current?.querySelector<HTMLElement>(`[data-pane="${CSS.escape(pane)}"]`)
    element?.scrollIntoView({ block: "nearest", inline: "center", behavior: "auto" })
  }, [])

  const show = useCallback((item: Item) => {
    const { key, lane, within } = placeOf(item)
    setFolds((now) => {
      const next = new Map(now)
      for (const context of within) next.set(context.key, true)
      if (item.type === "context") next.set(item.key, true)
      else if (item.compressed) next.set(item.compressed.key, true)
      else if (isDiscovery(item)) next.set(discoveryKey(item), true)
      return next
    })
    // Clear the filters, so that the item is visible.
    setFilter((now) => {
      const view = lane !== null && now.view === "main" ? "full" : now.view
      return now.text === "" && now.hidden.size === 0 && now.without.size === 0 ? { ...now, view } : { ...ALL, view }
    })
    setGoal((now) => ({ pane: lane ?? MAIN, key, turn: (now?.turn ?? 0) + 1 }))
  }, [])

  useEffect(() => {
    if (goal) scrollToPane(goal.pane)
  }, [goal, scrollToPane])

  // An item that was requested by its number is shown once it is loaded.
  useEffect(() => {
    if (pendingSeq === null) return
    const item = fold.find(pendingSeq)
    if (!item) return
    setPendingSeq(null)
    show(item)
  }, [pendingSeq, fold, state, show])

  const openHit = (seq: number) => {
    setSearching(false)
    if (fold.find(seq) === undefined) session.goTo(seq)
    setPendingSeq(seq)
  }

  const { me, capabilities, skew } = state
  const alone = live && me !== null && !state.participants.some(({ id, present }) => present && id !== me)
  const room = useMemo<Room>(
    () => ({
      me, live, skew: -skew, colourOf, show,
      mayCancel: mayProbablySend(capabilities, CANCEL),
      mayRequest: mayProbablySend(capabilities, REQUEST),
      mayChat: mayProbablySend(capabilities, "chat"),
      toggle: (key, open) => setFolds((now) => new Map(now).set(key, open)),
      cancel: (context) => session.cancel(context),
      approve: (item) => session.approve(item),
      reject: (item) => session.reject(item),
      reply: setReplyTo,
    }),
    [me, live, skew, colourOf, show, capabilities, session],
  )

  const lanes = orderedLanes(fold.lanes.values()).filter((lane) => lane.hasActivity && !settled.without.has(lane.id))
  const shown = settled.view === "main" ? [] : lanes
  const participantIds = useMemo(() => {
    const all = new Set(state.participants.map(({ id }) => id))
    for (const id of fold.lanes.keys()) if (!id.startsWith("system:")) all.add(id)
    return [...all].toSorted((a, b) => a.localeCompare(b))
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the lanes grow in place
  }, [state.participants, fold, fold.lanes.size])
  for (const id of participantIds) colourOf(id)
  const filtered = filter.hidden.size + filter.without.size + (filter.text === "" ? 0 : 1)

  return (
    <RoomContext value={room}>
      <NowContext value={live ? null : fold.now}>
        <div className="room" data-testid="room" data-phase={state.phase} data-live={live}>
          <header className="room__top">
            <a className="room__home" href="/spaces" data-testid="home" aria-label={words.spaces.room.allSpaces} title={words.spaces.room.allSpaces}><Mark /></a>
            <div className="room__names">
              <h1 className="room__title" dir="auto">{plain(session.space)}</h1>
              {topic !== "" && <p className="room__topic" data-testid="topic" dir="auto" title={plain(topic)}>{plain(topic)}</p>}
            </div>
            <ViewSwitch filter={filter} onFilter={change} />
            <div className="room__actions">
              <button type="button" className="icon-button" data-testid="open-search" aria-label={words.spaces.room.search} title={words.common.search} onClick={() => setSearching(true)}><SearchIcon /></button>
              <button type="button" className="icon-button room__filter" data-testid="open-filter" aria-label={filtered > 0 ? words.spaces.room.filterActive(filtered) : words.spaces.room.filter} title={words.spaces.room.filter} aria-expanded={filtering} data-set={filtered > 0} onClick={() => setFiltering(!filtering)}><FilterIcon /></button>
              {live && mayProbablySend(capabilities, INVITE) && (
                <button type="button" className="icon-button" data-testid="invite" aria-label={words.spaces.room.invite} title={words.spaces.room.invite} onClick={() => setInviting(true)}><InviteIcon /></button>
              )}
              <ThemeToggle />
              <button type="button" className="icon-button" data-testid="leave" aria-label={words.spaces.room.leaveSpace} title={words.spaces.room.leave} onClick={() => onLeave(null)}><LeaveIcon /></button>
            </div>
          </header>
          {filtering && <Filters filter={filter} participants={participantIds} onFilter={change} />}
          <ParticipantBar participants={state.participants} lanes={shown} colourOf={colourOf} onPane={scrollToPane} />
          <Banner phase={state.phase} problem={state.problem} onDismiss={() => session.dismiss()} />
          <main className="panes" ref={panes} data-testid="panes">
            <ConversationPane
              fold={fold}
              rev={fold.rev}
              filter={settled}
              folds={folds}
              target={goal?.pane === MAIN ? goal : null}
              from={state.from}
              reading={state.reading}
              onEarlier={() => void session.earlier()}
              foot={
                <MessageForm
                  me={me}
                  participants={state.participants.filter(({ present }) => present).map(({ id }) => id)}
                  past={!live}
                  readOnly={me !== null && !room.mayChat}
                  connected={me !== null}
                  pending={state.pending}
                  replyTo={replyTo}
                  onReplyTo={setReplyTo}
                  onSend={(text, more) => session.sendMessage(text, more)}
                  onDiscard={(id) => session.discard(id)}
                  onLive={() => session.live()}
                  {...(alone && { onGuide: () => setGuiding(true) })}
                />
              }
            />
            {shown.map((lane) => (
              <LanePane key={lane.id} lane={lane} rev={lane.rev} filter={settled} folds={folds} target={goal?.pane === lane.id ? goal : null} />
            ))}
            {settled.view !== "main" && shown.length === 0 && (
              <div className="panes__none">
                <p>{words.spaces.room.noLanes}</p>
                {/* Whoever is alone reads it above the field. */}
                {!alone && <button type="button" className="text-button" data-testid="guide-lanes" onClick={() => setGuiding(true)}>{words.spaces.guide.title}</button>}
              </div>
            )}
          </main>
          <Scrubber
            scrub={scrub}
            head={head}
            speed={state.speed}
            list={state.list}
            now={fold.now}
            reading={state.reading}
            onGo={(seq) => session.goTo(seq)}
            onPlay={() => session.play()}
            onPause={() => session.pause()}
            onLive={() => session.live()}
            onSpeed={(speed) => session.setSpeed(speed)}
          />
          <RoomAnnouncer state={state} />
        </div>
        {inviting && <InviteDialog space={session.space} token={session.token} capabilities={capabilities} onClose={() => setInviting(false)} />}
        {guiding && <ModelGuide space={session.space} onClose={() => setGuiding(false)} />}
        {searching && <SearchDialog search={session.search} onShow={openHit} onClose={() => setSearching(false)} />}
      </NowContext>
    </RoomContext>
  )
}

function Banner({ phase, problem, onDismiss }: { phase: string; problem: string | null; onDismiss: () => void }) {
  if (phase === "reconnecting") return <p className="banner" data-testid="banner" role="status">{words.spaces.room.reconnecting}</p>
  if (problem === null) return null
  return (
    <p className="banner banner--error" data-testid="banner" role="alert">
      <span dir="auto">{visible(problem)}</span>
      {phase === "open" && <button type="button" className="text-button" onClick={onDismiss}>{words.common.ok}</button>}
    </p>
  )
}

/** Announcements for screen readers: messages of the conversation, not every thought. */
function RoomAnnouncer({ state }: { state: { phase: string; me: string | null; fold: { main: readonly Item[] }; scrub: { mode: string } } }) {
  const last = state.scrub.mode === "live" ? state.fold.main.findLast((one) => one.type === "envelope" && familyOf(one.envelope.kind) === "chat") : undefined
  const text = last?.type === "envelope" && last.envelope.from !== state.me && !last.envelope.erased ? words.spaces.room.says(plain(last.envelope.from), plain(textOf(last.envelope)).slice(0, 200)) : ""
  return <div className="visually-hidden" role="status" aria-live="polite" data-testid="announcer">{state.phase === "open" ? text : ""}</div>
}
