// The choice of a provider: the well-known ones first, with a search over all.
import { useEffect, useRef, useState } from "react"

import { plain } from "../text/visible"
import { words } from "../words"
import { modelName, shortTitle } from "./about"
import { ANY_SERVER, matchingProviders } from "./api"
import type { LargerModel, Provider, Providers } from "./api"

interface Props extends Providers {
  onChoose: (provider: Provider) => void
  onChooseLarger: (model: LargerModel) => void
  onBack?: () => void
}

export function ProviderChoice({ data: providers, larger_models, onChoose, onChooseLarger, onBack }: Props) {
  const [query, setQuery] = useState("")
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => {
    if (window.matchMedia("(hover: hover)").matches) field.current?.focus()
  }, [])
  const rows = matchingProviders(providers, query)
  const larger = larger_models.filter(({ title }) => shortTitle(title).toLowerCase().includes(query.trim().toLowerCase()))
  const anyServer = providers.find(({ profile }) => profile === ANY_SERVER)
  const groups = [
    { name: words.connect.common, rows: rows.filter(({ common, local }) => common && !local) },
    { name: words.connect.here, rows: rows.filter(({ common, local }) => common && local) },
    { name: words.connect.more, rows: rows.filter(({ common }) => !common) },
  ]
  const item = (provider: Provider) => (
    <li key={provider.profile}>
      <button type="button" className="connect__provider" data-testid="provider" data-profile={provider.profile} onClick={() => onChoose(provider)}>
        {plain(provider.title)}
      </button>
    </li>
  )
  return (
    <>
      <p>{words.connect.choose}</p>
      <input
        ref={field}
        type="search"
        className="connect__field"
        data-testid="provider-search"
        aria-label={words.connect.search}
        placeholder={words.connect.search}
        value={query}
        onChange={(event) => setQuery(event.target.value)}
      />
      <div className="connect__providers" tabIndex={-1}>
        {larger.length > 0 && (
          <section aria-label={words.connect.inside}>
            <h3 className="connect__group">{words.connect.inside}</h3>
            <ul className="connect__grid">
              {larger.map((model) => (
                <li key={model.name}>
                  <button type="button" className="connect__provider" data-testid="larger-model" data-name={model.name} onClick={() => onChooseLarger(model)}>
                    {modelName(model)}
                  </button>
                </li>
              ))}
            </ul>
          </section>
        )}
        {groups.map(({ name, rows }) => rows.length > 0 && (
          <section key={name} aria-label={name}>
            <h3 className="connect__group">{name}</h3>
            {name === words.connect.more && <p className="connect__note">{words.connect.moreNote}</p>}
            <ul className="connect__grid">{rows.map(item)}</ul>
          </section>
        ))}
        {rows.length === 0 && larger.length === 0 && (
          <>
            <p className="connect__note" role="status">{words.connect.noProvider}</p>
            {anyServer && <ul className="connect__grid">{item(anyServer)}</ul>}
          </>
        )}
      </div>
      {onBack && (
        <div className="dialog__actions">
          <button type="button" className="button" onClick={onBack}>{words.connect.back}</button>
        </div>
      )}
    </>
  )
}
