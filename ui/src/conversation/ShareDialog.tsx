// The links that share a chat: make one, copy it, delete it.
import { useEffect, useId, useState } from "react"

import { client, errorMessage } from "../api/client"
import type { Share, View } from "../api/types"
import { isLoopback } from "../routes"
import { formatDay } from "./days"
import { Dialog } from "../primitives/Dialog"
import { CopyButton } from "../text/CopyButton"
import { fill } from "../text/fill"
import { plain } from "../text/visible"
import { words } from "../words"

interface Props {
  conversation: string
  title: string
  /** The views that this user may see, and so may share. */
  views: readonly View[]
  onClose: () => void
}

const DAY = 86_400
const EXPIRIES = [0, DAY, 7 * DAY, 30 * DAY] as const

export default function ShareDialog({ conversation, title, views, onClose }: Props) {
  const [shares, setShares] = useState<Share[] | null>(null)
  const [allowed, setAllowed] = useState(true)
  const [view, setView] = useState<View>("hidden")
  const [seconds, setSeconds] = useState(0)
  const [busy, setBusy] = useState(false)
  const [made, setMade] = useState<Share | null>(null)
  const [error, setError] = useState<string | null>(null)
  const viewField = useId()
  const expiryField = useId()
  const linkField = useId()

  const attempt = async (work: () => Promise<void>) => {
    setBusy(true)
    setError(null)
    try {
      await work()
    } catch (failure) {
      setError(errorMessage(failure, words.share.failed))
    }
    setBusy(false)
  }
  useEffect(() => {
    client.shares(conversation).then(({ data, allowed }) => {
      setShares(data)
      setAllowed(allowed)
    }, (failure: unknown) => setError(errorMessage(failure, words.share.failed)))
  }, [conversation])

  const make = () =>
    attempt(async () => {
      const share = await client.share(conversation, { view, ...(seconds > 0 && { expires_in_seconds: seconds }) })
      setMade(share)
      setShares((known) => [...(known ?? []), share])
    })
  const remove = (id: string) =>
    attempt(async () => {
      await client.deleteShare(conversation, id)
      setShares((known) => (known ?? []).filter((share) => share.id !== id))
      setMade((share) => (share?.id === id ? null : share))
    })
  const link = made?.url === undefined ? "" : `${location.origin}${made.url}`

  return (
    <Dialog className="dialog" label={words.share.title} onClose={onClose}>
      <div className="dialog__inner share" data-testid="share-dialog">
        <h2 className="dialog__title">{words.share.title}</h2>
        <p>{fill(words.share.lead, { chat: <bdi>{plain(title) || words.common.untitled}</bdi> })} {words.share.files}</p>
        {allowed && isLoopback(location.hostname) && <p className="share__note" data-testid="share-loopback">{fill(words.share.loopback, { address: <bdi>{location.host}</bdi> })}</p>}
        {!allowed && <p className="form-error" data-testid="share-off">{words.share.off}</p>}
        <div className="share__row">
          <label htmlFor={viewField}>{words.share.view}</label>
          <select id={viewField} className="share__field" value={view} onChange={(event) => setView(event.target.value as View)}>
            {views.map((one) => (
              <option key={one} value={one}>{words.share.views[one]}</option>
            ))}
          </select>
        </div>
        <div className="share__row">
          <label htmlFor={expiryField}>{words.share.expiry}</label>
          <select id={expiryField} className="share__field" value={seconds} onChange={(event) => setSeconds(Number(event.target.value))}>
            {EXPIRIES.map((one) => (
              <option key={one} value={one}>{one === 0 ? words.share.never : words.share.days(one / DAY)}</option>
            ))}
          </select>
        </div>
        {link !== "" && (
          <div className="share__made" role="status">
            <label htmlFor={linkField}>{words.share.made}</label>
            <div className="share__row">
              <input id={linkField} className="share__field share__link" data-testid="share-link" readOnly dir="ltr" value={link} onFocus={(event) => event.target.select()} />
              <CopyButton text={link} label={words.share.copy} />
            </div>
          </div>
        )}
        {shares !== null && shares.length > 0 && (
          <section aria-label={words.share.list}>
            <h3 className="share__heading">{words.share.list}</h3>
            <ul className="share__list">
              {shares.map((share) => (
                <li key={share.id} className="share__item" data-testid="share-item">
                  <span>
                    {words.share.madeOn(formatDay(share.created_at))}, {words.share.with[share.view]}
                    {share.expires_at !== undefined && `, ${words.share.until(formatDay(share.expires_at))}`}
                  </span>
                  <button type="button" className="text-button" disabled={busy} onClick={() => void remove(share.id)}>{words.share.delete}</button>
                </li>
              ))}
            </ul>
          </section>
        )}
        {error !== null && <p className="form-error" role="alert">{error}</p>}
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onClose}>{words.share.close}</button>
          <button type="button" className="button button--first" data-testid="share-make" disabled={busy || !allowed} onClick={() => void make()}>{words.share.make}</button>
        </div>
      </div>
    </Dialog>
  )
}
