// One envelope in a lane or in the conversation: a thought of any kind, a request with its response, a proposal with
// its outcome, a message, a notice.
import { useState } from "react"
import type { ReactNode } from "react"

import type { Json } from "../api/types"
import { useStopFollowing } from "../chat/followEnd"
import { preview, formatJson } from "../chat/format"
import { lineOf } from "../text/line"
import { LongText } from "../text/LongText"
import { Markdown } from "../text/Markdown"
import { plain, visible } from "../text/visible"
import { presenceLines } from "./presence"
import {
  argumentsOf, CANCEL, CONCLUSION, confidenceOf, familyOf, GATEWAY, LIMIT, ownEntry, PRESENCE, PROPOSAL, reasonOf, REQUEST, RESPONSE, SHARE, resultOf, isFailure,
  textAt, textsAt, toolOf, uncertaintyOf, textOf,
} from "./envelope"
import type { Envelope } from "./envelope"
import { outcomeOf } from "./fold"
import type { EnvelopeItem } from "./fold"
import { useRoom } from "./room"
import { discoveryKey, titleOf } from "./rows"
import { Audience, Names, Timestamp, Flags, Confidence, ParticipantName } from "./badges"
import { fill } from "../text/fill"
import { words } from "../words"

/** An envelope in a lane. The sender is shown only if it is not the owner of the lane. */
export function Step({ item, owner, expanded }: { item: EnvelopeItem; owner: string; expanded: boolean }) {
  const { envelope } = item
  const isGuest = envelope.from !== owner && envelope.from !== GATEWAY
  return (
    <article className={`step step--${familyOf(envelope.kind)}`} data-kind={envelope.kind} data-testid="step" data-compressed={item.compressed !== null}>
      {(isGuest || item.repliesTo) && (
        <p className="step__sender">
          {isGuest && <ParticipantName id={envelope.from} small />}
          {item.repliesTo && item.context && <ReplyReference item={item.repliesTo} />}
        </p>
      )}
      <Body item={item} quiet={item.context === null} />
      {/* Where it is not that of the context, whose head shows it. */}
      {envelope.audience.length > 0 && !sameNames(envelope.audience, item.context?.audience ?? []) && <p className="step__audience"><Audience ids={envelope.audience} /></p>}
      <Flags flags={flagsOf(item)} />
      {item.compresses > 0 && <CompressedThoughts item={item} expanded={expanded} />}
    </article>
  )
}

const sameNames = (some: readonly string[], others: readonly string[]) => some.length === others.length && some.every((one) => others.includes(one))

/** The flags of the envelope and of its response. */
const flagsOf = ({ envelope, response }: EnvelopeItem) => (response ? [...envelope.flags, ...response.flags] : envelope.flags)

function Body({ item, quiet }: { item: EnvelopeItem; quiet: boolean }) {
  const { envelope } = item
  if (envelope.erased) return <Erased />
  switch (envelope.kind) {
    case "reasoning/question": return <Questions envelope={envelope} />
    case "reasoning/observation": return <Observation envelope={envelope} />
    case "reasoning/hypothesis": return <Hypothesis envelope={envelope} />
    case CONCLUSION: return <Conclusion envelope={envelope} />
    case CANCEL: return <Cancelled envelope={envelope} />
    case SHARE: return <p className="notice" data-testid="shared">{fill(words.spaces.step.shared, { who: <Names ids={textsAt(envelope.payload, "participants")} /> })}</p>
    case REQUEST: return <Request item={item} />
    case PROPOSAL: return quiet ? <MessageLink item={item} /> : <Proposal item={item} />
    case RESPONSE: return <Response envelope={envelope} />
    case "chat": return quiet ? <MessageLink item={item} /> : <div className="step__chat">{textOf(envelope) === "" ? <p className="step__empty">{words.spaces.step.noText}</p> : <Markdown text={textOf(envelope)} />}</div>
  }
  if (familyOf(envelope.kind) === "reasoning") {
    const confidence = confidenceOf(envelope.payload)
    return (
      <>
        {envelope.kind !== "reasoning/thought" && <Label>{plain(envelope.kind.slice(10))}</Label>}
        <EnvelopeText envelope={envelope} />
        {confidence !== undefined && <Confidence confidence={confidence} range={uncertaintyOf(envelope.payload)} />}
      </>
    )
  }
  return <Notice envelope={envelope} />
}

