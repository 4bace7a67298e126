import { act } from "react"
import { afterEach, expect, test, vi } from "vitest"

import { draw } from "../text/draw.testkit"
import { words } from "../words"
import type { Provider } from "./api"
import { ConnectForm } from "./ConnectForm"

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true })

const PROVIDER: Provider = { profile: "vllm", title: "vLLM", names: [], base_url: "http://127.0.0.1:8000/v1", key: "optional", local: true, common: false }

afterEach(() => vi.unstubAllGlobals())

test("a message belongs to the address and the key that were tested", async () => {
  const tested: unknown[] = []
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { base_url } = JSON.parse(String(init.body)) as { base_url: string }
    tested.push(base_url)
    if (base_url.startsWith("nowhere")) return Response.json({ error: { message: "base_url: nowhere", param: "base_url" } }, { status: 400 })
    return Response.json({ ok: true, models: ["a", "b"], has_list: true, base_url: `${base_url.replace(/\/$/, "")}/v1` })
  })
  const { box } = draw(<ConnectForm provider={PROVIDER} name="vllm" onBack={() => undefined} onSaved={() => undefined} />)
  const element = (testId: string) => box.querySelector<HTMLElement>(`[data-testid="${testId}"]`)
  const message = () => element("connect-message")?.textContent ?? null
  const write = (testId: string, text: string) =>
    act(async () => {
      const field = element(testId) as HTMLInputElement
      Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")?.set?.call(field, text)
      field.dispatchEvent(new Event("input", { bubbles: true }))
    })
  const press = async () => {
    await act(async () => element("connect-test")?.click())
    await act(async () => undefined)
  }
  await write("connect-address", "http://one/")
  await press()
  expect((element("connect-address") as HTMLInputElement).value).toBe("http://one/v1")
  expect(message()).toBe(words.connect.lists(2))
  await write("connect-key", "secret")
  expect(message()).toBeNull()
  await write("connect-key", "")
  expect(message()).toBe(words.connect.lists(2))
  await write("connect-address", "nowhere")
  expect(message()).toBeNull()
  await press()
  expect(message()).toBe("nowhere")
  // The models of the other address are not there.
  expect(box.querySelectorAll("[type=checkbox]")).toHaveLength(0)
  expect(tested).toEqual(["http://one/", "nowhere"])
})
