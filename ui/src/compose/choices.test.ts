import { expect, test } from "vitest"

import type { ModelInfo } from "../api/types"
import { choicesOf, chosenModel, lostModel, supportedChoices } from "./choices"

const model = (id: string, more: Partial<ModelInfo> = {}): ModelInfo => ({ id, efforts: ["low", "high"], view: "raw", ...more })
const models = [model("a"), model("b", { default: true, efforts: ["low"] })]

test("the chosen model is used if it exists, otherwise the server's default", () => {
  expect(chosenModel(models, "a")?.id).toBe("a")
  expect(chosenModel(models, "gone")?.id).toBe("b")
  expect(chosenModel([model("only")], undefined)?.id).toBe("only")
  expect(chosenModel([], "a")).toBeUndefined()
})

test("a chosen model that does not exist any more is lost, unless there is none at all", () => {
  expect(lostModel(models, "gone")).toBe("gone")
  for (const [list, id] of [[models, "a"], [models, undefined], [[], "gone"]] as const) expect(lostModel(list, id)).toBeUndefined()
})

test("a chosen model is always named; of the rest, only supported choices are sent: its efforts, allowed views", () => {
  const data = { data: models, views: ["summary" as const, "hidden" as const] }
  expect(supportedChoices({ model: "a", effort: "high", view: "raw" }, data)).toEqual({ model: "a", effort: "high" })
  expect(supportedChoices({ model: "gone", effort: "high", view: "hidden" }, data)).toEqual({ model: "gone", view: "hidden" })
  expect(supportedChoices({ effort: "low" }, data)).toEqual({ effort: "low" })
  expect(supportedChoices({ model: "a", effort: "low" }, null)).toEqual({ model: "a" })
  expect(supportedChoices({}, null)).toEqual({})
})

test("a chat goes on with the model and the effort of its last answer, if that model still exists", () => {
  const stored = { model: "b", effort: "low" as const, view: "raw" as const }
  expect(choicesOf({ model: "a", effort_level: "high" }, stored, models)).toEqual({ model: "a", effort: "high", view: "raw" })
  // It was asked with the model's own effort, or with one that cannot be chosen.
  expect(choicesOf({ model: "a" }, stored, models)).toEqual({ model: "a", view: "raw" })
  expect(choicesOf({ model: "b", effort_level: "high" }, stored, models)).toEqual({ model: "b", view: "raw" })
  for (const last of [undefined, { model: "gone", effort_level: "high" }]) expect(choicesOf(last, stored, models)).toBe(stored)
})
