// However a text arrives, its blocks are those of the complete text, and joined they are the text.
import fc from "fast-check"
import { describe, expect, it } from "vitest"

import { cutChunks, NO_CHUNKS } from "./chunks"
import { LIMITS } from "./limits"
import { continueSplit, EMPTY_SPLIT, openFence } from "./split"
import type { Split } from "./split"

const FRAGMENTS = [
  "word ", "some more words", "\n", "\n\n", "# ", "## Title\n", "- ", "- item\n", "  - inner\n", "1. ", "2) two\n", "> ", "> quote\n",
  "```", "```py\n", "~~~\n", "`code`", "**bold**", "**", "*", "_", "[link](", "https://a.example", ")", "[a]: https://b.example\n",
  "| a | b |\n", "| - | - |\n", "|:-", "| 1 | 2 |\n", "$", "$$", "$$\nx^2\n$$\n", "\\[ y \\]\n", "\\(", "---\n", "===\n", "    indented\n",
  "\t", "<div>\n", "<!-- ", "</script>", "\\", "中文", "שלום", "- [ ] todo\n", "- [x] ", "* * *\n", " ", "\n   \n",
]
const document = fc.array(fc.constantFrom(...FRAGMENTS), { maxLength: 40 }).map((pieces) => pieces.join(""))

function grow(text: string, cuts: readonly number[]): Split {
  let split = EMPTY_SPLIT
  for (const at of cuts) split = continueSplit(split, text.slice(0, at))
  return continueSplit(split, text)
}

const shape = (split: Split) => split.blocks.map(({ start, raw, plain }) => ({ start, raw: raw.trimEnd(), plain }))

