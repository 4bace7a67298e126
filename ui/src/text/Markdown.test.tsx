// A hostile text has no effect on the page; a text that is being written does not flicker.
import fc from "fast-check"
import { describe, expect, it } from "vitest"

import { slicesOf } from "./Blocks"
import { draw, settled } from "./draw.testkit"
import { LongText } from "./LongText"
import { TextRoleContext } from "./role"
import { hiddenHost, safeHref } from "./links"
import { Markdown } from "./Markdown"
import { closeOpenSyntax } from "./closeOpenSyntax"
import { LIMITS } from "./limits"

const ALLOWED = new Set(
  ("div span p strong em del code pre a br hr h3 h4 h5 h6 ul ol li input blockquote table thead tbody tr th td figure figcaption button section " +
    "math mrow mi mn mo msup msub mfrac msqrt mtext mspace mtable mtr mtd mover munder munderover semantics annotation mstyle mpadded msubsup mroot menclose mphantom").split(" "),
)
const ATTRIBUTES = /^(?:class|dir|title|href|target|rel|type|checked|disabled|aria-[a-z]+|start|scope|tabindex|role|encoding|display|displaystyle|scriptlevel|form|stretchy|fence|separator|lspace|rspace|width|height|depth|style|mathvariant|columnalign|rowspacing|columnspacing|accent|symmetric|maxsize|minsize|mathcolor)$/

/** All elements and attributes are known ones, and all links are web or mail addresses. */
function inert(box: HTMLElement): void {
  for (const element of box.querySelectorAll("*")) {
    expect(ALLOWED).toContain(element.localName.toLowerCase())
    for (const { name } of element.attributes) expect(name).toMatch(ATTRIBUTES)
  }
  for (const link of box.querySelectorAll("a")) {
    expect(link.getAttribute("href")).toMatch(/^(?:https?:\/\/|mailto:)/)
    expect(link.rel).toBe("noopener noreferrer nofollow")
    expect(link.target).toBe("_blank")
    expect(link.title).not.toBe("")
  }
}

const HOSTILE = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "<style>*{display:none}</style><link rel=stylesheet href=//evil.example>",
  "text <iframe src='https://evil.example'></iframe> text",
  "<svg><script>alert(1)</script></svg>\n\n<math><mi xlink:href='javascript:alert(1)'>x</mi></math>",
  "[click](javascript:alert(1)) [a](JaVaScRiPt:alert(1)) [b](data:text/html,x) [c](vbscript:x) [d](file:///etc/passwd) [e](blob:x)",
  "[a](java\nscript:alert(1)) [b](&#106;avascript:alert(1)) [c](\u0001javascript:alert(1)) [d](java%0Ascript:x)",
  "[relative](/api/session) [here](#top) [other](//evil.example) [p](\\\\evil.example)",
  "![image](https://evil.example/track.png) ![x](javascript:alert(1)) ![y](data:image/svg+xml,<svg onload=alert(1)>)",
  "<https://good.example> <javascript:alert(1)> https://good.example/a?b=c&d www.good.example me@good.example",
  "[ref]\n\n[ref]: javascript:alert(1)",
  "[x](https://a.example \"title\" onmouseover=alert(1)) [y](https://a.example '\"><script>')",
  "$\\href{javascript:alert(1)}{x}$ $$\\url{javascript:alert(1)}$$ $\\class{evil}{x}$ $\\style{position:fixed}{x}$ $\\includegraphics{x}$",
  "```html\n<script>alert(1)</script>\n```",
  "```\"><script>alert(1)</script>\ncode\n```",
  "| a |\n|-|\n| <img src=x onerror=alert(1)> [x](javascript:1) |",
  "- [x] <b onclick=alert(1)>b</b>\n- <!-- comment --> &lt;script&gt;",
  "`<script>` **<script>** ~~<script>~~ # <script>",
]

