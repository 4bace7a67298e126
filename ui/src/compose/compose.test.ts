import { beforeEach, describe, expect, it, vi } from "vitest"
import fc from "fast-check"

import type { AttachmentLimits, ModelInfo } from "../api/types"
import { words } from "../words"
import { BrowserStorage } from "../storage"
import { inputOf, joinQuestions, sizeText, storedFiles } from "./questionFile"
import type { QuestionFile } from "./questionFile"
import { mediaTypeOf, modelProblem, problemOf, sizeProblem, totalProblem } from "./check"
import { Drafts } from "./drafts"
import { readFile } from "./readFile"
import { factorOf, isAnimated } from "./scale"
import type { Scale } from "./scale"
import { listenToKeys } from "./listenToKeys"
import { actionOf, setSingleKeys, singleKeys } from "./shortcuts"

const bytes = (text: string) => Uint8Array.from(text, (one) => one.charCodeAt(0))
const LIMITS: AttachmentLimits = { max_files: 2, max_file_bytes: 2048, max_total_bytes: 3072, media_types: [] }
const attached = (change: Partial<QuestionFile> = {}): QuestionFile => ({ key: "1", name: "a", media_type: "text/plain", size: 1, progress: 1, data: "QQ==", ...change })

describe("the type of a file", () => {
  it.each([
    ["\x89PNG\r\n\x1a\n….", "image/png"],
    ["\xff\xd8\xff\xe0", "image/jpeg"],
    ["GIF87a", "image/gif"],
    ["GIF89a", "image/gif"],
    ["RIFF....WEBPVP8 ", "image/webp"],
    ["RIFF....WAVE\xff", undefined],
    ["%PDF-1.7", "application/pdf"],
    ["<svg/>", "text/plain"],
    ["", "text/plain"],
    ["a\0b", undefined],
    ["\xff\xfe", undefined],
  ])("%j is %s", (text, type) => expect(mediaTypeOf(bytes(text))).toBe(type))

  it("is any text in UTF-8 without NUL", () => {
    fc.assert(fc.property(fc.string({ unit: "grapheme" }).filter((text) => !text.includes("\0") && !/^(GIF8|%PDF-)/.test(text)), (text) => {
      expect(mediaTypeOf(new TextEncoder().encode(text))).toBe("text/plain")
    }))
  })

  it.each([
    ["image/svg+xml", "<svg/>", words.attach.wrongType],
    ["image/png", "\xff\xd8\xff", undefined],
    ["image/heic", "\0\0\0 ftypheic", words.attach.wrongType],
    ["application/pdf", "no PDF", words.attach.wrongType],
    ["text/html", "<b>", undefined],
    ["", "a,b", undefined],
    ["text/plain", "", words.attach.empty],
  ])("declared as %s", (declared, text, problem) => expect(problemOf(declared, bytes(text))).toBe(problem))
})

describe("limits", () => {
  it("are checked before a file is read", () => {
    expect(sizeProblem(2048, LIMITS)).toBeUndefined()
    expect(sizeProblem(2049, LIMITS)).toBe(words.attach.tooLarge("2 kB", "2 kB"))
    const changes: Partial<QuestionFile>[] = []
    readFile(new File([new Uint8Array(4096)], "big.bin"), LIMITS, (change) => changes.push(change))
    expect(changes).toEqual([{ problem: words.attach.tooLarge("4 kB", "2 kB"), progress: 1 }])
  })

  it("hold for all files together", () => {
    expect(totalProblem([attached(), attached()], LIMITS)).toBeUndefined()
    expect(totalProblem([attached(), attached(), attached()], LIMITS)).toBe(words.attach.tooMany(2))
    expect(totalProblem([attached({ size: 2048 }), attached({ size: 2048 })], LIMITS)).toBe(words.attach.tooLargeTogether("4 kB", "3 kB"))
  })

  it("are those of the model, where it is known", () => {
    const model = (accepts?: ModelInfo["accepts"]): ModelInfo => ({ id: "m", efforts: [], view: "raw", ...(accepts && { accepts }) })
    const image = attached({ media_type: "image/png" })
    expect(modelProblem(image, model(), "m")).toBeUndefined()
    expect(modelProblem(image, model(["image"]), "m")).toBeUndefined()
    expect(modelProblem(image, model(["pdf"]), "m")).toBe(words.attach.noImages("m"))
    expect(modelProblem(attached({ media_type: "application/pdf" }), model([]), "m")).toBe(words.attach.noPdf("m"))
    expect(modelProblem(attached(), model([]), "m")).toBeUndefined()
  })

  it("are told in units of people", () => {
    expect([1, 1499, 999_499, 10 << 20, 1.5e6, 20e9].map(sizeText)).toEqual(["1 kB", "1 kB", "999 kB", "10.5 MB", "1.5 MB", "20,000 MB"])
  })
})

