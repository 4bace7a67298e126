// One thing that was said, in a lane or in the conversation: a thought of any kind, a request with what came back, a
// proposal with what became of it, a word, a notice.
import { useState } from "react"
import type { ReactNode } from "react"

import type { Json } from "../api/types"
import { useStay } from "../chat/follow"
import { preview, shown } from "../chat/words"
import { LongText } from "../text/LongText"
import { Markdown } from "../text/Markdown"
import { plain, visible } from "../text/visible"
import { comings } from "./comings"
import {
  argumentsOf, CANCEL, CONCLUSION, confidenceOf, familyOf, GATEWAY, PRESENCE, PROPOSAL, reasonOf, REQUEST, RESPONSE, resultOf, failed,
  textAt, textsAt, toolOf, uncertaintyOf, wordsOf,
} from "./envelope"
import type { Envelope } from "./envelope"
import { outcomeOf } from "./fold"
import type { Said } from "./fold"
import { useRoom } from "./room"
import { titleOf } from "./rows"
import { At, Flags, Sure, Who } from "./signs"

/** In a lane: whose it is shows by where it stands, unless it is somebody else's. */
export function Step({ said, owner, expanded }: { said: Said; owner: string; expanded: boolean }) {
  const { envelope } = said
  const guest = envelope.from !== owner && envelope.from !== GATEWAY
  return (
    <article className={`step step--${familyOf(envelope.kind)}`} data-kind={envelope.kind} data-testid="step" data-compressed={said.compressed !== null}>
      {(guest || said.answers) && (
        <p className="step__by">
          {guest && <Who id={envelope.from} small />}
          {said.answers && said.context && <Answering said={said.answers} />}
        </p>
      )}
      <Body said={said} quiet={said.context === null} />
      <Flags flags={flagsOf(said)} />
      {said.compresses > 0 && <Sources said={said} expanded={expanded} />}
    </article>
  )
}

/** Of itself, and of what came back. */
const flagsOf = ({ envelope, response }: Said) => (response ? [...envelope.flags, ...response.flags] : envelope.flags)

function Body({ said, quiet }: { said: Said; quiet: boolean }) {
  const { envelope } = said
  if (envelope.erased) return <Erased />
  switch (envelope.kind) {
    case "reasoning/question": return <Questions envelope={envelope} />
    case "reasoning/observation": return <Observation envelope={envelope} />
    case "reasoning/hypothesis": return <Hypothesis envelope={envelope} />
    case CONCLUSION: return <Conclusion envelope={envelope} />
    case CANCEL: return <Cancelled envelope={envelope} />
    case REQUEST: return <Request said={said} />
    case PROPOSAL: return quiet ? <Echo said={said} /> : <Proposal said={said} />
    case RESPONSE: return <Response envelope={envelope} />
    case "chat": return quiet ? <Echo said={said} /> : <div className="step__chat"><Markdown text={wordsOf(envelope)} /></div>
  }
  if (familyOf(envelope.kind) === "reasoning") {
    const confidence = confidenceOf(envelope.payload)
    return (
      <>
        {envelope.kind !== "reasoning/thought" && <Label>{plain(envelope.kind.slice(10))}</Label>}
        <Words envelope={envelope} />
        {confidence !== undefined && <Sure confidence={confidence} range={uncertaintyOf(envelope.payload)} />}
      </>
    )
  }
  return <Notice envelope={envelope} />
}

const Erased = () => <p className="step__nothing" data-testid="erased">(erased)</p>

const Label = ({ children }: { children: ReactNode }) => <span className="step__label">{children}</span>

/** What it says; where it says nothing in words, its payload as it is. */
function Words({ envelope }: { envelope: Envelope }) {
  const words = wordsOf(envelope)
  if (words !== "") return <LongText text={words} />
  return Object.keys(envelope.payload).length > 0 ? <Value value={envelope.payload as Json} /> : <p className="step__nothing">(no words)</p>
}

function Value({ value }: { value: Json | undefined }) {
  const text = shown(value)
  return text === "" ? null : <pre className="tool__text" dir="auto" tabIndex={0}>{visible(text)}</pre>
}

