import { act } from "react"
import { createRoot } from "react-dom/client"
import { afterEach, expect, test, vi } from "vitest"

import { App } from "./App"

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true })

afterEach(() => {
  vi.unstubAllGlobals()
  history.replaceState(null, "", "/")
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
