// What an opened tool shows: arguments as the model wrote them, and results of any length.
import { act } from "react"
import { expect, test } from "vitest"

import type { Json, ToolSegment } from "../api/types"
import { draw } from "../text/draw.testkit"
import { ToolBody } from "./ToolBody"

const segment = (fields: Partial<ToolSegment>): ToolSegment => ({
  id: "fc", type: "tool_call", call_id: "c", name: "look", args: {}, status: "completed", created_at: 0, sequence_number: 0, output_index: 0, ...fields,
})
const texts = (box: HTMLElement) => [...box.querySelectorAll("pre.tool__text")].map((element) => element.textContent)

test("the arguments are as the model wrote them", () => {
  const { box } = draw(<ToolBody segment={segment({ args: { a: 1, b: [1] }, args_text: '{"a":1.0,\t"b": [ 1 ]}', result: { c: 2 } })} />)
  expect(texts(box)).toEqual(['{"a":1.0,\t"b": [ 1 ]}', '{\n  "c": 2\n}'])
})

test("a long result is bounded, and shown whole on request", () => {
  const result: Json = Array.from({ length: 400 }, (_, n) => ({ n }))
  const whole = JSON.stringify(result, null, 2)
  const { box } = draw(<ToolBody segment={segment({ args: "x", result })} />)
  expect(texts(box)[1]?.split("\n")).toHaveLength(30)
  const more = box.querySelector<HTMLElement>('[data-testid="show-all"]')
  expect(more?.textContent).toContain("characters")
  act(() => more?.click())
  expect(texts(box)[1]).toBe(whole)
  expect(box.querySelector('[data-testid="show-all"]')).toBeNull()
})

test("a search shows its pages, and code what it wrote", () => {
  const { box } = draw(<ToolBody segment={segment({ type: "web_search_call", name: "web_search", args: { query: "tides" }, result: [{ url: "https://a.org", title: "A" }] })} />)
  expect(box.querySelector("a")?.getAttribute("href")).toBe("https://a.org/")
  const code = draw(<ToolBody segment={segment({ type: "code_interpreter_call", name: "code_execution", args: { code: "print(1)" }, result: { logs: ["1"] } })} />).box
  expect(code.querySelector(".code pre")?.textContent).toBe("print(1)")
  expect(texts(code)[0]).toBe("1")
})