function Details({ name, value }: { name: string; value: Json | undefined }) {
  if (value === undefined || value === null || (Array.isArray(value) && value.length === 0)) return null
  if (typeof value === "string") return <div className="step__more"><Label>{name}</Label><LongText text={value} /></div>
  if (Array.isArray(value) && value.every((one) => typeof one === "string")) {
    return (
      <div className="step__more">
        <Label>{name}</Label>
        <ul className="step__list">{value.map((one, index) => <li key={index} dir="auto">{visible(one)}</li>)}</ul>
      </div>
    )
  }
  return <div className="step__more"><Label>{name}</Label><Value value={value} /></div>
}

function Questions({ envelope }: { envelope: Envelope }) {
  const questions = textsAt(envelope.payload, "questions")
  const lead = textAt(envelope.payload, "message") ?? textAt(envelope.payload, "content")
  return (
    <>
      <Label>{questions.length > 1 ? "Questions" : "Question"}</Label>
      {lead !== undefined && <LongText text={lead} />}
      {questions.length > 0 && <ul className="step__list step__list--questions">{questions.map((one, index) => <li key={index} dir="auto">{visible(one)}</li>)}</ul>}
      {lead === undefined && questions.length === 0 && <Words envelope={envelope} />}
    </>
  )
}

const GRAVE = /^(critical|high|severe|error|fatal|blocker)$/i
const MIDDLE = /^(medium|moderate|warning|warn)$/i

function Observation({ envelope }: { envelope: Envelope }) {
  const severity = textAt(envelope.payload, "severity")
  const components = textsAt(envelope.payload, "components")
  const grade = severity === undefined ? "" : GRAVE.test(severity) ? "grave" : MIDDLE.test(severity) ? "care" : "plain"
  return (
    <>
      <span className="step__head">
        <Label>Observation</Label>
        {severity !== undefined && <span className={`chip chip--${grade}`} data-testid="severity">{plain(severity)}</span>}
        {components.map((one, index) => <span key={index} className="chip" dir="auto">{plain(one)}</span>)}
      </span>
      <Words envelope={envelope} />
      <Details name="Details" value={envelope.payload["details"]} />
    </>
  )
}

function Hypothesis({ envelope }: { envelope: Envelope }) {
  const confidence = confidenceOf(envelope.payload)
  return (
    <>
      <span className="step__head">
        <Label>Hypothesis</Label>
        {confidence !== undefined && <Sure confidence={confidence} range={uncertaintyOf(envelope.payload)} />}
      </span>
      <Words envelope={envelope} />
      <Details name="Evidence" value={envelope.payload["evidence"]} />
    </>
  )
}

function Conclusion({ envelope }: { envelope: Envelope }) {
  const { payload } = envelope
  const confidence = confidenceOf(payload)
  const decision = textAt(payload, "decision")
  const words = wordsOf(envelope)
  const recommendation = textAt(payload, "recommendation")
  return (
    <div className="step__conclusion">
      <span className="step__head">
        <Label>{payload["cancelled"] === true ? "Cancelled" : "Conclusion"}</Label>
        {confidence !== undefined && <Sure confidence={confidence} range={uncertaintyOf(payload)} />}
      </span>
      {words !== "" && <LongText text={words} />}
      {decision !== undefined && decision !== words && <Details name="Decision" value={decision} />}
      <Details name="Because of" value={payload["key_factors"]} />
      {recommendation !== words && <Details name="Recommendation" value={recommendation} />}
      {words === "" && decision === undefined && <p className="step__nothing">It came to an end.</p>}
    </div>
  )
}

function Cancelled({ envelope }: { envelope: Envelope }) {
  const reason = reasonOf(envelope.payload)
  return (
    <p className="step__end">
      {envelope.from === GATEWAY ? "Abandoned" : <>Cancelled by <bdi>{plain(envelope.from)}</bdi></>}
      {reason !== undefined && <>: <span dir="auto">{visible(reason)}</span></>}
    </p>
  )
}

const OUTCOMES = { waiting: "Waiting", done: "Done", failed: "Failed", "given-up": "Given up", none: "Sent" }