const Erased = () => <p className="step__empty" data-testid="erased">{words.spaces.step.erased}</p>

const Label = ({ children }: { children: ReactNode }) => <span className="step__label">{children}</span>

/** The text of an envelope; if it has none, its payload. */
function EnvelopeText({ envelope }: { envelope: Envelope }) {
  const text = textOf(envelope)
  if (text !== "") return <LongText text={text} />
  return Object.keys(envelope.payload).length > 0 ? <Value value={envelope.payload as Json} /> : <p className="step__empty">{words.spaces.step.noText}</p>
}

function Value({ value }: { value: Json | undefined }) {
  const text = formatJson(value)
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
      <Label>{words.spaces.step.questions(questions.length)}</Label>
      {lead !== undefined && <LongText text={lead} />}
      {questions.length > 0 && <ul className="step__list step__list--questions">{questions.map((one, index) => <li key={index} dir="auto">{visible(one)}</li>)}</ul>}
      {lead === undefined && questions.length === 0 && <EnvelopeText envelope={envelope} />}
    </>
  )
}

const SEVERE = /^(critical|high|severe|error|fatal|blocker)$/i
const MODERATE = /^(medium|moderate|warning|warn)$/i

function Observation({ envelope }: { envelope: Envelope }) {
  const severity = textAt(envelope.payload, "severity")
  const components = textsAt(envelope.payload, "components")
  const level = severity === undefined ? "" : SEVERE.test(severity) ? "severe" : MODERATE.test(severity) ? "moderate" : "plain"
  return (
    <>
      <span className="step__head">
        <Label>{words.spaces.step.observation}</Label>
        {severity !== undefined && <span className={`chip chip--${level}`} data-testid="severity">{plain(severity)}</span>}
        {components.map((one, index) => <span key={index} className="chip" dir="auto">{plain(one)}</span>)}
      </span>
      <EnvelopeText envelope={envelope} />
      <Details name={words.spaces.step.details} value={envelope.payload["details"]} />
    </>
  )
}

function Hypothesis({ envelope }: { envelope: Envelope }) {
  const confidence = confidenceOf(envelope.payload)
  return (
    <>
      <span className="step__head">
        <Label>{words.spaces.step.hypothesis}</Label>
        {confidence !== undefined && <Confidence confidence={confidence} range={uncertaintyOf(envelope.payload)} />}
      </span>
      <EnvelopeText envelope={envelope} />
      <Details name={words.spaces.step.evidence} value={envelope.payload["evidence"]} />
    </>
  )
}

function Conclusion({ envelope }: { envelope: Envelope }) {
  const { payload } = envelope
  const confidence = confidenceOf(payload)
  const decision = textAt(payload, "decision")
  const text = textOf(envelope)
  const recommendation = textAt(payload, "recommendation")
  const isEmpty = text === "" && [decision, confidence, payload["key_factors"], recommendation].every((one) => one === undefined || one === null)
  if (isEmpty && payload["cancelled"] !== true) return <p className="step__end">{words.spaces.step.reasoningEnded}</p>
  return (
    <div className="step__conclusion">
      <span className="step__head">
        <Label>{payload["cancelled"] === true ? words.spaces.step.cancelled : words.spaces.step.conclusion}</Label>
        {confidence !== undefined && <Confidence confidence={confidence} range={uncertaintyOf(payload)} />}
      </span>
      {text !== "" && <LongText text={text} />}
      {decision !== undefined && decision !== text && <Details name={words.spaces.step.decision} value={decision} />}
      <Details name={words.spaces.step.factors} value={payload["key_factors"]} />
      {recommendation !== text && <Details name={words.spaces.step.recommendation} value={recommendation} />}
      {text === "" && decision === undefined && <p className="step__empty">{words.spaces.step.reasoningEnded}</p>}
    </div>
  )
}

function Cancelled({ envelope }: { envelope: Envelope }) {
  const reason = reasonOf(envelope.payload)
  return (
    <p className="step__end">
      {envelope.from === GATEWAY ? words.spaces.step.abandoned : fill(words.spaces.step.cancelledBy, { who: <bdi>{plain(envelope.from)}</bdi> })}
      {reason !== undefined && <>: <span dir="auto">{visible(reason)}</span></>}
    </p>
  )
}

