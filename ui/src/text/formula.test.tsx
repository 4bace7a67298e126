// Formulas: which texts are formulas, and that the output is only MathML.
import { renderToStaticMarkup } from "react-dom/server"
import { beforeEach, describe, expect, it, vi } from "vitest"

import { formula } from "./formula"
import { readBlocks, readInline } from "./grammar"
import type { Formula } from "./grammar"

const inline = (text: string) => readInline(text).filter((token) => token.type === "formula").map((token) => (token as Formula).tex)
const blocks = (text: string) => readBlocks(text)?.tokens.map((token) => (token.type === "formula" ? (token as Formula).tex : token.type))

// The test's document has no doctype, so the library warns.
beforeEach(() => void vi.spyOn(console, "warn").mockImplementation(() => undefined))

describe("a formula", () => {
  it("is between dollars or brackets; amounts of money are not formulas", () => {
    expect(inline("$x^2$, \\(y\\), $$z$$ and \\[w\\]")).toEqual(["x^2", "y", "z", "w"])
    expect(inline("It costs $5 or $10, US$ 3, $ x $, \\$a\\$ and `$b$`.")).toEqual([])
    expect(blocks("Text:\n$$\na = b\n- c\n$$\nmore\n\n\\[ d \\]")).toEqual(["paragraph", "a = b\n- c", "paragraph", "space", "d"])
  })

  it("becomes MathML that contains its TeX as annotation", () => {
    const markup = renderToStaticMarkup(<>{formula("\\begin{aligned} a &= \\frac{1}{2} \\\\ b &= \\sqrt{x} \\end{aligned}", true)}</>)
    expect(markup).toMatch(/^<math/)
    expect(markup).toContain("<mfrac>")
    expect(markup).toContain("<annotation")
  })

  it("that is invalid gives null, so that its source is shown", () => {
    for (const wrong of ["\\frac{", "\\notacommand", "a &", "\\def\\a{\\a}\\a"]) expect(formula(wrong, false)).toBeNull()
  })

  it("contains no URL, script or unknown style", () => {
    for (const hostile of [
      "\\href{javascript:alert(1)}{x}", "\\url{https://evil.example}", "\\class{evil}{x}", "\\style{position:fixed;inset:0}{x}",
      "\\htmlStyle{background:url(//evil.example)}{x}", "\\includegraphics{//evil.example/x.png}", "\\text{<script>alert(1)</script>}",
      "\\color{red;background:url(x)}{x}", "\\rule{1000000em}{1000000em}", "\\unicode{x202E}", "\\text{\u202Eevil}",
    ]) {
      const markup = renderToStaticMarkup(<>{formula(hostile, true)}</>)
      const withoutTex = markup.replace(/<annotation.*?<\/annotation>/s, "")
      expect(withoutTex, hostile).not.toMatch(/<script|href|src=|url\(|position|javascript|evil\.example|\u202E/)
    }
  })

  it("does not hang the page", () => {
    for (const hostile of ["{".repeat(4_000), "\\frac".repeat(800), "x^".repeat(2_000), "\\sqrt{".repeat(600), "\\begin{array}{c}".repeat(200)]) expect(formula(hostile, true)).toBeDefined()
  })
})