/** A call: what is asked of whom, and what came back. */
function Request({ said }: { said: Said }) {
  const [open, setOpen] = useState(false)
  const stay = useStay()
  const { envelope, response } = said
  const outcome = outcomeOf(said)
  const args = argumentsOf(envelope)
  return (
    <div className="call" data-testid="request" data-outcome={outcome}>
      <button type="button" className="call__row" aria-expanded={open} onClick={() => { stay(); setOpen(!open) }}>
        <span className={`call__mark call__mark--${outcome}`} aria-hidden="true" />
        <span className="call__name" dir="auto">{plain(toolOf(envelope))}</span>
        <span className="call__preview" dir="auto">{plain(response ? preview(resultOf(response)) || preview(args) : preview(args))}</span>
        <span className="call__outcome">{OUTCOMES[outcome]}</span>
      </button>
      {open && (
        <div className="call__body">
          {envelope.to.length > 0 && <p className="call__to">Asked of {envelope.to.map((id) => <Who key={id} id={id} small />)}</p>}
          {args !== undefined && <div><p className="tool__label">With</p><Value value={args} /></div>}
          {response && (
            <div>
              <p className="tool__label">{failed(response) ? "Went wrong, says" : "Came back from"} <Who id={response.from} small /></p>
              {response.erased ? <Erased /> : <Value value={resultOf(response)} />}
            </div>
          )}
        </div>
      )}
    </div>
  )
}

const STATES = { open: "Open", fulfilled: "Approved", rejected: "Rejected", withdrawn: "Withdrawn" }

function Proposal({ said }: { said: Said }) {
  const { me, live, mayAsk, approve, refuse } = useRoom()
  const { envelope, proposal } = said
  if (!proposal) return null
  const mine = envelope.from === me
  const addressed = envelope.to.length === 0 || (me !== null && envelope.to.includes(me))
  const reason = proposal.by === null ? undefined : reasonOf(proposal.by.payload)
  return (
    <div className="proposal" data-testid="proposal" data-status={proposal.status}>
      <div className="proposal__head">
        <Label>Proposes</Label>
        <span className="call__name" dir="auto">{plain(toolOf(envelope))}</span>
        <span className={`chip chip--${proposal.status}`}>{STATES[proposal.status]}</span>
      </div>
      <Value value={argumentsOf(envelope)} />
      {proposal.by && (
        <p className="proposal__by">
          {/* One thing: the parts of a line of things stand apart. */}
          <span>{STATES[proposal.status]} by <Who id={proposal.by.from} small />{reason !== undefined && <>: <bdi>{visible(reason)}</bdi></>}</span>
        </p>
      )}
      {proposal.status === "open" && live && (mine || addressed) && (
        <div className="proposal__acts">
          {mayAsk && !mine && <button type="button" className="button button--small button--first" data-testid="approve" onClick={() => approve(said)}>Approve</button>}
          <button type="button" className="button button--small" data-testid="refuse" onClick={() => refuse(said)}>{mine ? "Withdraw" : "Reject"}</button>
        </div>
      )}
    </div>
  )
}

function Response({ envelope }: { envelope: Envelope }) {
  return (
    <div className="call" data-testid="response">
      <Label>{failed(envelope) ? "An error came back" : "An answer came back"}</Label>
      <Value value={resultOf(envelope)} />
    </div>
  )
}