describe("a file", () => {
  it("is read as base64, with its type", async () => {
    const last = await new Promise<Partial<QuestionFile>>((done) =>
      readFile(new File([bytes("GIF89a\xff\x00")], "a.gif", { type: "image/gif" }), LIMITS, (change) => change.data !== undefined && done(change)),
    )
    expect(last).toEqual({ media_type: "image/gif", data: "R0lGODlh/wA=", progress: 1, url: "data:image/gif;base64,R0lGODlh/wA=" })
  })

  const read = (file: File, scale: Scale) =>
    new Promise<Partial<QuestionFile>>((done) => readFile(file, LIMITS, (change) => (change.data ?? change.problem) !== undefined && done(change), scale))
  const png = (size: number, chunks = "") => new File([bytes(`\x89PNG\r\n\x1a\n${chunks}`.padEnd(size, "\0"))], "a.shot.png", { type: "image/png" })

  it("that is an image is scaled if it is larger than models use, also if it would be too large otherwise", async () => {
    const scale = vi.fn<Scale>(() => Promise.resolve({ bytes: bytes("\xff\xd8\xff"), media_type: "image/jpeg", width: 2048, height: 9 }))
    const scaled = { name: "a.shot.jpg", size: 3, media_type: "image/jpeg", data: "/9j/", progress: 1, url: "data:image/jpeg;base64,/9j/", scaled: { width: 2048, height: 9 } }
    expect(await read(png(40), scale)).toEqual(scaled)
    expect(await read(png(4096), scale)).toEqual(scaled)
    expect(scale.mock.calls.map(([{ media_type, max_bytes }]) => [media_type, max_bytes])).toEqual([["image/png", 2048], ["image/png", 2048]])
  })

  it("stays as it is if it is small, animated, cannot be scaled, or is of another type", async () => {
    const none = vi.fn<Scale>(() => Promise.resolve(null))
    const fails: Scale = () => Promise.reject(new Error("no"))
    expect(await read(png(40), none)).not.toHaveProperty("scaled")
    expect(await read(png(40), fails)).toMatchObject({ media_type: "image/png", progress: 1 })
    expect(await read(png(4096), fails)).toEqual({ problem: words.attach.tooLarge("4 kB", "2 kB"), progress: 1 })
    none.mockClear()
    const gif = new File([bytes("GIF89a")], "a.gif", { type: "image/gif" })
    const animations = [png(60, "\0\0\0\x08acTL"), new File([bytes("RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x02".padEnd(30, "\0"))], "a.webp", { type: "image/webp" })]
    for (const file of [gif, ...animations, new File([bytes("text")], "a.txt", { type: "text/plain" })]) expect(await read(file, none)).not.toHaveProperty("problem")
    expect(none).not.toHaveBeenCalled()
  })

  it("is scaled to at most 2048 pixels in each direction", () => {
    expect([factorOf(100, 2048), factorOf(4096, 10), factorOf(10, 8192)]).toEqual([1, 0.5, 0.25])
    fc.assert(fc.property(fc.uint8Array({ maxLength: 60 }), (rest) => {
      for (const start of ["\x89PNG\r\n\x1a\n", "RIFF\0\0\0\0WEBPVP8X"]) expect(typeof isAnimated(new Uint8Array([...bytes(start), ...rest]), mediaTypeOf(bytes(start)) ?? "")).toBe("boolean")
    }))
  })

  it("is sent with its content, or by its id", () => {
    expect(inputOf(attached())).toEqual({ name: "a", media_type: "text/plain", data: "QQ==" })
    expect(inputOf({ id: "att_1_0", name: "a", media_type: "image/png", size: 1, url: "/api/attachments/att_1_0" })).toEqual({ id: "att_1_0" })
    expect(storedFiles("evt_1", [attached(), attached()]).map(({ url }) => url)).toEqual(["/api/attachments/att_1_0", "/api/attachments/att_1_1"])
  })

  it("is joined with the files of another question", () => {
    const one = { text: "One", files: [attached()] }
    expect(joinQuestions(one, { text: "Two", files: [] })).toEqual({ text: "One\n\nTwo", files: one.files })
    expect(joinQuestions({ text: " ", files: [] }, one)).toEqual(one)
  })
})

