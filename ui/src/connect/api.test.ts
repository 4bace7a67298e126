import { expect, test } from "vitest"

import { ApiError } from "../api/client"
import { matchingProviders, freeName, sentence } from "./api"
import type { Provider } from "./api"

const provider = (profile: string, title: string, ...names: string[]): Provider => ({
  profile,
  title,
  names,
  base_url: "",
  key: "required",
  local: false,
  common: false,
})

test("a name is free, and that of the provider where possible", () => {
  expect(freeName("ollama", new Set())).toBe("ollama")
  expect(freeName("ollama", new Set(["ollama", "ollama-2"]))).toBe("ollama-3")
})

test("providers are found by any of their names, in any case and order", () => {
  const rows = [provider("kimi", "Moonshot Kimi", "moonshotai"), provider("xai", "xAI", "grok"), provider("zai", "Z.ai GLM")]
  const names = (query: string) => matchingProviders(rows, query).map(({ profile }) => profile)
  expect(names("")).toEqual(["kimi", "xai", "zai"])
  expect(names("GROK")).toEqual(["xai"])
  expect(names("kimi moon")).toEqual(["kimi"])
  expect(names("nobody")).toEqual([])
  const known = [provider("anthropic", "Anthropic"), provider("openai", "OpenAI"), { ...provider("ollama", "Ollama"), local: true }, provider("openai-compat", "Any")]
  for (const [query, found] of [["claude", ["anthropic"]], ["ChatGPT", ["openai"]], ["local", ["ollama", "openai-compat"]], ["custom", ["openai-compat"]]] as const) {
    expect(matchingProviders(known, query).map(({ profile }) => profile)).toEqual(found)
  }
})

test("a message for people does not begin with the name of a field", () => {
  expect(sentence(new ApiError("base_url: enter the address", 400, "invalid_value", "base_url"), "")).toBe("Enter the address")
  for (const text of ["vLLM needs a key", "'foo' is not an address", "localhost:8000 is taken", "gpu.lan is taken"]) {
    expect(sentence(new ApiError(text, 400), "")).toBe(text)
  }
  expect(sentence(new ApiError("name: x", 400, "invalid_value", "base_url"), "")).toBe("name: x")
  expect(sentence(new TypeError("x"), "It failed.")).toBe("It failed.")
})
