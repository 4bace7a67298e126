// The settings for the next question (model, effort, view). The browser stores the last ones, for new chats; a chat goes
// on with the model and effort of its last answer.
import { useCallback, useState } from "react"

import type { Answer, Effort, ModelInfo, Models, View } from "../api/types"
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

/** The choices in a chat: the model and the effort of its last answer, if that model still exists. */
export function choicesOf(last: Pick<Answer, "model" | "effort_level"> | undefined, choices: Choices, models: readonly ModelInfo[]): Choices {
  const model = models.find((one) => one.id === last?.model)
  if (!last || !model) return choices
  const { effort: _, ...rest } = choices
  const effort = model.efforts.find((one) => one === last.effort_level)
  return { ...rest, model: model.id, ...(effort && { effort }) }
}

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