describe("drafts", () => {
  beforeEach(() => localStorage.clear())
  const text = (drafts: Drafts, chat: string | null) => drafts.of(chat).text

  it("are kept for each chat, and end when they are sent", () => {
    const drafts = new Drafts("ann")
    drafts.keep(null, { text: "new", files: [] })
    drafts.keep("chat_1", { text: "one", files: [attached()] })
    const again = new Drafts("ann")
    expect([text(again, null), text(again, "chat_1"), text(again, "__proto__")]).toEqual(["new", "one", ""])
    // Files are in the page alone.
    expect([drafts.of("chat_1").files.length, again.of("chat_1").files.length]).toEqual([1, 0])
    again.keep(null, { text: " ", files: [] })
    again.keep("chat_1", { text: "", files: [] })
    expect(localStorage.length).toBe(0)
  })

  it("begin with a question that was being sent", () => {
    const drafts = new Drafts("ann")
    drafts.keep("chat_1", { text: "next", files: [] })
    drafts.hold("chat_1", { text: "sent", files: [attached()] })
    drafts.hold(null, { text: "arrived", files: [] })
    drafts.release(null)
    expect(drafts.of("chat_1").files.length).toBe(1)
    // After a reload, and once only.
    drafts.hold("chat_2", { text: "lost", files: [] })
    const again = new Drafts("ann")
    expect([text(again, null), text(again, "chat_1"), text(again, "chat_2")]).toEqual(["", "sent\n\nnext", "lost"])
    expect(text(again, "chat_2")).toBe("lost")
    again.keep("chat_2", { text: "", files: [] })
    expect(text(new Drafts("ann"), "chat_2")).toBe("")
  })

  it("have the names of files that an earlier page had, until others are attached or the question is sent", () => {
    const before = new Drafts("ann")
    before.keep("chat_1", { text: "What is it?", files: [attached({ name: "map.png" })] })
    before.keep("chat_2", { text: "", files: [attached({ name: "notes.txt" })] })
    expect(before.lostFiles("chat_1")).toEqual([])
    const drafts = new Drafts("ann")
    expect([drafts.lostFiles("chat_1"), drafts.lostFiles("chat_2")]).toEqual([["map.png"], ["notes.txt"]])
    drafts.keep("chat_1", { text: "What is it now?", files: [] })
    expect(drafts.lostFiles("chat_1")).toEqual(["map.png"])
    drafts.keep("chat_1", { text: "What is it now?", files: [attached({ name: "other.png" })] })
    expect(drafts.lostFiles("chat_1")).toEqual([])
    drafts.keep("chat_1", { text: "What is it now?", files: [] })
    expect(drafts.lostFiles("chat_1")).toEqual([])
    drafts.forgetLostFiles("chat_2")
    drafts.keep("chat_1", { text: "", files: [] })
    expect(localStorage.length).toBe(0)
    // One that was being sent.
    drafts.hold("chat_3", { text: "", files: [attached({ name: "sent.png" })] })
    const again = new Drafts("ann")
    expect(again.of("chat_3")).toEqual({ text: "", files: [] })
    expect(again.lostFiles("chat_3")).toEqual(["sent.png"])
  })

  it("of another owner are deleted unread", () => {
    new Drafts("ann").keep(null, { text: "secret", files: [] })
    expect(text(new Drafts("bob"), null)).toBe("")
    expect(localStorage.length).toBe(0)
  })

  it("are deleted by a sign-out, whatever is written afterwards", () => {
    const drafts = new Drafts("ann")
    drafts.keep(null, { text: "secret", files: [attached()] })
    drafts.close()
    drafts.keep(null, { text: "secret", files: [attached()] })
    expect(localStorage.length).toBe(0)
    expect(drafts.of(null)).toEqual({ text: "", files: [] })
  })

  it("have a bound, and the newest win", () => {
    const drafts = new Drafts("ann")
    for (let number = 0; number < 50; number++) drafts.keep(`chat_${number}`, { text: "x".repeat(10_000), files: [] })
    expect(localStorage.getItem("pellucid.drafts")?.length).toBeLessThan(210_000)
    expect([text(drafts, "chat_0"), text(drafts, "chat_49").length]).toEqual(["", 10_000])
  })

  it.each(["no JSON", "7", '{"owner":"ann"}', '{"owner":"ann","texts":[7,["a"],[1,2],["chat_1","kept"]]}'])("survive a storage with %s", (stored) => {
    localStorage.setItem("pellucid.drafts", stored)
    const drafts = new Drafts("ann")
    expect(text(drafts, "chat_1")).toBe(stored.includes("kept") ? "kept" : "")
  })

  it("live without a storage", () => {
    const refuse = () => {
      throw new Error("no")
    }
    for (const open of [refuse, () => ({ getItem: refuse, setItem: refuse, removeItem: refuse }) as unknown as Storage]) {
      const drafts = new Drafts("ann", new BrowserStorage(open))
      drafts.keep(null, { text: "x", files: [] })
      drafts.add(null, { text: "y", files: [] })
      drafts.close()
    }
  })
})

