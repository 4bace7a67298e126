// The settings for the next question (model, effort, view), stored in the browser.
import { useCallback, useState } from "react"

import type { Effort, ModelInfo, Models, View } from "../api/types"
import { browserStorage } from "../storage"

export interface Choices {
  model?: string
  effort?: Effort
  view?: View
}

const STORAGE_KEY = "pellucid.choices"

function readStored(): Choices {
  const read = browserStorage.getJson(STORAGE_KEY)
  return typeof read === "object" && read !== null ? (read as Choices) : {}
}

export function useChoices(): [Choices, (change: { [Name in keyof Choices]?: Choices[Name] | undefined }) => void] {
  const [choices, setChoices] = useState(readStored)
  const change = useCallback((changes: { [Name in keyof Choices]?: Choices[Name] | undefined }) => {
    setChoices((now) => {
      const next = Object.fromEntries(Object.entries({ ...now, ...changes }).filter(([, value]) => value !== undefined)) as Choices
      browserStorage.setJson(STORAGE_KEY, next)
      return next
    })
  }, [])
  return [choices, change]
}

/** The model to ask: the chosen one if it still exists, otherwise the server's default. */
export const chosenModel = (models: readonly ModelInfo[], id: string | undefined): ModelInfo | undefined =>
  models.find((one) => one.id === id) ?? models.find((one) => one.default) ?? models[0]

/** The chosen model, if it does not exist any more. */
export const lostModel = (models: readonly ModelInfo[], id: string | undefined): string | undefined =>
  id !== undefined && models.length > 0 && !models.some((one) => one.id === id) ? id : undefined

/**
 * The choices that the server supports; the others are omitted, and the server decides. A chosen model is always named:
 * no other one answers in its place.
 */
export function supportedChoices(choices: Choices, models: Pick<Models, "data" | "views"> | null): Choices {
  if (!models) return choices.model === undefined ? {} : { model: choices.model }
  const model = chosenModel(models.data, choices.model)
  return {
    ...(choices.model !== undefined && { model: choices.model }),
    ...(choices.effort && model?.efforts.includes(choices.effort) && { effort: choices.effort }),
    ...(choices.view && models.views.includes(choices.view) && { view: choices.view }),
  }
}
