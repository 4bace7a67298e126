// The dialog that makes a link for one new participant, with rights and an end. The link's secret is behind `#`, so no
// server and no log gets it.
import { useRef, useState } from "react"

import { Dialog } from "../primitives/Dialog"
import { CopyButton } from "../text/CopyButton"
import { spacePath } from "../routes"
import { words } from "../words"
import { mayProbablySend } from "./envelope"
import { makeLink, RIGHTS } from "./owned"
import type { Right } from "./owned"
import { ParticipantField } from "./ParticipantField"
import { useAction } from "../primitives/useAction"

interface Props {
  space: string
  token: string
  /** Those of the inviter: nobody gives more. */
  capabilities: readonly unknown[]
  onClose: () => void
}

/** The kinds that the inviter must be able to send, to give the right. */
const NEEDED: Record<Right, readonly string[]> = { read: [], talk: ["chat"], propose: ["mcp/proposal", "mcp/withdraw"], approve: ["mcp/request", "mcp/reject"] }
const HOUR = 3600
const ENDS = { hour: HOUR, day: 24 * HOUR, week: 7 * 24 * HOUR, month: 30 * 24 * HOUR }

export function InviteDialog({ space, token, capabilities, onClose }: Props) {
  const texts = words.spaces.invitation
  const [participant, setParticipant] = useState("")
  const [rights, setRights] = useState<ReadonlySet<Right>>(new Set(["talk"]))
  const [until, setUntil] = useState<keyof typeof ENDS>("week")
  const [link, setLink] = useState<string | null>(null)
  const { busy, problem, run } = useAction(texts.makeFailed)
  const field = useRef<HTMLInputElement>(null)
  const mayGive = (right: Right) => NEEDED[right].every((kind) => mayProbablySend(capabilities, kind))
  const given = RIGHTS.filter((right) => right === "read" || (rights.has(right) && mayGive(right)))
  const make = () =>
    run(async () => {
      const secret = await makeLink(space, token, { participant, rights: given, expires_in_seconds: ENDS[until] })
      setLink(`${location.origin}${spacePath(space)}#join=${encodeURIComponent(secret)}`)
    })
  return (
    <Dialog className="dialog" label={texts.dialog} onClose={onClose}>
      <form className="dialog__inner space-form" data-testid="invite-form" onSubmit={(event) => { event.preventDefault(); make() }}>
        <h2 className="dialog__title">{texts.dialog}</h2>
        {link === null ? (
          <>
            <p>{texts.lead}</p>
            <ParticipantField ref={field} className="space-form__text" autoComplete="off" label={texts.who} testId="invite-name" value={participant} onChange={setParticipant} />
            <fieldset className="space-form__rights">
              <legend>{texts.rights}</legend>
              {RIGHTS.map((right) => (
                <label key={right} className="space-form__right">
                  <input
                    type="checkbox"
                    data-testid={`right-${right}`}
                    checked={given.includes(right)}
                    disabled={right === "read" || !mayGive(right)}
                    onChange={(event) => setRights((now) => new Set(event.target.checked ? [...now, right] : [...now].filter((one) => one !== right)))}
                  />
                  <span>{texts.right[right]} <small>{mayGive(right) ? texts.rightNote[right] : texts.notYours}</small></span>
                </label>
              ))}
            </fieldset>
            <label className="sign-in__label">
              {texts.until}
              <select className="select" data-testid="invite-until" value={until} onChange={(event) => setUntil(event.target.value as keyof typeof ENDS)}>
                {(Object.keys(ENDS) as (keyof typeof ENDS)[]).map((one) => <option key={one} value={one}>{texts[one]}</option>)}
              </select>
            </label>
          </>
        ) : (
          <>
            <p>{texts.ready(participant)}</p>
            <div className="space-form__link">
              <input className="sign-in__field" data-testid="invite-link" readOnly aria-label={texts.link} dir="ltr" value={link} onFocus={(event) => event.target.select()} />
              <CopyButton text={link} label={texts.copyLink} />
            </div>
          </>
        )}
        {problem !== null && <p className="form-error" role="alert">{problem}</p>}
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onClose}>{texts.close}</button>
          {link === null ? (
            <button type="submit" className="button button--first" data-testid="make-link" disabled={busy}>{texts.make}</button>
          ) : (
            <button type="button" className="button" onClick={() => { setLink(null); setParticipant(""); requestAnimationFrame(() => field.current?.focus()) }}>{texts.another}</button>
          )}
        </div>
      </form>
    </Dialog>
  )
}
