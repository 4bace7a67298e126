// A tool in a line for people: “Searched the web for tides”, “Ran code”, “Called get_weather · Paris”.
import type { Json } from "../api/types"
import { webHref } from "../text/links"
import { words } from "../words"

export interface ToolLine {
  label: string
  /** What it was about; the label ends where it begins. */
  detail: string
  /** The detail is code or an address: left to right. */
  isCode: boolean
}

export interface LineSource {
  name: string
  /** The arguments as JSON values, or their text, of which the end may be missing. */
  args: Json | undefined
  running: boolean
}

type Fields = Readonly<Record<string, Json>>

/** The maximum length of a detail, and the number of arguments in it. */
const MAX_DETAIL = 200
const MAX_VALUES = 3

/** The name, with the sign in front of it, of a JSON object's fields, also at its cut-off end. */
const FIELD = /"((?:[^"\\]|\\.){1,80})"\s*:\s*(?:"((?:[^"\\]|\\.)*)("|$)|(-?\d[\d.eE+-]*|true|false))/g

/** The fields of the arguments; of a text that is not (yet) valid JSON, those with a text or a number. */
function fieldsOf(args: Json | undefined): Fields {
  if (typeof args === "string") {
    if (!args.trimStart().startsWith("{")) return {}
    try {
      return fieldsOf(JSON.parse(args) as Json)
    } catch {
      return Object.fromEntries(Array.from(args.slice(0, 2_000).matchAll(FIELD), ([, name = "", text, , literal]) => [name, text === undefined ? (literal ?? "") : unescape(text)]))
    }
  }
  return typeof args === "object" && args !== null && !Array.isArray(args) ? args : {}
}

function unescape(text: string): string {
  try {
    return JSON.parse(`"${text.replace(/\\(?:u[\da-fA-F]{0,3})?$/, "")}"`) as string
  } catch {
    return text
  }
}

const short = (text: string) => text.slice(0, 2 * MAX_DETAIL).replace(/\s+/g, " ").trim().slice(0, MAX_DETAIL)

/** A text, or the texts of a list. */
function textOf(value: Json | undefined): string {
  if (typeof value === "string") return short(value)
  if (typeof value === "number" || typeof value === "boolean") return `${value}`
  if (!Array.isArray(value)) return ""
  return short(value.slice(0, 20).map(textOf).filter((one) => one !== "").join(", "))
}

/** The first values of the arguments; if there are several, with their names. */
function valuesOf(args: Json | undefined): string {
  const fields = Object.entries(fieldsOf(args))
    .map(([name, value]) => [name, textOf(value)])
    .filter(([, text]) => text !== "")
  const texts = fields.map(([name, text]) => (fields.length > 1 ? `${name}: ${text}` : `${text}`))
  if (texts.length > 0) return short(texts.slice(0, MAX_VALUES).join(", "))
  return typeof args === "string" && !/^\s*[{[]/.test(args) ? short(args) : ""
}

/** An address without its protocol. */
function pageOf(address: string): string {
  const href = webHref(address)
  return href === null ? short(address) : short(href.replace(/^https?:\/\/(?:www\.)?/, "").replace(/\/$/, ""))
}

/** The provider's tools by their names; all others are called. */
const KINDS: Readonly<Record<string, (fields: Fields) => [word: keyof typeof words.tools.lines, detail: string, isCode?: boolean]>> = {
  web_search(fields) {
    const query = textOf(fields["query"]) || textOf(fields["queries"])
    const url = textOf(fields["url"])
    if (fields["type"] === "open_page") return ["open", pageOf(url), true]
    if (fields["type"] === "find_in_page" || fields["type"] === "find") return ["find", [textOf(fields["pattern"]), pageOf(url)].filter(Boolean).join(" · ")]
    return query === "" ? ["search", ""] : ["searchFor", query]
  },
  web_fetch: (fields) => ["open", pageOf(textOf(fields["url"]) || textOf(fields["urls"])), true],
  file_search(fields) {
    const query = textOf(fields["query"]) || textOf(fields["queries"])
    return query === "" ? ["files", ""] : ["filesFor", query]
  },
  code_execution: (fields) => ["code", codeLine(fields), true],
  code_interpreter: (fields) => ["code", codeLine(fields), true],
  image_generation: (fields) => ["image", textOf(fields["prompt"]) || textOf(fields["revised_prompt"])],
}

/** The code of a call, if it has any. */
export function codeOf(args: Json | undefined): string {
  const fields = fieldsOf(args)
  const code = fields["code"] ?? fields["command"] ?? fields["input"]
  return typeof code === "string" ? code : ""
}

const codeLine = (fields: Fields) => short((codeOf({ ...fields }).split("\n").find((line) => line.trim() !== "") ?? "").slice(0, MAX_DETAIL))

export function toolLine({ name, args, running }: LineSource): ToolLine {
  const tense = running ? 0 : 1
  const kind = Object.hasOwn(KINDS, name) ? KINDS[name] : undefined
  if (kind) {
    const [word, detail, isCode = false] = kind(fieldsOf(args))
    return { label: words.tools.lines[word][tense], detail, isCode }
  }
  const server = /^mcp_server:(.*)$/s.exec(name)?.[1]
  if (server === undefined) return { label: words.tools.called[tense](name), detail: valuesOf(args), isCode: false }
  const fields = fieldsOf(args)
  if (fields["action"] === "list_tools") return { label: words.tools.listed[tense](server), detail: "", isCode: false }
  const tool = textOf(fields["tool_name"])
  return { label: words.tools.calledOn[tense](tool || name, server), detail: valuesOf(fields["tool_args"]), isCode: false }
}

const MAX_OUTPUT = 4_000

/** The text that code wrote, in the forms of OpenAI (`logs`), Anthropic (`stdout`, `stderr`) and Google (`output`). */
export function outputOf(result: Json | undefined): string {
  if (typeof result !== "object" || result === null) return ""
  if (Array.isArray(result)) return result.slice(0, 20).map(outputOf).filter((one) => one !== "").join("\n")
  const texts = ["logs", "stdout", "stderr", "output"].flatMap((field) => result[field] ?? []).filter((one) => typeof one === "string" && one.trim() !== "")
  return texts.join("\n").trimEnd().slice(0, MAX_OUTPUT)
}
