// The sources of an answer: each once, in order, opened only by a click; titles are plain text.
import { describe, expect, test } from "vitest"

import type { Answer, Citation } from "../api/types"
import { record } from "../testing/recorded"
import { draw } from "../text/draw.testkit"
import { StopFollowingContext } from "./followEnd"
import { Sources } from "./Sources"

const cite = (url: string, title = ""): Citation => ({ type: "url_citation", url, title, start_index: 0, end_index: 2 })

/** An answer of two texts: the first cites `first`, the second cites `rest`. */
function answer(first?: Citation, ...rest: Citation[]): Answer {
  const { final } = record([{ kind: "text", deltas: ["One."] }, { kind: "text", deltas: ["Two."] }])
  const [one, two] = final.segments
  if (one?.type === "text" && first) one.annotations = [first]
  if (two?.type === "text" && rest.length > 0) two.annotations = rest
  return final
}

const shown = (...cited: Citation[]) => draw(<Sources event={answer(...cited)} />).box
const links = (box: HTMLElement) => [...box.querySelectorAll("a")]

describe("sources", () => {
  test("are those of all texts, numbered, each once, by title and host", () => {
    const box = shown(cite("https://a.example/x"), cite("https://b.example/y", "Of tides"), cite("https://a.example/x", "Of the moon"))
    expect([...box.querySelectorAll("li")].map((one) => one.textContent)).toEqual(["1Of the moon a.example", "2Of tides b.example"])
    const list = box.querySelector("ol")
    expect(document.getElementById(list?.getAttribute("aria-labelledby") ?? "")?.textContent).toBe("Sources")
  })

  test("do not repeat a title that equals the host", () => {
    expect(links(shown(cite("https://www.a.example/x", "a.example"), cite("https://b.example/", "b.example"))).map((one) => one.textContent)).toEqual(["www.a.example", "b.example"])
  })

  test("are not shown if no web page is cited", () => {
    expect(shown().innerHTML).toBe("")
    expect(draw(<Sources event={undefined} />).box.innerHTML).toBe("")
    const addresses = ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", "data:text/html,x", "file:///etc/passwd", "mailto:a@b.example", "/x", "", "https://", "blob:https://a.example/1"]
    for (const url of addresses) expect(shown(cite(url, "Press")).innerHTML).toBe("")
  })

  test("open in a new window, with the host visible", () => {
    const [link] = links(shown(cite("https://google.com@evil.example/x", "https://google.com")))
    expect(link?.rel).toBe("noopener noreferrer nofollow")
    expect(link?.target).toBe("_blank")
    expect(link?.title).toBe("https://google.com@evil.example/x")
    expect(link?.textContent).toBe("https://google.com evil.example")
    expect(links(shown(cite("https://аррӏе.com/")))[0]?.textContent).toBe("xn--80ak6aa92e.com")
  })

  test("show a hostile title as text", () => {
    const box = shown(cite("https://a.example", "<img src=x onerror=alert(1)>\u202Egpj.exe"), cite("https://b.example", "x".repeat(100_000)))
    expect(box.querySelector("img")).toBeNull()
    expect(links(box)[0]?.textContent).toBe("<img src=x onerror=alert(1)>U+202Egpj.exe a.example")
    expect(links(box)[1]?.textContent.length).toBeLessThan(400)
  })

  test("beyond the limit are only counted", () => {
    const box = shown(...Array.from({ length: 1000 }, (_, n) => cite(`https://a.example/${n}`)))
    expect(links(box)).toHaveLength(100)
    expect(box.querySelector("li:last-child")?.textContent).toBe("and 900 more")
  })

  test("do not scroll a reader at the end when they appear", () => {
    let stays = 0
    const of = (event: Answer | undefined) => <StopFollowingContext value={() => stays++}><Sources event={event} /></StopFollowingContext>
    draw(of(answer(cite("https://a.example"))))
    draw(of(undefined)).again(of(answer()))
    expect(stays).toBe(0)
    draw(of(undefined)).again(of(answer(cite("https://a.example"))))
    expect(stays).toBe(1)
  })
})
