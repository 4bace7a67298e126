// The keys of the chat. Single keys work only while nobody types, in no dialog or menu, without modifiers; they can be
// switched off. Who has just pressed something with the mouse, or is in the composer, is about to write: what they type
// is the question. No key of a browser is used: "/" and "'" search in Firefox, and keys with Control or Alt are theirs, those
// of the system, or characters of some keyboard.

import { browserStorage } from "../storage"

export type Action = "write" | "new" | "search" | "attach" | "reasoning" | "copy" | "instructions" | "tools" | "help"

export const KEYS: Readonly<Record<string, Action>> = {
  m: "write",
  n: "new",
  s: "search",
  u: "attach",
  r: "reasoning",
  c: "copy",
  i: "instructions",
  t: "tools",
  "?": "help",
}

const TYPING = ["input", "textarea", "select", "[contenteditable]", "[role=menu]", "[role=dialog]", "dialog"].join()

type Key = Pick<KeyboardEvent, "key" | "ctrlKey" | "altKey" | "metaKey" | "defaultPrevented" | "isComposing" | "repeat" | "target">

export const isTyping = (target: EventTarget | null) => target instanceof Element && target.closest(TYPING) !== null

const isFree = (event: Key) =>
  !(event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented || event.isComposing || event.repeat) &&
  !isTyping(event.target) &&
  document.querySelector("dialog[open]") === null

/** Whether a key begins a question: a character, in the composer or on what was pressed last. A space presses a button. */
export function beginsQuestion(event: Key, pressed: Node | null): boolean {
  const { target, key } = event
  if (!(target instanceof Element) || target === document.body || [...key].length !== 1 || key === " ") return false
  return isFree(event) && (target.closest("[data-composer]") !== null || target.contains(pressed))
}

/** The action of a key; undefined if it has none here. */
export function actionOf(event: Key, singleKeys: boolean): Action | undefined {
  if (!isFree(event)) return undefined
  const key = event.key.toLowerCase()
  return singleKeys && Object.hasOwn(KEYS, key) ? KEYS[key] : undefined
}

const STORAGE_KEY = "pellucid.single-keys"

export const singleKeys = (): boolean => browserStorage.get(STORAGE_KEY) !== "off"

export const setSingleKeys = (on: boolean): void => browserStorage.set(STORAGE_KEY, on ? null : "off")