describe("blocks", () => {
  it("are the same however the text is split", () => {
    fc.assert(
      fc.property(document, fc.array(fc.nat(400), { maxLength: 30 }), (text, places) => {
        const cuts = places.filter((at) => at < text.length).toSorted((a, b) => a - b)
        const whole = continueSplit(EMPTY_SPLIT, text)
        const grown = grow(text, cuts)
        expect(shape(grown)).toEqual(shape(whole))
        expect(grown.blocks.map(({ raw }) => raw).join("")).toBe(text)
        expect(whole.blocks.some(({ plain }) => plain)).toBe(false)
        expect(Object.keys(grown.links).toSorted()).toEqual(Object.keys(whole.links).toSorted())
      }),
      { numRuns: 3_000 },
    )
  })

  it("are the same character by character", () => {
    fc.assert(
      fc.property(document, (text) => {
        expect(shape(grow(text, Array.from({ length: text.length }, (_, at) => at)))).toEqual(shape(continueSplit(EMPTY_SPLIT, text)))
      }),
      { numRuns: 800 },
    )
  })

  it("that others follow stay the same objects, so that they are not rendered again", () => {
    const before = continueSplit(EMPTY_SPLIT, "one\n\ntwo\n\nthree")
    const after = continueSplit(before, "one\n\ntwo\n\nthree and more\n\nfour")
    expect(after.blocks[0]).toBe(before.blocks[0])
    expect(after.blocks[1]).toBe(before.blocks[1])
  })

  it("of long lists, tables and quotes are short, and the same however the text is split", () => {
    const runs = fc.constantFrom(
      ["- item\n", 260], ["- item\n\n", 120], ["1. a longer item, with `code`\n", 150], ["* x\n  - y\n", 300], ["- a\n  ```\n  x\n  ```\n", 90],
      ["  - inner\n", 2_000], ["> quoted\n", 2_200], [`| a | b |\n|---|---|\n${"| 1 | 2 |\n".repeat(500)}`, 1], ["| 1 | 2 |\n", 3], ["word\n", 20], ["- ", 1], ["-", 3], ["1", 2],
      ["| a | b |\n|---|---|\n", 1], ["\n", 2], ["[a]: https://a.example\n", 1], ["### Title\n", 1], ["---\n", 1], ["|", 2],
    )
    const long = fc.array(runs, { minLength: 1, maxLength: 8 }).map((all) => all.map(([text, times]) => `${text}`.repeat(times as number)).join(""))
    fc.assert(
      fc.property(long, fc.array(fc.nat(40_000), { maxLength: 8 }), (text, places) => {
        const whole = continueSplit(EMPTY_SPLIT, text)
        const grown = grow(text, places.filter((at) => at < text.length).toSorted((a, b) => a - b))
        expect(shape(grown)).toEqual(shape(whole))
        expect(grown.blocks.map(({ raw }) => raw).join("")).toBe(text)
        for (const { raw } of grown.blocks) expect(raw.trimEnd().length).toBeLessThan(LIMITS.pieceMax + 100)
      }),
      { numRuns: 150 },
    )
  })

  it("of a long table have its head", () => {
    const rows = Array.from({ length: 900 }, (_, at) => `| ${at} | b |\n`).join("")
    const { blocks } = continueSplit(EMPTY_SPLIT, `| n | letter |\n|--:|---|\n${rows}\nAfter.`)
    expect(blocks.length).toBeGreaterThan(3)
    expect(blocks.slice(0, -1).map(({ head }) => head)).toEqual([undefined, ...blocks.slice(1, -1).map(() => "| n | letter |\n|--:|---|\n")])
    expect(blocks.at(-1)?.head).toBeUndefined()
  })

  it("of a list that grows are parsed again for its end alone", () => {
    let split = EMPTY_SPLIT
    let text = ""
    for (let turn = 0; turn < 400; turn++) {
      const before = split
      text += "- one more item of it\n"
      split = continueSplit(split, text, true)
      const kept = split.blocks.filter((block, index) => block === before.blocks[index]).length
      expect(kept).toBeGreaterThanOrEqual(split.blocks.length - 2)
    }
    expect(split.blocks.length).toBeGreaterThanOrEqual(4)
  })

  it("recognize an open fence", () => {
    expect(openFence("```py\nprint(1)")).toBe(true)
    expect(openFence("```py\nprint(1)\n```")).toBe(false)
    expect(openFence("````\n```\n")).toBe(true)
    expect(openFence("text")).toBe(false)
  })

  it("of an open fence of a megabyte grow without being parsed again", () => {
    let text = `\`\`\`\n${"x = 1\n".repeat(170_000)}`
    let split = continueSplit(EMPTY_SPLIT, text)
    for (let turn = 0; turn < 100; turn++) {
      text += "y = 2\n"
      split = continueSplit(split, text, true)
    }
    expect(split.blocks).toHaveLength(1)
  })

  it("nested too deeply stay plain, and those around them are parsed", () => {
    for (const deep of [">".repeat(100_000), "- ".repeat(5_000), Array.from({ length: 400 }, (_, at) => `${" ".repeat(at * 2)}- a`).join("\n")]) {
      const split = continueSplit(EMPTY_SPLIT, `# Before\n\n${deep}\n\nAfter **all**.`)
      expect(split.blocks.map(({ raw }) => raw).join("")).toBe(`# Before\n\n${deep}\n\nAfter **all**.`)
      expect(split.blocks.some(({ plain }) => plain)).toBe(true)
      expect(split.blocks.at(-1)?.plain).toBe(false)
    }
  })

  it("beyond the limit stay plain", () => {
    expect(continueSplit(EMPTY_SPLIT, "a".repeat(LIMITS.block + 1)).blocks[0]?.plain).toBe(true)
  })
})

describe("chunks of a long text", () => {
  it("are the same however the text is split, and joined they are the text", () => {
    const long = fc.array(fc.constantFrom("word ", "\n", "\n\n", "```\n", "a".repeat(700), "é".repeat(300), "😀".repeat(200), " b".repeat(500)), { maxLength: 60 })
    fc.assert(
      fc.property(long, fc.array(fc.nat(40_000), { maxLength: 12 }), (pieces, places) => {
        const text = pieces.join("")
        let grown = NO_CHUNKS
        for (const at of places.filter((place) => place < text.length).toSorted((a, b) => a - b)) grown = cutChunks(grown, text.slice(0, at))
        grown = cutChunks(grown, text)
        expect(grown).toEqual(cutChunks(NO_CHUNKS, text))
        expect(grown.map((piece) => piece.text).join("")).toBe(text)
      }),
      { numRuns: 500 },
    )
  })

  it("never split a character", () => {
    const chunks = cutChunks(NO_CHUNKS, `x${"😀".repeat(30_000)}`)
    expect(chunks.length).toBeGreaterThan(2)
    for (const { text } of chunks) expect(text.isWellFormed()).toBe(true)
  })
})
