import { act } from "react"
import { afterEach, expect, test, vi } from "vitest"

import { draw } from "../text/draw.testkit"
import { words } from "../words"
import type { ConnectionInfo, Provider } from "./api"
import { ConnectForm } from "./ConnectForm"

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true })

const PROVIDER: Provider = { profile: "vllm", title: "vLLM", names: [], base_url: "http://127.0.0.1:8000/v1", key: "optional", local: true, common: false }

afterEach(() => vi.unstubAllGlobals())

/** A form that a test operates. */
function operate(provider: Provider) {
  const saved: ConnectionInfo[] = []
  const { box } = draw(<ConnectForm provider={provider} name="vllm" onBack={() => undefined} onSaved={(one) => saved.push(one)} />)
  const element = (testId: string) => box.querySelector<HTMLElement>(`[data-testid="${testId}"]`)
  return {
    box,
    saved,
    element,
    message: () => element("connect-message")?.textContent ?? null,
    write: (testId: string, text: string) =>
      act(async () => {
        const field = element(testId) as HTMLInputElement
        Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")?.set?.call(field, text)
        field.dispatchEvent(new Event("input", { bubbles: true }))
      }),
    press: async (testId: string) => {
      await act(async () => element(testId)?.click())
      await act(async () => undefined)
    },
  }
}

test("a message belongs to the address and the key that were tested", async () => {
  const tested: unknown[] = []
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { base_url } = JSON.parse(String(init.body)) as { base_url: string }
    tested.push(base_url)
    if (base_url.startsWith("nowhere")) return Response.json({ error: { message: "base_url: nowhere", param: "base_url" } }, { status: 400 })
    return Response.json({ ok: true, models: ["a", "b"], has_list: true, base_url: `${base_url.replace(/\/$/, "")}/v1` })
  })
  const { box, element, message, write, press } = operate(PROVIDER)
  await write("connect-address", "http://one/")
  await press("connect-test")
  expect((element("connect-address") as HTMLInputElement).value).toBe("http://one/v1")
  expect(message()).toBe(words.connect.lists(2))
  await write("connect-key", "secret")
  expect(message()).toBeNull()
  await write("connect-key", "")
  expect(message()).toBe(words.connect.lists(2))
  await write("connect-address", "nowhere")
  expect(message()).toBeNull()
  await press("connect-test")
  expect(message()).toBe("nowhere")
  // The models of the other address are not there.
  expect(box.querySelectorAll("[type=checkbox]")).toHaveLength(0)
  expect(tested).toEqual(["http://one/", "nowhere"])
})

test("an address of an own network is connected to after a question, and what was agreed to is for that address alone", async () => {
  const ADDRESS = "http://192.168.1.20:8000/v1"
  const sent: { path: string; base_url: string; private_addresses: string[] | null }[] = []
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    const body = JSON.parse(String(init.body)) as { base_url: string; private_addresses: string[] | null }
    sent.push({ path, base_url: body.base_url, private_addresses: body.private_addresses })
    if (init.method === "PUT" && body.private_addresses === null) return Response.json({ error: { message: "agree", code: "private_address" } }, { status: 400 })
    if (init.method === "PUT") return Response.json({ name: "vllm", served_as: ["a"] })
    if (body.private_addresses) return Response.json({ ok: true, models: ["a"], has_list: true, base_url: ADDRESS })
    const problem = { code: "private_address", message: "…", private_addresses: ["192.168.1.20"] }
    return Response.json({ ok: false, models: [], has_list: false, problem })
  })
  const form = operate(PROVIDER)
  await form.write("connect-address", "192.168.1.20:8000/v1")
  await form.press("connect-test")
  expect(form.message()).toContain(words.connect.ownNetwork("192.168.1.20"))
  expect(form.element("connect-message")?.getAttribute("role")).toBe("alert")
  // No: nothing was agreed to.
  await act(async () => [...form.box.querySelectorAll("button")].find(({ textContent }) => textContent === words.connect.disagree)?.click())
  expect(form.message()).toBeNull()
  await form.press("connect-test")
  expect(sent.every(({ private_addresses }) => private_addresses === null)).toBe(true)

  await form.press("connect-agree")
  expect(form.message()).toBe(words.connect.lists(1))
  await form.write("connect-address", "http://192.168.1.99:8000/v1")
  await form.press("connect-save")
  expect(sent.at(-2)).toEqual({ path: "/api/connections/vllm", base_url: "http://192.168.1.99:8000/v1", private_addresses: null })
  expect(form.message()).toContain(words.connect.ownNetwork("192.168.1.20"))
  expect(form.saved).toHaveLength(0)
  await form.press("connect-agree")
  await form.press("connect-save")
  expect(sent.at(-1)).toEqual({ path: "/api/connections/vllm", base_url: ADDRESS, private_addresses: ["192.168.1.20"] })
  expect(form.saved).toHaveLength(1)
})