/** A request: recipients, arguments and response. */
function Request({ item }: { item: EnvelopeItem }) {
  const [open, setOpen] = useState(false)
  const stopFollowing = useStopFollowing()
  const { envelope, response } = item
  const outcome = outcomeOf(item)
  const args = argumentsOf(envelope)
  return (
    <div className="call" data-testid="request" data-outcome={outcome}>
      <button type="button" className="call__row" aria-expanded={open} onClick={() => { stopFollowing(); setOpen(!open) }}>
        <span className={`call__mark call__mark--${outcome}`} aria-hidden="true" />
        <span className="call__name" dir="auto">{plain(toolOf(envelope))}</span>
        <span className="call__preview" dir="auto">{plain(response ? preview(resultOf(response)) || preview(args) : preview(args))}</span>
        <span className="call__outcome">{words.spaces.step.outcomes[outcome]}</span>
      </button>
      {open && (
        <div className="call__body">
          {envelope.to.length > 0 && <p className="call__to">{fill(words.spaces.step.sentTo, { who: envelope.to.map((id) => <ParticipantName key={id} id={id} small />) })}</p>}
          {args !== undefined && <div><p className="tool__label">{words.spaces.step.arguments}</p><Value value={args} /></div>}
          {response && (
            <div>
              <p className="tool__label">{fill(isFailure(response) ? words.spaces.step.errorFrom : words.spaces.step.resultFrom, { who: <ParticipantName id={response.from} small /> })}</p>
              {response.erased ? <Erased /> : <Value value={resultOf(response)} />}
            </div>
          )}
        </div>
      )}
    </div>
  )
}

function Proposal({ item }: { item: EnvelopeItem }) {
  const { me, live, mayRequest, approve, reject } = useRoom()
  const { envelope, proposal } = item
  if (!proposal) return null
  const mine = envelope.from === me
  const addressed = envelope.to.length === 0 || (me !== null && envelope.to.includes(me))
  const reason = proposal.by === null ? undefined : reasonOf(proposal.by.payload)
  return (
    <div className="proposal" data-testid="proposal" data-status={proposal.status}>
      <div className="proposal__head">
        <Label>{words.spaces.step.proposal}</Label>
        <span className="call__name" dir="auto">{plain(toolOf(envelope))}</span>
        <span className={`chip chip--${proposal.status}`}>{words.spaces.step.states[proposal.status]}</span>
      </div>
      <Value value={argumentsOf(envelope)} />
      {proposal.by && (
        <p className="proposal__outcome">
          {/* One element, because the parts of a flex line are spaced apart. */}
          <span>{fill(words.spaces.step.stateBy(words.spaces.step.states[proposal.status]), { who: <ParticipantName id={proposal.by.from} small /> })}{reason !== undefined && <>: <bdi>{visible(reason)}</bdi></>}</span>
        </p>
      )}
      {proposal.status === "open" && live && (mine || addressed) && (
        <div className="proposal__actions">
          {mayRequest && !mine && <button type="button" className="button button--small button--first" data-testid="approve" onClick={() => approve(item)}>{words.spaces.step.approve}</button>}
          <button type="button" className="button button--small" data-testid="reject" onClick={() => reject(item)}>{mine ? words.spaces.step.withdraw : words.spaces.step.reject}</button>
        </div>
      )}
    </div>
  )
}

function Response({ envelope }: { envelope: Envelope }) {
  return (
    <div className="call" data-testid="response">
      <Label>{isFailure(envelope) ? words.spaces.step.error : words.spaces.step.response}</Label>
      <Value value={resultOf(envelope)} />
    </div>
  )
}

/** In a lane, a message of the conversation is one line that links to it. */
function MessageLink({ item }: { item: EnvelopeItem }) {
  const { show } = useRoom()
  return (
    <button type="button" className="message-link" data-testid="message-link" onClick={() => show(item)}>
      <span className="step__label">{item.proposal ? words.spaces.step.proposal : words.spaces.step.message}</span>{" "}
      {item.proposal && <span className={`chip chip--${item.proposal.status}`}>{words.spaces.step.states[item.proposal.status]}</span>}{" "}
      <span className="message-link__text" dir="auto">{item.envelope.erased ? words.spaces.step.erased : plain(item.proposal ? toolOf(item.envelope) : lineOf(textOf(item.envelope)) || words.spaces.step.noText)}</span>
    </button>
  )
}

