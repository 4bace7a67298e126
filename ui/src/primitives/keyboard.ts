// Keyboard handling in text fields.

import type { KeyboardEvent } from "react"

/** Whether the key submits: Enter, without Shift, and not the end of a composition of an input method. */
export function isSubmitKey(event: KeyboardEvent): boolean {
  // 229: some browsers do not set isComposing on the key that ends a composition.
  return event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing && event.keyCode !== 229
}
