// Tools in a line for people, from the arguments of all providers, also while they are written.
import { describe, expect, test } from "vitest"

import type { Json } from "../api/types"
import { sourcesIn } from "./citations"
import { codeOf, outputOf, toolLine } from "./toolLine"

const line = (name: string, args: Json, running = false) => {
  const { label, detail } = toolLine({ name, args, running })
  return detail === "" ? label : `${label} | ${detail}`
}

describe("the line of a tool", () => {
  test("of a search, in the forms of the providers", () => {
    expect(line("web_search", { type: "search", query: "tides" })).toBe("Searched the web for | tides")
    expect(line("web_search", { queries: ["high tide", "moon"] })).toBe("Searched the web for | high tide, moon")
    expect(line("web_search", { query: "tides" }, true)).toBe("Searching the web for | tides")
    expect(line("web_search", null, true)).toBe("Searching the web")
    expect(line("web_search", { type: "open_page", url: "https://www.e.org/tides/" })).toBe("Opened | e.org/tides")
    expect(line("web_search", { type: "find_in_page", pattern: "noon", url: "https://e.org" })).toBe("Looked on a page for | noon · e.org")
    expect(line("web_fetch", { urls: ["https://e.org/a"] })).toBe("Opened | e.org/a")
    expect(line("file_search", { queries: ["tides"] })).toBe("Searched files for | tides")
  })

  test("of code and images", () => {
    expect(line("code_execution", { code: "\nprint(2 ** 10)\nx" })).toBe("Ran code | print(2 ** 10)")
    expect(line("code_execution", '{"code": "import ma', true)).toBe("Running code | import ma")
    expect(line("code_execution", { command: "ls -l" })).toBe("Ran code | ls -l")
    expect(line("image_generation", null)).toBe("Made an image")
    expect(codeOf({ code: "a\nb" })).toBe("a\nb")
    expect(outputOf({ status: "completed", logs: ["1024\n"] })).toBe("1024")
    expect(outputOf({ type: "x", stdout: "a\n", stderr: "b", return_code: 0 })).toBe("a\n\nb")
  })

  test("of functions and of other servers' tools", () => {
    expect(line("get_weather", { city: "Paris" })).toBe("Called get_weather | Paris")
    expect(line("get_weather", { city: "Paris", days: 3, exact: true, more: "no" })).toBe("Called get_weather | city: Paris, days: 3, exact: true")
    expect(line("look", {})).toBe("Called look")
    expect(line("look", "just text")).toBe("Called look | just text")
    expect(line("mcp_server:github", { action: "call_tool", tool_name: "find_issues", tool_args: '{"q": "crash"}' })).toBe("Called find_issues of github | crash")
    expect(line("mcp_server:github", { action: "list_tools" })).toBe("Asked github for its tools")
    for (const name of ["constructor", "__proto__", "toString"]) expect(line(name, {})).toBe(`Called ${name}`)
  })

  test("while the arguments are written, at every character", () => {
    const args = '{"city": "Zür\\u0069ch \\"Nord\\"", "days": 12, "list": ["a", {"deep": "b"}]}'
    for (let end = 0; end < args.length; end++) {
      const { detail } = toolLine({ name: "get_weather", args: args.slice(0, end), running: true })
      expect(detail, args.slice(0, end)).not.toMatch(/[{}\\]|"city/)
    }
    expect(line("get_weather", args.slice(0, 15), true)).toBe("Calling get_weather | Zür")
  })

  test("is short and on one line, whatever the arguments are", () => {
    const { detail } = toolLine({ name: "f", args: { a: "line\n\nline ".repeat(10_000), b: { c: 1 } }, running: false })
    expect(detail.length).toBeLessThanOrEqual(200)
    expect(detail).not.toContain("\n")
  })
})

test("the sources of a search are found in results of any shape, each once", () => {
  const hosts = (result: Json) => sourcesIn(result).map((source) => source.host)
  expect(hosts({ sources: [{ type: "url", url: "https://a.org" }, { url: "https://a.org" }] })).toEqual(["a.org"])
  expect(hosts([{ type: "web_search_result", url: "https://a.org", title: "A" }, { uri: "https://b.org", domain: "b.org" }])).toEqual(["a.org", "b.org"])
  expect(hosts([{ retrieved_url: "https://c.org" }, { url: "javascript:alert(1)" }, "https://d.org"])).toEqual(["c.org"])
  expect(sourcesIn(undefined)).toEqual([])
  let deep: Json = { url: "https://deep.org" }
  for (let n = 0; n < 50; n++) deep = [deep]
  expect(hosts(deep)).toEqual([])
})
