// What was chosen for the next question: model, effort, view. It is kept in the browser.
import { useCallback, useState } from "react"

import type { Effort, ModelInfo, Models, View } from "./api/types"

export interface Choices {
  model?: string
  effort?: Effort
  view?: View
}

const STORAGE_KEY = "pellucid.choices"

function readStored(): Choices {
  try {
    const read: unknown = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}")
    return typeof read === "object" && read !== null ? (read as Choices) : {}
  } catch {
    return {}
  }
}

export function useChoices(): [Choices, (change: { [Name in keyof Choices]?: Choices[Name] | undefined }) => void] {
  const [choices, setChoices] = useState(readStored)
  const change = useCallback((changes: { [Name in keyof Choices]?: Choices[Name] | undefined }) => {
    setChoices((now) => {
      const next = Object.fromEntries(Object.entries({ ...now, ...changes }).filter(([, value]) => value !== undefined)) as Choices
      try {
        localStorage.setItem(STORAGE_KEY, JSON.stringify(next))
      } catch {
        // A browser that keeps nothing keeps no choices.
      }
      return next
    })
  }, [])
  return [choices, change]
}

/** The model that is asked: the one that was chosen, where it is still there, else the server's own choice. */
export const chosenModel = (models: readonly ModelInfo[], id: string | undefined): ModelInfo | undefined =>
  models.find((one) => one.id === id) ?? models.find((one) => one.default) ?? models[0]

/** What of the choices the server can do; the rest is left to it. */
export function supportedChoices(choices: Choices, models: Models | null): Choices {
  if (!models) return {}
  const model = chosenModel(models.data, choices.model)
  return {
    ...(model && model.id === choices.model && { model: model.id }),
    ...(choices.effort && model?.efforts.includes(choices.effort) && { effort: choices.effort }),
    ...(choices.view && models.views.includes(choices.view) && { view: choices.view }),
  }
}