/** The beginning of a Markdown text on one line, without its signs. */
const unmarked = (text: string) => preview(text.slice(0, 600).replace(/[*`#>|]+|^[-+] /gm, ""))

/** In its lane, what somebody said in the conversation is one line that leads there. */
function Echo({ said }: { said: Said }) {
  const { show } = useRoom()
  return (
    <button type="button" className="echo" data-testid="echo" onClick={() => show(said)}>
      <span className="step__label">{said.proposal ? "Proposes" : "Says"}</span>{" "}
      {said.proposal && <span className={`chip chip--${said.proposal.status}`}>{STATES[said.proposal.status]}</span>}{" "}
      <span className="echo__words" dir="auto">{said.envelope.erased ? "(erased)" : plain(said.proposal ? toolOf(said.envelope) : unmarked(wordsOf(said.envelope)))}</span>
    </button>
  )
}

export function Answering({ said }: { said: Said }) {
  const { show } = useRoom()
  return (
    <button type="button" className="answering" onClick={() => show(said)}>
      <span aria-hidden="true">↩ </span><span className="visually-hidden">In answer to </span>
      <bdi>{plain(said.envelope.from)}</bdi>: <span dir="auto">{said.envelope.erased ? "(erased)" : plain(unmarked(wordsOf(said.envelope)) || toolOf(said.envelope))}</span>
    </button>
  )
}

function Sources({ said, expanded }: { said: Said; expanded: boolean }) {
  const { toggle } = useRoom()
  const stay = useStay()
  return (
    <button type="button" className="quiet-button" aria-expanded={expanded} onClick={() => { stay(); toggle(said.key, !expanded) }}>
      {expanded ? "Hide" : "Show"} the {said.compresses} {said.compresses === 1 ? "thought" : "thoughts"} that this stands for
    </button>
  )
}

// --- in the conversation

export function Message({ said }: { said: Said }) {
  const { envelope } = said
  const { me, live, mayChat, show, reply } = useRoom()
  return (
    <article className="message" data-testid="message" data-mine={envelope.from === me}>
      <header className="message__head">
        <Who id={envelope.from} />
        {envelope.to.length > 0 && <span className="message__to">only to {envelope.to.map((id) => <Who key={id} id={id} small />)}</span>}
        <At ts={envelope.ts} />
      </header>
      {said.answers && said.from.length === 0 && <Answering said={said.answers} />}
      {envelope.erased ? <Erased /> : <div className="message__text" dir="auto"><Markdown text={wordsOf(envelope)} /></div>}
      <Flags flags={envelope.flags} />
      <footer className="message__foot">
        {said.from.map((context) => (
          <button key={context.key} type="button" className="text-button message__why" data-testid="why" title={plain(titleOf(context))} onClick={() => show(context)}>
            How it came to this
          </button>
        ))}
        {live && mayChat && envelope.from !== me && <button type="button" className="quiet-button message__reply" data-testid="reply" onClick={() => reply(said)}>Reply</button>}
      </footer>
    </article>
  )
}

/** Requests and proposals that stand in the conversation. */
export function Act({ said }: { said: Said }) {
  const { show } = useRoom()
  return (
    <article className="message message--act" data-testid="act">
      <header className="message__head">
        <Who id={said.envelope.from} />
        <At ts={said.envelope.ts} />
      </header>
      <Body said={said} quiet={false} />
      <Flags flags={flagsOf(said)} />
      {said.from.map((context) => (
        <button key={context.key} type="button" className="text-button message__why" data-testid="why" onClick={() => show(context)}>How it came to this</button>
      ))}
    </article>
  )
}

/** What is no word of anybody: who came and went, what somebody may from now on. */
export function Notice({ envelope, more = [] }: { envelope: Envelope; more?: readonly Said[] }) {
  return (
    <p className="notice" data-testid="notice" data-kind={envelope.kind}>
      {envelope.erased ? <span className="step__nothing" data-testid="erased">(erased)</span> : envelope.kind === PRESENCE ? came([...more.map((one) => one.envelope), envelope]) : noticed(envelope)}
    </p>
  )
}

const came = (told: readonly Envelope[]): ReactNode =>
  comings(told).map(({ who, did }, index) => (
    <span key={index}>
      {index > 0 && " · "}
      {who.map((id, at) => <span key={id}>{at > 0 && ", "}{name(id === "" ? undefined : id)}</span>)} {did}
    </span>
  ))

function name(value: Json | undefined): ReactNode {
  return typeof value === "string" ? <bdi>{plain(value)}</bdi> : "somebody"
}

function noticed(envelope: Envelope): ReactNode {
  const { payload, kind } = envelope
  const by = <bdi>{plain(envelope.from)}</bdi>
  const reason = reasonOf(payload)
  const why = reason === undefined ? null : <>: <span dir="auto">{visible(reason)}</span></>
  switch (kind) {
    case "capability/grant": return <>{by} lets {name(payload["recipient"])} do more: <code dir="ltr">{plain(granted(payload["capabilities"]))}</code>{why}</>
    case "capability/revoke": return <>{by} takes back what {name(payload["recipient"])} may do{why}</>
    case "capability/grant-ack": return <>{by} knows what it may do</>
    case "space/invite": return <>{by} invites {name(payload["participant_id"])}{why}</>
    case "space/kick": return <>{by} sends {name(payload["participant_id"])} away{why}</>
    case CANCEL: return <>{by} cancelled a reasoning{why}</>
  }
  const words = wordsOf(envelope)
  return <>{by} · <code dir="ltr">{plain(kind)}</code>{words !== "" && <>: <span dir="auto">{visible(words.slice(0, 500))}</span></>}</>
}

function granted(value: Json | undefined): string {
  const kinds = (Array.isArray(value) ? value : []).map((one) => (typeof one === "string" ? one : typeof one === "object" && one !== null && !Array.isArray(one) ? preview(one["kind"]) : ""))
  return kinds.filter((one) => one !== "").join(", ").slice(0, 200) || "…"
}
