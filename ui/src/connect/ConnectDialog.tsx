// The dialog that connects models: the connections that exist, the choice of a provider, and the form.
import "./connect.css"

import { useEffect, useState } from "react"

import { CloseIcon } from "../primitives/icons"
import { Dialog } from "../primitives/Dialog"
import { plain } from "../text/visible"
import { words } from "../words"
import { connections, freeName, sentence } from "./api"
import type { ConnectionInfo, Connections, LargerModel, Provider, Providers } from "./api"
import { shortTitle } from "./about"
import { ConnectForm } from "./ConnectForm"
import { ConnectionList } from "./ConnectionList"
import { LargerModelGuide } from "./LargerModelGuide"
import { ProviderChoice } from "./ProviderChoice"

interface Props {
  onClose: () => void
  /** The models have changed. `model` is the public name of one that was connected. */
  onChanged: (model?: string) => void
}

type Step = { at: "list" } | { at: "choice" } | { at: "form"; provider: Provider; known?: ConnectionInfo } | { at: "larger"; model: LargerModel }

export function ConnectDialog({ onClose, onChanged }: Props) {
  const [loaded, setLoaded] = useState<{ existing: Connections; providers: Providers } | null>(null)
  const [failure, setFailure] = useState<string | null>(null)
  const [step, setStep] = useState<Step>({ at: "list" })

  useEffect(() => {
    Promise.all([connections.list(), connections.providers()]).then(
      ([existing, providers]) => {
        setLoaded({ existing, providers })
        if (existing.data.length === 0 && existing.problems.length === 0) setStep({ at: "choice" })
      },
      (error: unknown) => setFailure(sentence(error, words.connect.notLoaded)),
    )
  }, [])

  const edit = (known: ConnectionInfo) => {
    const provider = loaded?.providers.data.find(({ profile, names }) => profile === known.profile || names.includes(known.profile))
    if (provider) setStep({ at: "form", provider: { ...provider, profile: known.profile }, known })
  }

  const remove = async (name: string) => {
    await connections.remove(name)
    const existing = await connections.list()
    setLoaded((now) => now && { ...now, existing })
    onChanged()
  }

  const title =
    step.at === "form"
      ? step.known
        ? words.connect.titleOfChange(plain(step.known.name))
        : words.connect.title(plain(step.provider.title))
      : step.at === "larger"
        ? shortTitle(step.model.title)
      : step.at === "choice"
        ? words.modelNotes.connect
        : words.connect.yours
  return (
    <Dialog className="dialog dialog--connect" label={title} onClose={onClose}>
      <div className="connect" data-testid="connect">
        <div className="connect__head">
          <h2 className="dialog__title">{title}</h2>
          <button type="button" className="icon-button" aria-label={words.connect.close} onClick={onClose}>
            <CloseIcon />
          </button>
        </div>
        {failure !== null ? (
          <p className="form-error" role="alert">{failure}</p>
        ) : loaded === null ? (
          <p className="connect__note" role="status">{words.connect.loading}</p>
        ) : step.at === "list" ? (
          <ConnectionList existing={loaded.existing} onEdit={edit} onDelete={remove} onNew={() => setStep({ at: "choice" })} />
        ) : step.at === "choice" ? (
          <ProviderChoice
            {...loaded.providers}
            onChoose={(provider) => setStep({ at: "form", provider })}
            onChooseLarger={(model) => setStep({ at: "larger", model })}
            {...(loaded.existing.data.length > 0 && { onBack: () => setStep({ at: "list" }) })}
          />
        ) : step.at === "larger" ? (
          <LargerModelGuide model={step.model} onBack={() => setStep({ at: "choice" })} />
        ) : (
          <ConnectForm
            key={step.known?.name ?? step.provider.profile}
            provider={step.provider}
            name={step.known?.name ?? freeName(step.provider.profile, new Set([...loaded.existing.taken, ...loaded.existing.data.map(({ name }) => name)]))}
            onBack={() => setStep({ at: step.known ? "list" : "choice" })}
            onSaved={(saved) => {
              onChanged(saved.served_as[0])
              onClose()
            }}
            {...(step.known && { known: step.known })}
          />
        )}
      </div>
    </Dialog>
  )
}
