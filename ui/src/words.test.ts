// No part of the page has words of its own: everything that people read stands in words.ts.
// @vitest-environment node
import { readdirSync, readFileSync } from "node:fs"
import { parseSync } from "vite"
import { describe, expect, it } from "vitest"

const ROOT = new URL("./", import.meta.url).pathname

interface Node {
  type: string
  [field: string]: unknown
}

/** Attributes whose values are names for the program, not texts. */
const ATTRIBUTES = new Set([
  "accept", "align", "aria-controls", "aria-current", "aria-haspopup", "aria-live", "autoComplete", "className", "d", "data-testid", "dir", "enterKeyHint", "fill",
  "height", "href", "htmlFor", "id", "inputMode", "key", "method", "pattern", "preserveAspectRatio", "rel", "role", "side", "stroke", "strokeLinecap", "strokeLinejoin", "target",
  "testId", "type", "viewBox", "width",
])
/** `KeyboardEvent.key`, `Error.name`, values of ARIA, media queries. */
const NAMES = /^(true|false|\(\w+: \w+\)|Enter|Escape|Tab|Home|End|Delete|Backspace|Arrow\w+|Page\w+|\w+Error|Bearer )$/
/** Tables of names that only happen to look like words, and a program, which has one language. */
const TABLES = new Set(["text/formula.ts", "spaces/modelProgram.ts"])

const isNode = (value: unknown): value is Node => typeof value === "object" && value !== null && typeof (value as Node).type === "string"

/** Whether a string looks like a label (Xyz) or a sentence (two words), and not like a list of classes. */
const looksLikeWords = (text: string) => (/^\P{L}*\p{Lu}\p{Ll}/u.test(text) || /\p{L}{2,}[,.:;!?…]? \p{L}{2,}/u.test(text)) && !/[a-z](__|--)[a-z]/.test(text)

/** A form field's `name`; on other elements it may be a label. */
const isFieldName = (node: Node) => (node["name"] as { name: string }).name === "name" && isNode(node["value"]) && /^[a-z_]+$/.test(String(node["value"]["value"]))

/** The words that a source holds, with their lines. */
function wordsIn(source: string, name: string): string[] {
  const found: string[] = []
  const note = (node: Node, text: string) => found.push(`${name}:${source.slice(0, node["start"] as number).split("\n").length} ${text.trim()}`)
  const visit = (node: Node, attribute: boolean) => {
    let isAttribute = attribute
    switch (node.type) {
      case "ImportDeclaration":
      case "ImportExpression":
      case "ThrowStatement":
        return
      case "JSXElement": {
        const { name: element } = node["openingElement"] as { name: { name?: string } }
        // What stands in `code` is a command, and a command has one language.
        if (element.name === "code") return
        break
      }
      case "JSXAttribute":
        if (ATTRIBUTES.has((node["name"] as { name: string }).name) || isFieldName(node)) return
        isAttribute = isNode(node["value"]) && node["value"].type === "Literal"
        break
      case "JSXText":
        if (/\p{L}/u.test(node["value"] as string)) note(node, node["value"] as string)
        return
      case "Literal":
        if (typeof node["value"] === "string" && !NAMES.test(node["value"]) && (attribute ? /\p{L}/u.test(node["value"]) : looksLikeWords(node["value"]))) note(node, node["value"])
        return
      case "TemplateElement": {
        const { cooked } = node["value"] as { cooked: string }
        if (!NAMES.test(cooked) && looksLikeWords(cooked)) note(node, cooked)
        return
      }
      default:
        if (node.type.startsWith("TS") && !/^TS(As|Satisfies|NonNull)Expression$/.test(node.type)) return
    }
    for (const value of Object.values(node)) {
      for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) visit(child, isAttribute)
    }
  }
  visit(parseSync(name, source).program as unknown as Node, false)
  return found
}

const sources = readdirSync(ROOT, { recursive: true, encoding: "utf8" }).filter((name) => /(?<!\.d)\.tsx?$/.test(name) && !/^testing\/|test(kit)?\.tsx?$|^words\.ts$/.test(name) && !TABLES.has(name))

describe("words", () => {
  it("are searched for in all sources", () => expect(sources.length).toBeGreaterThan(80))

  it.each(sources)("of %s stand in words.ts", (name) => {
    expect(wordsIn(readFileSync(ROOT + name, "utf8"), name)).toEqual([])
  })

  it("are found wherever they can stand", () => {
    const held = (source: string) => wordsIn(source, "example.tsx").length
    expect(held("<p>Send</p>")).toBe(1)
    expect(held('<input placeholder="who" />')).toBe(1)
    expect(held('<Pane heading={open ? "Close it" : words.open} />')).toBe(1)
    expect(held('const NAMES = { open: "Open" }')).toBe(1)
    expect(held("const said = `${who} has left the room`")).toBe(1)
    expect(held('<p className="a b" data-testid="send">{words.send}<code>pellucid serve</code></p>')).toBe(0)
  })
})