describe("hostile text", () => {
  for (const text of HOSTILE) {
    it(`is inert: ${text.slice(0, 50).replace(/\s/g, " ")}`, () => {
      for (const streaming of [false, true]) {
        inert(draw(<Markdown text={text} streaming={streaming} />).box)
        inert(draw(<LongText text={text} streaming={streaming} />).box)
      }
    })
  }

  it("is inert in any combination, cut anywhere", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...HOSTILE, "\n", "\n\n", "> ", "- ", "**", "`", "[", "](", "|", "$"), { maxLength: 8 }), fc.nat(2_000), (pieces, at) => {
        const text = pieces.join("")
        inert(draw(<Markdown text={text.slice(0, at)} streaming />).box)
        inert(draw(<Markdown text={text} />).box)
        document.body.textContent = ""
      }),
      { numRuns: 150 },
    )
  })

  it("shows HTML as source", () => {
    const { box } = draw(<Markdown text={"<script>alert(1)</script> and <b>b</b>\n\n<div onclick=x>**bold**</div>"} />)
    expect(box.textContent).toContain("<script>alert(1)</script> and <b>b</b>")
    expect(box.querySelector("strong")?.textContent).toBe("bold")
  })

  it("does not hang the page", () => {
    const cases = [">", "[", "*", "_", "`", "~", "<", "!", "|", "#", "\\", "$", "(", "- ", "**a *b ", "~~a ~b", "[a](", "![", "<a ", "&", "a@", "http://", "$x", "\\(", "[]", "> - ", "`a ``b ", "😀", "\u202E"]
    for (const piece of cases) {
      const text = piece.repeat(100_000 / piece.length)
      for (const streaming of [false, true]) {
        const { box } = draw(<Markdown text={text} streaming={streaming} />)
        expect(box.childNodes.length).toBe(1)
        document.body.textContent = ""
      }
    }
  }, 120_000)

  it("does not hang the page in paragraphs below the size limit", () => {
    for (const piece of ["~~a ~b", "*a **b ", "[a](", "a@", "`a ``b ", "$x ", "\\(x ", "_a ", "<a ", "![a]["]) {
      const { box } = draw(<Markdown text={piece.repeat(9_900 / piece.length)} streaming />)
      expect(box.textContent).not.toBe("")
    }
  }, 60_000)
})

describe("hidden characters", () => {
  it("that change the direction or control a terminal are shown everywhere", () => {
    const text = "if access \u202E\u2066// check\u2069 \u0007 \u001B[31m"
    for (const box of [draw(<Markdown text={`${text}\n\n\`${text}\`\n\n\`\`\`\n${text}\n\`\`\``} />).box, draw(<LongText text={text} />).box]) {
      expect(box.textContent).not.toMatch(/[\u202A-\u202E\u2066-\u2069\u0000-\u0008\u001B]/)
      expect(box.textContent).toContain("U+202E")
      expect(box.textContent).toContain("U+0007")
    }
  })

  it("that scripts and emoji need are unchanged", () => {
    const text = "می‌خواهم 👩‍👩‍👧 \u{1F3F4}\u{E0067}\u{E0062}\u{E0073}\u{E0063}\u{E0074}\u{E007F} א\u200Eב"
    expect(draw(<Markdown text={text} />).box.textContent).toBe(text)
    expect(draw(<Markdown text={"a\u{E0041}\u{E0042}"} />).box.textContent).toBe("aU+E0041U+E0042")
    const words = "ไทย\u200Bภาษา क्\u200Dष ❤\uFE0F\u200D🔥 葛\u{E0100}城"
    expect(draw(<Markdown text={words} />).box.textContent).toBe(words)
  })

  it("without width are shown where no script needs them", () => {
    const shown = (text: string) => draw(<Markdown text={text} />).box.textContent
    expect(shown("pay\u200Bpal\u200B\u200B\u200B \u2060a\uFEFFb\u00ADc \u3164")).toBe("payU+200Bpal U+200B ×3 U+2060aU+FEFFbU+00ADc U+3164".replace("pal U", "palU"))
    expect(shown("a\u200Db\u200C")).toBe("aU+200DbU+200C")
    expect(shown("x\uFE00\uFE01\uFE02")).toBe("x\uFE00U+FE01U+FE02")
  })

  it("each paragraph, item, heading and cell has its own direction; code is left to right", () => {
    const { box } = draw(<Markdown text={"# שלום\n\nשלום\n\n- مرحبا\n\n| א |\n|-|\n| ب |\n\n```\nx\n```"} />)
    for (const name of ["h3", "p", "th", "td"]) expect(box.querySelector(name)?.getAttribute("dir")).toBe("auto")
    for (const name of ["ul", "li", "table"]) expect(box.querySelector(name)?.getAttribute("dir")).toBe("rtl")
    expect(box.querySelector("figure")?.getAttribute("dir")).toBe("ltr")
  })
})