describe("shortcuts", () => {
  beforeEach(() => (document.body.innerHTML = "<p>text</p><textarea></textarea><div role=menu><a href=#>item</a></div>"))
  const press = (key: string, change: KeyboardEventInit = {}, target = "p") => {
    let action: string | undefined = "none"
    const listen = (event: KeyboardEvent) => (action = actionOf(event, true))
    addEventListener("keydown", listen)
    document.querySelector(target)?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, ...change }))
    removeEventListener("keydown", listen)
    return action
  }

  it("are single keys", () => expect(["n", "N", "?", "x", "constructor", "Escape"].map((key) => press(key))).toEqual(["new", "new", "help", undefined, undefined, undefined]))

  it("leave the browser, the system and those who type alone", () => {
    for (const change of [{ ctrlKey: true }, { altKey: true }, { metaKey: true }, { repeat: true }, { isComposing: true }]) expect(press("n", change)).toBeUndefined()
    expect(press("n", {}, "textarea")).toBeUndefined()
    expect(press("n", {}, "a")).toBeUndefined()
    document.body.insertAdjacentHTML("beforeend", "<dialog open></dialog>")
    expect(press("n")).toBeUndefined()
  })

  it("are written into the question in the composer, and on what was pressed last", () => {
    document.body.innerHTML = "<button id=a><b>A</b></button><button id=b></button><form data-composer><button id=c></button></form>"
    const done: string[] = []
    const over = new AbortController()
    listenToKeys({ current: { write: () => void done.push("write"), new: () => void done.push("new") } }, over.signal)
    const key = (target: string, name: string, change: KeyboardEventInit = {}) => {
      const event = new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...change })
      document.querySelector(target)?.dispatchEvent(event)
      return [...done.splice(0), event.defaultPrevented]
    }
    expect(key("#a", "n")).toEqual(["new", true])
    document.querySelector("#a b")?.dispatchEvent(new Event("pointerdown", { bubbles: true }))
    // The browser writes the character, so the event goes on.
    expect(key("#a", "n")).toEqual(["write", false])
    expect(key("#a", "é")).toEqual(["write", false])
    expect(key("#c", "n")).toEqual(["write", false])
    for (const one of [" ", "Enter", "Tab"]) expect(key("#a", one)).toEqual([false])
    expect(key("#a", "n", { ctrlKey: true })).toEqual([false])
    expect(key("#b", "n")).toEqual(["new", true])
    expect(key("body", "n")).toEqual(["new", true])
    over.abort()
  })

  it("can be switched off", () => {
    setSingleKeys(false)
    expect(singleKeys()).toBe(false)
    expect(actionOf(new KeyboardEvent("keydown", { key: "n" }), singleKeys())).toBeUndefined()
    setSingleKeys(true)
    expect(singleKeys()).toBe(true)
  })
})
