// The form of a connection: address, key, test, models, save.
import { useEffect, useId, useRef, useState } from "react"

import { ApiError } from "../api/client"
import { useAction } from "../primitives/useAction"
import { plain } from "../text/visible"
import { words } from "../words"
import { connections, sentence } from "./api"
import type { ConnectionTest, ConnectionInfo, ConnectionDraft, Provider } from "./api"
import { ModelChoice } from "./ModelChoice"

interface Props {
  provider: Provider
  name: string
  /** The connection that is changed. */
  known?: ConnectionInfo
  onBack: () => void
  onSaved: (saved: ConnectionInfo) => void
}

interface Message {
  bad: boolean
  text: string
  detail?: string
  /** The message is the question whether to connect to these addresses. */
  addresses?: string[]
}

const OWN_MACHINE = /^(127\.|::1$)/

/** The question about addresses of an own network. */
function questionAbout(addresses: string[]): Message {
  const ask = addresses.every((one) => OWN_MACHINE.test(one)) ? words.connect.ownMachine : words.connect.ownNetwork
  return { bad: false, text: ask(addresses.join(", ")), addresses }
}

const keyOf = ({ base_url, api_key }: ConnectionDraft) => JSON.stringify([base_url, api_key])

/** The result of a test, for people. */
function messageOf(checked: ConnectionTest, model: string | null): Message {
  const { problem } = checked
  if (problem?.private_addresses) return questionAbout(problem.private_addresses)
  if (problem) return { bad: true, text: problem.message, ...(problem.detail !== undefined && { detail: problem.detail }) }
  if (model !== null) return { bad: false, text: words.connect.answered(plain(model)) }
  return { bad: false, text: checked.has_list ? words.connect.lists(checked.models.length) : words.connect.noList }
}