describe("links", () => {
  it("lead only to the web and to mail", () => {
    expect(safeHref("https://a.example/x y")).toBe("https://a.example/x%20y")
    expect(safeHref("www.a.example")).toBe("https://www.a.example/")
    expect(safeHref("mailto:a@b.example")).toBe("mailto:a@b.example")
    for (const bad of ["javascript:alert(1)", "//evil.example", "/api", "#x", "data:,x", "https://", "ftp://a.example", "", " \u0000javascript:x"]) {
      expect(safeHref(bad)).toBeNull()
    }
  })

  it("whose text names another host show the real one", () => {
    expect(hiddenHost("https://bank.example", "https://evil.example/")).toBe("evil.example")
    expect(hiddenHost("www.a.example/path", "https://a.example/")).toBeNull()
    expect(hiddenHost("read more", "https://a.example/")).toBeNull()
    const { box } = draw(<Markdown text="[https://bank.example](https://evil.example)" />)
    expect(box.textContent).toBe("https://bank.example (evil.example)")
  })

  it("are used instead of images", () => {
    const { box } = draw(<Markdown text="![a cat](https://a.example/cat.png)" />)
    expect(box.querySelector("img")).toBeNull()
    expect(box.querySelector("a")?.textContent).toBe("a cat")
  })
})

