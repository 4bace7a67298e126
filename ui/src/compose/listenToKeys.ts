// Runs the actions of keys. What a button of the page does already, its key does by that button.
import { actionOf, beginsQuestion, singleKeys } from "./shortcuts"
import type { Action } from "./shortcuts"

const last = (testId: string) => [...document.querySelectorAll<HTMLElement>(`[data-testid="${testId}"]`)].at(-1)

const BY_BUTTON: Actions = {
  reasoning: () => last("show-reasoning")?.click(),
  copy: () => last("copy")?.querySelector("button")?.click(),
  search: () => {
    const field = last("search")
    if (field) return field.focus()
    // On narrow screens the list is a drawer.
    last("menu")?.click()
    requestAnimationFrame(() => last("search")?.focus())
  },
}

export type Actions = Partial<Record<Action, () => void>>

export function listenToKeys(actions: { readonly current: Actions }, signal: AbortSignal): void {
  let pressed: Node | null = null
  const press = ({ target }: Event) => void (pressed = target instanceof Node ? target : null)
  const down = (event: KeyboardEvent) => {
    // The character goes to the field, which has the focus then.
    if (beginsQuestion(event, pressed)) return actions.current.write?.()
    const action = actionOf(event, singleKeys())
    if (action === undefined) return
    event.preventDefault()
    const perform = actions.current[action] ?? BY_BUTTON[action]
    perform?.()
  }
  addEventListener("pointerdown", press, { signal, capture: true })
  addEventListener("keydown", down, { signal })
}
