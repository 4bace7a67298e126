// Renders components into the test's document. After each test they are unmounted, so that no work of React is left
// when the document of the test file goes away.
import { act } from "react"
import type { ReactNode } from "react"
import { createRoot } from "react-dom/client"
import type { Root } from "react-dom/client"
import { afterEach, vi } from "vitest"

Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true })

const roots: Root[] = []

afterEach(() => {
  for (const root of roots.splice(0)) act(() => root.unmount())
  document.body.textContent = ""
})

export function draw(node: ReactNode): { box: HTMLElement; again: (node: ReactNode) => void } {
  const box = document.createElement("div")
  document.body.append(box)
  const root = createRoot(box)
  roots.push(root)
  const again = (next: ReactNode) => act(() => root.render(next))
  again(node)
  return { box, again }
}

/** Waits until the check passes, and lets React draw what timers and frames bring meanwhile. */
export const settled = (check: () => void) =>
  vi.waitFor(async () => {
    await act(async () => new Promise((done) => setTimeout(done, 5)))
    check()
  }, { timeout: 10_000 })