describe("rendered Markdown", () => {
  it("is GFM", () => {
    const { box } = draw(
      <Markdown text={"# One\n\ntext **bold** *em* ~~gone~~ `code` 1 < 2 &amp; 20~25\\*\n\n- [x] done\n- [ ] to do\n\n3. three\n\n| a | b |\n|:-|-:|\n| 1<br>2 | `x\\|y` |\n\n> quote\n\n---\n\n```python\nprint(1)\n```"} />,
    )
    expect(box.querySelector("h3")?.textContent).toBe("One")
    expect(box.querySelector("p")?.textContent).toBe("text bold em gone code 1 < 2 & 20~25*")
    expect([...box.querySelectorAll("input")].map((input) => input.checked)).toEqual([true, false])
    expect([...box.querySelectorAll("li")].map((item) => item.textContent)).toEqual(["done", "to do", "three"])
    expect(box.querySelector("ol")?.start).toBe(3)
    expect([...box.querySelectorAll("td")].map((cell) => cell.className)).toEqual(["cell--left", "cell--right"])
    expect(box.querySelector("td br")).not.toBeNull()
    expect(box.querySelectorAll("td")[1]?.textContent).toBe("x|y")
    expect(box.querySelector(".code__language")?.textContent).toBe("python")
    expect(box.querySelector("pre")?.textContent).toBe("print(1)")
  })

  it("is highlighted by class names only", async () => {
    const { box } = draw(<Markdown text={"```python\ndef f(): return 'x'\n```"} />)
    await settled(() => expect(box.querySelector(".hljs-keyword")?.textContent).toBe("def"))
    expect(box.querySelector("pre")?.textContent).toBe("def f(): return 'x'")
    expect(box.querySelector("[style]")).toBeNull()
  })

  it("resolves link definitions that come later", () => {
    const { box, again } = draw(<Markdown text="see [the page][1]" streaming />)
    again(<Markdown text={"see [the page][1]\n\n[1]: https://a.example\n"} />)
    expect(box.querySelector("a")?.href).toBe("https://a.example/")
  })

  it("is the same at the end, streamed or not", () => {
    const text = "# T\n\nSome **bold** [l](https://a.example) $x$\n\n- a\n  - b\n\n| a |\n|-|\n| 1 |\n\n```js\nlet x\n```\nend"
    const { box, again } = draw(<Markdown text="" streaming />)
    for (let at = 1; at <= text.length; at++) again(<Markdown text={text.slice(0, at)} streaming />)
    again(<Markdown text={text} />)
    const whole = draw(<Markdown text={text} />).box
    expect(box.innerHTML).toBe(whole.innerHTML)
  })

  it("grows frame by frame if it arrives in one piece, and is whole at the end", async () => {
    const paragraphs = Array.from({ length: 1_000 }, (_, n) => `Paragraph **${n}**.`)
    for (const streaming of [true, false]) {
      const { box } = draw(<Markdown text={paragraphs.join("\n\n")} streaming={streaming} />)
      expect(box.textContent?.length).toBeLessThanOrEqual(LIMITS.step)
      await settled(() => expect(box.textContent).toMatch(/999\W*$/))
      expect(box.textContent?.match(/Paragraph/g)).toHaveLength(1_000)
    }
  })

  it("of a long list or table is drawn in parts that continue each other", () => {
    const items = Array.from({ length: 250 }, (_, n) => `${n + 1}. item`).join("\n")
    const lists = [...draw(<Markdown text={items} />).box.querySelectorAll("ol")]
    expect(lists.map((list) => list.start)).toEqual([1, 101, 201])
    expect(lists.flatMap((list) => [...list.children])).toHaveLength(250)
    const rows = Array.from({ length: 300 }, (_, n) => `| ${n} | x |`).join("\n")
    const table = draw(<Markdown text={`| n | letter |\n|---|---|\n${rows}`} />).box
    expect([...table.querySelectorAll("table, thead")].map(({ localName }) => localName)).toEqual(["table", "thead"])
    expect(table.querySelectorAll("tbody").length).toBeGreaterThan(1)
    // Rows far below are one line of source each.
    expect(table.querySelector(".table__source")?.textContent).toMatch(/^\| \d+ \| x \|\n[^]*\| 299 \| x \|$/)
  })

  it("of a table that grows stays the same table", () => {
    const text = `| n | letter |\n|---|---|\n${Array.from({ length: 249 }, (_, n) => `| ${n} | x |\n`).join("")}`
    const { box, again } = draw(<Markdown text={text} streaming />)
    const table = box.querySelector("table")
    again(<Markdown text={`${text}${"| 250 | y |\n".repeat(20)}`} streaming />)
    expect(box.querySelectorAll("tbody")).toHaveLength(2)
    expect(box.querySelector("table")).toBe(table)
  })

  it("of a very long paragraph is cut between words, or at least between characters", () => {
    const words = `${"several words ".repeat(5_000)}end`
    const family = "👨‍👩‍👧‍👦"
    for (const [text, border] of [[words, / $/], [family.repeat(3_000), new RegExp(`^(?:${family})+$`)], [`one line\n${words}`, /[\s]$|line$/]] as const) {
      const slices = slicesOf(text)
      expect(slices.length).toBeGreaterThan(1)
      expect(slices.slice(0, -1).map((slice) => border.test(slice) || slice.slice(-20)).filter((one) => one !== true)).toEqual([])
      expect(slices.join("").replaceAll("\n", "") === text.replaceAll("\n", "")).toBe(true)
    }
  })

  it("renders only changed blocks again", () => {
    const { box, again } = draw(<Markdown text={"one\n\n- a\n- b"} streaming />)
    const first = box.querySelector("p")
    const item = box.querySelector("li")
    again(<Markdown text={"one\n\n- a\n- b\n- c\n\ntwo"} streaming />)
    expect(box.querySelector("p")).toBe(first)
    expect(box.querySelector("li")).toBe(item)
  })
})

