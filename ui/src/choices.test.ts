import { expect, test } from "vitest"

import type { ModelInfo } from "./api/types"
import { chosenModel, possible } from "./choices"

const model = (id: string, more: Partial<ModelInfo> = {}): ModelInfo => ({ id, efforts: ["low", "high"], view: "raw", ...more })
const models = [model("a"), model("b", { default: true, efforts: ["low"] })]

test("the model that was chosen is asked; one that is gone is not, and the server's own choice is", () => {
  expect(chosenModel(models, "a")?.id).toBe("a")
  expect(chosenModel(models, "gone")?.id).toBe("b")
  expect(chosenModel([model("only")], undefined)?.id).toBe("only")
  expect(chosenModel([], "a")).toBeUndefined()
})

test("only what the server can do is sent: an effort that the model hears, a view that is open, a model that is there", () => {
  const data = { data: models, views: ["summary" as const, "hidden" as const] }
  expect(possible({ model: "a", effort: "high", view: "raw" }, data)).toEqual({ model: "a", effort: "high" })
  expect(possible({ model: "gone", effort: "high", view: "hidden" }, data)).toEqual({ view: "hidden" })
  expect(possible({ effort: "low" }, data)).toEqual({ effort: "low" })
  expect(possible({ model: "a" }, null)).toEqual({})
})
