import { expect, test } from "vitest"

import { draw } from "../text/draw.testkit"
import { words } from "../words"
import type { LargerModel } from "./api"
import { LargerModelGuide } from "./LargerModelGuide"
import { ProviderChoice } from "./ProviderChoice"

const MODEL: LargerModel = {
  name: "qwen3-1.7b",
  title: "Qwen3 1.7B (Q8_0)",
  note: "Better answers.",
  bytes: 1_834_426_016,
  memory_bytes: 3_300_000_000,
  licence: "Apache-2.0",
  licence_url: "https://example.com/licence",
  cached: false,
  command: "pellucid serve --local-model qwen3-1.7b",
}

const guide = (changes: Partial<LargerModel>) => draw(<LargerModelGuide model={{ ...MODEL, ...changes }} onBack={() => undefined} />).box
const commands = (box: HTMLElement) => [...box.querySelectorAll("code")].map(({ textContent }) => textContent)

test("a larger model says what it costs, and the command that fetches and uses it", () => {
  const box = guide({})
  for (const fact of ["1.8 GB to download", "3.3 GB of memory", "Apache-2.0", "Better answers."]) expect(box.textContent).toContain(fact)
  expect(commands(box)).toEqual([MODEL.command])
  expect(box.querySelector("a")?.href).toBe(MODEL.licence_url)
  expect(box.textContent).toContain(words.connect.start)
  expect(guide({ cached: true }).textContent).toContain(words.connect.fetched)
})

test("without the engine, its installation comes first", () => {
  const install = "pip install 'pellucid[local]'"
  expect(commands(guide({ install }))).toEqual([install, MODEL.command])
})

test("larger models are offered before the providers, and found by their names", () => {
  const chosen: string[] = []
  const offered = (larger_models: LargerModel[]) =>
    draw(<ProviderChoice data={[]} larger_models={larger_models} onChoose={() => undefined} onChooseLarger={({ name }) => chosen.push(name)} />).box
  const button = offered([MODEL]).querySelector<HTMLElement>("[data-testid=larger-model]")
  expect(button?.textContent).toBe("Qwen3 1.7B (1.8 GB)")
  button?.click()
  expect(chosen).toEqual(["qwen3-1.7b"])
  expect(offered([]).querySelector("[data-testid=larger-model]")).toBeNull()
})