describe("a growing text", () => {
  const seen = (text: string) => draw(<Markdown text={text} streaming />).box

  it("closes open syntax", () => {
    expect(seen("some **bo").querySelector("strong")?.textContent).toBe("bo")
    expect(seen("some `co").querySelector("code")?.textContent).toBe("co")
    expect(seen("see [the page](https://a.exa").textContent).toBe("see the page")
    expect(seen("see [the pa").textContent).toBe("see the pa")
    expect(seen("```py\nprint(").querySelector("pre")?.textContent).toBe("print(")
  })

  it("shows no marker before its content", () => {
    for (const text of ["Text\n-", "Text\n--", "Text\n#", "Text\n\n1", "Text\n\n1.", "Text\n\n-", "Text\n\n>", "Text\n\n|", "Text **"]) {
      expect(seen(text).textContent?.trim(), text).toBe("Text")
    }
  })

  it("shows a table from its first row on", () => {
    for (const text of ["| a | b |", "| a | b |\n", "| a | b |\n|", "| a | b |\n| -", "| a | b |\n|---|--", "| a | b |\n|---|---|\n| 1"]) {
      expect(seen(text).querySelectorAll("th"), text).toHaveLength(2)
    }
  })

  it("never shows a tag, rule or marker for one frame only", () => {
    const text = "Here are **three** things:\n\n1. First `code`\n2. Second [link](https://a.example)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nDone *well*."
    for (let at = 1; at <= text.length; at++) {
      const shown = seen(text.slice(0, at)).textContent ?? ""
      expect(shown, text.slice(0, at)).not.toMatch(/\*\*|\]\(|\|---|`|https:/)
      document.body.textContent = ""
    }
  })

  it("leaves an unclosed formula unchanged", () => {
    expect(closeOpenSyntax("so $$\\frac{a*b}{**c")).toBe("so $$\\frac{a*b}{**c")
  })
})

describe("a long text", () => {
  it("has headings, lists, code and emphasis", () => {
    const { box } = draw(<LongText text={"**Weighing it**\n\nI think `x` is **good**.\n- one\n  1. two\n\n```\ncode **x**\n```\n# Title"} />)
    expect(box.querySelector("p > strong:only-child")?.textContent).toBe("Weighing it")
    expect(box.querySelector("h3")?.textContent).toBe("Title")
    expect(box.querySelector("p code")?.textContent).toBe("x")
    expect(box.querySelectorAll("strong")[1]?.textContent).toBe("good")
    expect(box.querySelectorAll("li")).toHaveLength(2)
    expect(box.querySelector("pre")?.textContent).toBe("code **x**")
    expect(box.querySelectorAll("button")).toHaveLength(0)
  })

  it("has what an answer has: tables, formulas, highlighted code, links", () => {
    const text = "| a | b |\n|---|---|\n| 1 | 2 |\n\nso $x^2$\n\n```py\nx = 1\n```\n\n[a](https://a.example)"
    const { box } = draw(<LongText text={text} />)
    expect(box.querySelectorAll("td")).toHaveLength(2)
    expect(box.querySelector(".formula")?.textContent).toContain("x")
    expect(box.querySelector(".code__language")?.textContent).toBe("py")
    expect(box.querySelectorAll("a")).toHaveLength(1)
    const overlay = draw(<TextRoleContext value="overlay"><LongText text={text} streaming /></TextRoleContext>).box
    expect(overlay.querySelectorAll("a, button")).toHaveLength(0)
    expect(overlay.textContent).toContain("x = 1")
  })

  it("continues a code fence in its next chunk", () => {
    const text = `~~~py\n${"x = 1\n\n".repeat(1_500)}~~~\n\nAfter **it**.`
    const { box } = draw(<LongText text={text} streaming />)
    const chunks = [...box.querySelectorAll(".long-text__chunk")]
    expect(chunks.length).toBeGreaterThan(2)
    expect(chunks[1]?.querySelector("pre")?.textContent).toMatch(/^(x = 1\s*)+$/)
    expect(chunks.at(-1)?.querySelector("strong")?.textContent).toBe("it")
  })

  it("of a megabyte renders only its last chunk again", () => {
    const paragraph = `${"reasoning ".repeat(60)}\n\n`
    let text = paragraph.repeat(1_700)
    const { box, again } = draw(<LongText text={text} streaming />)
    const first = box.querySelector(".long-text__chunk")?.firstChild
    const chunks = box.querySelectorAll(".long-text__chunk").length
    expect(chunks).toBeGreaterThan(100)
    for (let turn = 0; turn < 100; turn++) {
      text += "more "
      again(<LongText text={text} streaming />)
    }
    expect(box.querySelector(".long-text__chunk")?.firstChild).toBe(first)
  })

  it("of hostile markup does not hang the page", () => {
    for (const piece of ["**a", "*a ", "`", "> ", "- ", "# ", "**a** *b", "~~~\n", "*", " "]) {
      const { box } = draw(<LongText text={piece.repeat(300_000 / piece.length)} streaming />)
      expect(box.childNodes.length).toBeGreaterThan(0)
      document.body.textContent = ""
    }
  }, 60_000)
})
