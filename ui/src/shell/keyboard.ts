// What a key means in a field of text.

import type { KeyboardEvent } from "react"

/** Whether it is Enter, and neither a line break nor the end of what an input method composes. */
export function isSubmitKey(event: KeyboardEvent): boolean {
  // 229: an input method of a browser that does not say isComposing on the key that ends it.
  return event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing && event.keyCode !== 229
}