export function ReplyReference({ item }: { item: EnvelopeItem }) {
  const { show } = useRoom()
  return (
    <button type="button" className="reply-reference" onClick={() => show(item)}>
      <span aria-hidden="true">↩ </span><span className="visually-hidden">{words.spaces.message.inReplyTo}</span>
      <bdi>{plain(item.envelope.from)}</bdi>: <span dir="auto">{item.envelope.erased ? words.spaces.step.erased : plain(lineOf(textOf(item.envelope)) || toolOf(item.envelope))}</span>
    </button>
  )
}

function CompressedThoughts({ item, expanded }: { item: EnvelopeItem; expanded: boolean }) {
  const { toggle } = useRoom()
  const stopFollowing = useStopFollowing()
  return (
    <button type="button" className="quiet-button" aria-expanded={expanded} onClick={() => { stopFollowing(); toggle(item.key, !expanded) }}>
      {words.spaces.step.summarized(item.compresses, expanded)}
    </button>
  )
}

/** Requests that only ask what there is, in one line. */
export function Discovery({ item, count, open }: { item: EnvelopeItem; count: number; open: boolean }) {
  const { toggle } = useRoom()
  const stopFollowing = useStopFollowing()
  return (
    <button type="button" className="quiet-button" data-testid="discovery" aria-expanded={open} onClick={() => { stopFollowing(); toggle(discoveryKey(item), !open) }}>
      {words.spaces.step.discovery(count)}
    </button>
  )
}

// --- in the conversation

export function Message({ item }: { item: EnvelopeItem }) {
  const { envelope } = item
  const { me, live, mayChat, show, reply } = useRoom()
  return (
    <article className="message" data-testid="message" data-mine={envelope.from === me}>
      <header className="message__head">
        <ParticipantName id={envelope.from} />
        {envelope.to.length > 0 && <span className="message__to">{fill(words.spaces.message.onlyTo, { who: envelope.to.map((id) => <ParticipantName key={id} id={id} small />) })}</span>}
        <Timestamp ts={envelope.ts} />
      </header>
      {item.repliesTo && item.origins.length === 0 && <ReplyReference item={item.repliesTo} />}
      {envelope.erased ? <Erased /> : <div className="message__text" dir="auto"><Markdown text={textOf(envelope)} /></div>}
      <Flags flags={envelope.flags} />
      <footer className="message__foot">
        {item.origins.map((context) => (
          <button key={context.key} type="button" className="text-button message__reasoning" data-testid="to-reasoning" title={plain(titleOf(context))} onClick={() => show(context)}>
            {words.spaces.message.toReasoning}
          </button>
        ))}
        {live && mayChat && envelope.from !== me && <button type="button" className="quiet-button message__reply" data-testid="reply" onClick={() => reply(item)}>{words.spaces.message.reply}</button>}
      </footer>
    </article>
  )
}

/** A request or proposal in the conversation. */
export function ActionMessage({ item }: { item: EnvelopeItem }) {
  const { show } = useRoom()
  return (
    <article className="message message--action" data-testid="action-message">
      <header className="message__head">
        <ParticipantName id={item.envelope.from} />
        <Timestamp ts={item.envelope.ts} />
      </header>
      <Body item={item} quiet={false} />
      <Flags flags={flagsOf(item)} />
      {item.origins.map((context) => (
        <button key={context.key} type="button" className="text-button message__reasoning" data-testid="to-reasoning" onClick={() => show(context)}>{words.spaces.message.toReasoning}</button>
      ))}
    </article>
  )
}

/** A notice: presence, capabilities, invitations. */
export function Notice({ envelope, more = [] }: { envelope: Envelope; more?: readonly EnvelopeItem[] }) {
  return (
    <p className="notice" data-testid="notice" data-kind={envelope.kind}>
      {envelope.erased ? <span className="step__empty" data-testid="erased">{words.spaces.step.erased}</span> : envelope.kind === PRESENCE ? presenceText([...more.map((one) => one.envelope), envelope]) : noticeText(envelope)}
    </p>
  )
}

