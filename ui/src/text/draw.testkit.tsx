// Renders a component into the test's document.
import type { ReactNode } from "react"
import { flushSync } from "react-dom"
import { createRoot } from "react-dom/client"

export function draw(node: ReactNode): { box: HTMLElement; again: (node: ReactNode) => void } {
  const box = document.createElement("div")
  document.body.append(box)
  const root = createRoot(box)
  const again = (next: ReactNode) => flushSync(() => root.render(next))
  again(node)
  return { box, again }
}
