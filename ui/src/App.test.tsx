import { act } from "react"
import { createRoot } from "react-dom/client"
import { afterEach, expect, test, vi } from "vitest"

import { client, setOwner } from "./api/client"
import { App } from "./App"

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true })

afterEach(() => {
  vi.unstubAllGlobals()
  history.replaceState(null, "", "/")
})

test("a page of one owner shows nothing of another, who signed in in another tab", async () => {
  const replaced = vi.spyOn(location, "replace").mockImplementation(() => undefined)
  let owner = "ann"
  const sent: [string, string | null][] = []
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => {
    const mark = new Headers(init.headers).get("pellucid-owner")
    sent.push([path, mark])
    if (path === "/api/session") return Promise.resolve(Response.json({ signed_in: true, needed: true, ways: ["key"], owner }))
    if (mark !== owner) return Promise.resolve(Response.json({ error: { message: "no", code: "another_owner" } }, { status: 409 }))
    return new Promise(() => undefined)
  })
  const root = createRoot(document.createElement("div"))
  await act(async () => root.render(<App />))
  await vi.waitFor(() => expect(sent).toContainEqual(["/api/models", "ann"]))
  expect(replaced).not.toHaveBeenCalled()
  owner = "bob"
  await client.models().catch(() => undefined)
  expect(replaced).toHaveBeenLastCalledWith("/")
  // Without a request: when the person comes back to the tab.
  await act(async () => void document.dispatchEvent(new Event("visibilitychange")))
  await vi.waitFor(() => expect(replaced).toHaveBeenCalledTimes(2))
  await act(async () => root.unmount())
  setOwner(undefined)
  replaced.mockRestore()
})

test("the sign-in page shows no text from the address", async () => {
  history.replaceState(null, "", "/c/chat_1?error=Call+us+and+say+your+key")
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ signed_in: false, needed: true, ways: ["key", "oidc"] })))
  const box = document.createElement("div")
  const root = createRoot(box)
  await act(async () => root.render(<App />))
  expect(box.querySelector("[data-testid=sign-in]")).not.toBeNull()
  expect(box.textContent).not.toContain("Call us")
  expect(box.querySelector("[data-testid=sign-in-oidc]")?.getAttribute("href")).toBe("/api/session/oidc?next=%2Fc%2Fchat_1")
  await act(async () => root.unmount())
})