const presenceText = (envelopes: readonly Envelope[]): ReactNode =>
  presenceLines(envelopes).map(({ who, action }, index) => (
    <span key={index}>
      {index > 0 && " · "}
      {who.map((id, at) => <span key={id}>{at > 0 && ", "}{participantName(id === "" ? undefined : id)}</span>)} {action}
    </span>
  ))

function participantName(value: Json | undefined): ReactNode {
  return typeof value === "string" ? <bdi>{plain(value)}</bdi> : words.spaces.participants.someone
}

function noticeText(envelope: Envelope): ReactNode {
  const { payload, kind } = envelope
  const by = <bdi>{plain(envelope.from)}</bdi>
  const reason = reasonOf(payload)
  const why = reason === undefined ? null : <>: <span dir="auto">{visible(reason)}</span></>
  const description = textAt(payload, "description")
  const described = description === undefined ? null : <>: <span dir="auto">{visible(description.slice(0, 500))}</span></>
  const texts = words.spaces.notices
  switch (kind) {
    case "capability/grant": return <>{fill(texts.granted, { by, who: participantName(payload["recipient"]), kinds: <code dir="ltr">{plain(grantedKinds(payload["capabilities"]))}</code> })}{why}</>
    case "capability/revoke": return <>{fill(texts.revoked, { by, who: participantName(payload["recipient"]) })}{why}</>
    case "capability/grant-ack": return fill(texts.acknowledged, { by })
    case "space/invite": return <>{fill(texts.invited, { by, who: participantName(payload["participant_id"]) })}{why}</>
    case "space/kick": return <>{fill(texts.removed, { by, who: participantName(payload["participant_id"]) })}{why}</>
    case CANCEL: return <>{fill(texts.cancelled, { by })}{why}</>
    case LIMIT: return limitText(envelope)
    case "space/renew": return <>{fill(texts.renewed, { by })}{why}</>
    case "stream/request": return <>{fill(texts.streamRequest, { by })}{described}</>
    case "stream/open": return <>{fill(texts.streamOpen, { who: participantName(payload["owner"]) })}{described}</>
    case "stream/close": {
      const end = envelope.from === GATEWAY ? ownEntry(texts.streamEnds, textAt(payload, "reason") ?? "") : undefined
      return end ?? <>{fill(texts.streamClose, { by })}{why}</>
    }
    case "stream/grant-write": return fill(texts.streamGrant, { by, who: participantName(payload["participant_id"]) })
    case "stream/revoke-write": return fill(texts.streamRevoke, { by, who: participantName(payload["participant_id"]) })
    case "stream/transfer-ownership": return fill(texts.streamTransfer, { by, who: participantName(payload["new_owner"]) })
    case "stream/write-granted": return fill(texts.streamGranted, { who: participantName(payload["participant_id"]) })
    case "stream/write-revoked": return fill(texts.streamRevoked, { who: participantName(payload["participant_id"]) })
    case "stream/ownership-transferred": return fill(texts.streamTransferred, { who: participantName(payload["new_owner"]) })
  }
  const text = textOf(envelope)
  return <>{by} · <code dir="ltr">{plain(kind)}</code>{text !== "" && <>: <span dir="auto">{visible(text.slice(0, 500))}</span></>}</>
}

/** A limit of agents' talk that is reached, of the space or of a line of thought. */
function limitText({ payload, context }: Envelope): string {
  const { limits, limit, limitEnds, limitEndsHere } = words.spaces.notices
  const { allowed } = payload
  const named = ownEntry(limits, textAt(payload, "limit") ?? "")
  return (typeof allowed === "number" ? (named?.(allowed) ?? limit) : limit) + (context === null ? limitEnds : limitEndsHere)
}

function grantedKinds(value: Json | undefined): string {
  const kinds = (Array.isArray(value) ? value : []).map((one) => (typeof one === "string" ? one : typeof one === "object" && one !== null && !Array.isArray(one) ? preview(one["kind"]) : ""))
  return kinds.filter((one) => one !== "").join(", ").slice(0, 200) || "…"
}