export function ConnectForm({ provider, name: proposedName, known, onBack, onSaved }: Props) {
  const [address, setAddress] = useState(known?.base_url ?? provider.base_url)
  const [key, setKey] = useState("")
  const [removesKey, setRemovesKey] = useState(false)
  const [name, setName] = useState(proposedName)
  const [listed, setListed] = useState<string[] | null>(known ? known.models : null)
  const [chosen, setChosen] = useState<string[]>(known?.models ?? [])
  /** The models that a server listed, and its address: at another one, they are not there. */
  const [source, setSource] = useState({ address: known?.base_url ?? null, models: known?.models ?? [] })
  const { busy, problem, run } = useAction(words.connect.testFailed, sentence)
  const [isSaving, setSaving] = useState(false)
  /** The last message, and the draft that it is about: with another address or key it is not true any more. */
  const [message, setMessage] = useState<Message | null>(null)
  const [about, setAbout] = useState("")
  /** What somebody agreed to here, and the address that it is about. */
  const [agreed, setAgreed] = useState<{ address: string | null; addresses: string[] } | null>(null)
  const first = useRef<HTMLInputElement>(null)
  const running = useRef<AbortController | null>(null)
  const ids = { key: useId(), address: useId(), name: useId(), message: useId() }
  const showsAddress = provider.local || provider.base_url === "" || known !== undefined

  useEffect(() => {
    if (window.matchMedia("(hover: hover)").matches) first.current?.focus()
    return () => running.current?.abort()
  }, [])

  const draft: ConnectionDraft = {
    profile: provider.profile,
    base_url: address.trim() || null,
    api_key: key !== "" ? key : known && !removesKey ? null : "",
    private_addresses: null,
  }
  if (agreed !== null && agreed.address === draft.base_url) draft.private_addresses = agreed.addresses
  const missing = address.trim() === ""

  /** Test what is in the form, and show the result. */
  const check = async (private_addresses: string[] | null) => {
    const abort = (running.current = new AbortController())
    const saved = known?.name ?? null
    const asking = { ...draft, private_addresses }
    const agreeTo = (address: string | null) => private_addresses && setAgreed({ address, addresses: private_addresses })
    setSaving(false)
    setMessage(null)
    setAbout(keyOf(draft))
    agreeTo(draft.base_url)
    const gone = source.address === draft.base_url ? [] : source.models
    setListed((now) => now && now.filter((model) => !gone.includes(model)))
    setChosen((now) => now.filter((model) => !gone.includes(model)))
    let checked = await connections.test({ ...asking, model: null, name: saved }, abort.signal)
    let asked: string | null = null
    if (checked.ok) {
      const tested = { ...asking, base_url: checked.base_url ?? draft.base_url }
      agreeTo(tested.base_url)
      setAbout(keyOf(tested))
      setAddress((now) => (now === address ? (tested.base_url ?? now) : now))
      const stay = chosen.filter((model) => !gone.includes(model) || checked.models.includes(model))
      setSource({ address: tested.base_url, models: checked.models })
      setListed([...new Set([...stay, ...checked.models])])
      setChosen(stay.length === 0 && checked.models.length === 1 ? checked.models : stay)
      if (stay[0] !== undefined) {
        asked = stay[0]
        checked = await connections.test({ ...tested, model: asked, name: saved }, abort.signal)
      }
    } else {
      setListed((now) => now ?? [])
    }
    setMessage(messageOf(checked, asked))
  }
  const test = (private_addresses = draft.private_addresses) => run(() => check(private_addresses))

  const save = () => {
    setSaving(true)
    setMessage(null)
    setAbout(keyOf(draft))
    run(async () => {
      try {
        onSaved(await connections.save(name.trim(), { ...draft, models: chosen }))
      } catch (error) {
        if (!(error instanceof ApiError && error.code === "private_address")) throw error
        await check(draft.private_addresses)
      }
    }, words.connect.notSaved)
  }

  const shown: Message | null = about !== keyOf(draft) ? null : problem !== null ? { bad: true, text: problem } : message

  const addressField = (
    <label className="connect__label">
      {words.connect.address}
      <input
        ref={showsAddress ? first : undefined}
        className="connect__field"
        data-testid="connect-address"
        type="url"
        inputMode="url"
        dir="ltr"
        autoComplete="off"
        spellCheck={false}
        aria-describedby={ids.address}
        value={address}
        onChange={(event) => setAddress(event.target.value)}
      />
      <span id={ids.address} className="connect__note">{words.connect.addressHint}</span>
    </label>
  )
  const keyNote = known?.has_key ? (known.key_end !== undefined ? words.connect.keyStoredEnd(known.key_end) : words.connect.keyStored) : words.connect.keyHint
  const canSave = chosen.length > 0 && !missing && name.trim() !== ""
  return (
    <form
      className="connect__form"
      noValidate
      onSubmit={(event) => {
        event.preventDefault()
        if (busy || missing) return
        if (canSave) save()
        else test()
      }}
    >
      {showsAddress && addressField}
      <label className="connect__label">
        {provider.key === "required" ? words.connect.key : words.connect.keyOptional}
        <input
          ref={showsAddress ? undefined : first}
          className="connect__field"
          data-testid="connect-key"
          type="password"
          dir="ltr"
          autoComplete="new-password"
          spellCheck={false}
          aria-describedby={ids.key}
          value={key}
          onChange={(event) => setKey(event.target.value.trim())}
        />
        <span id={ids.key} className="connect__note">{keyNote}</span>
      </label>
      {known?.has_key && (
        <label className="connect__check">
          <input type="checkbox" checked={removesKey} disabled={key !== ""} onChange={(event) => setRemovesKey(event.target.checked)} />
          {words.connect.removeKey}
        </label>
      )}
      <details className="connect__details">
        <summary>{words.connect.details}</summary>
        {!showsAddress && addressField}
        <label className="connect__label">
          {words.connect.name}
          <input className="connect__field" data-testid="connect-name" dir="ltr" autoComplete="off" spellCheck={false} readOnly={known !== undefined} aria-describedby={ids.name} value={name} onChange={(event) => setName(event.target.value)} />
          <span id={ids.name} className="connect__note">{words.connect.nameHint}</span>
        </label>
      </details>
      {shown && (
        <div className={`connect__message ${shown.bad ? "form-error" : shown.addresses ? "connect__question" : "connect__good"}`} role={shown.bad || shown.addresses ? "alert" : "status"} data-testid="connect-message" dir="auto">
          {plain(shown.text)}
          {shown.addresses !== undefined && (
            <>
              <p className="connect__note">{words.connect.agreementNote}</p>
              <div className="connect__row">
                <button type="button" className="button button--first" data-testid="connect-agree" onClick={() => test(shown.addresses)}>{words.connect.agree}</button>
                <button type="button" className="button" onClick={() => setMessage(null)}>{words.connect.disagree}</button>
              </div>
            </>
          )}
          {shown.detail !== undefined && <p className="connect__detail">{words.connect.says(plain(shown.detail))}</p>}
        </div>
      )}
      {listed !== null && <ModelChoice listed={listed} chosen={chosen} onChange={setChosen} onAdd={(model) => setListed((now) => [...new Set([model, ...(now ?? [])])])} />}
      <div className="dialog__actions">
        <button type="button" className="button" onClick={onBack}>{words.connect.back}</button>
        {/* Enter does what is next: it tests, and saves once a model is chosen. */}
        <button type={canSave ? "button" : "submit"} className={canSave ? "button" : "button button--first"} data-testid="connect-test" disabled={busy || missing} {...(canSave && { onClick: () => test() })}>
          {busy && !isSaving ? words.connect.testing : words.connect.test}
        </button>
        <button type={canSave ? "submit" : "button"} className={canSave ? "button button--first" : "button"} data-testid="connect-save" disabled={busy || !canSave}>
          {busy && isSaving ? words.connect.saving : words.connect.save}
        </button>
      </div>
    </form>
  )
}
