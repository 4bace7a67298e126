import { act } from "react"
import { createRoot } from "react-dom/client"
import { afterEach, beforeEach, expect, test, vi } from "vitest"

import { WINDOW } from "./api/client"
import { Chat } from "./Chat"
import { Drafts } from "./compose/drafts"
import { goTo } from "./routes"
import { settled } from "./text/draw.testkit"

const encoder = new TextEncoder()
const frame = (data: object) => encoder.encode(`data: ${JSON.stringify(data)}\n\n`)
const question = (id: string, chat: string) => ({ id: `ask_${id}`, conversation_id: chat, role: "user", created_at: 1, status: "completed", segments: [{ id: "s", type: "text", text: `question ${id}` }] })
const answer = (id: string, chat: string) => ({ id: `evt_${id}`, conversation_id: chat, role: "assistant", created_at: 1, completed_at: 2, status: "completed", segments: [{ id: "t", type: "text", text: `answer ${id}` }], model: "m", view: "raw" })
const MODELS = {
  data: [{ id: "m", efforts: [], view: "raw", default: true }],
  views: ["raw"],
  max_instructions_chars: 10,
  attachments: { max_files: 1, max_file_bytes: 1, max_total_bytes: 1, media_types: [] },
}

type Writer = ReadableStreamDefaultController<Uint8Array>

/** The page, and a gateway of two chats whose streams the test writes. */
async function setUp() {
  const active: Record<string, string | null> = { chat_A: null, chat_B: null }
  const streams: Record<string, Writer> = {}
  const calls: string[] = []
  const windows = new Set<string>()
  const gates: (() => void)[] = []
  let held = false
  const stream = (name: string) => new Response(new ReadableStream({ start: (one) => void (streams[name] = one) }))
  vi.stubGlobal("fetch", async (path: string, init?: RequestInit) => {
    calls.push(`${init?.method ?? "GET"} ${path}`)
    const window = new Headers(init?.headers).get("pellucid-window")
    if (window !== null) windows.add(window)
    if (path.endsWith("/feedback")) return Response.json({})
    if (path === "/api/models") return Response.json(MODELS)
    if (path === "/api/events") return stream("feed")
    if (path.startsWith("/api/conversations?")) return Response.json({ data: [], has_more: false, last_id: null })
    const id = /^\/api\/conversations\/(chat_.)$/.exec(path)?.[1]
    if (id !== undefined) {
      if (held) await new Promise<void>((release) => gates.push(release))
      return Response.json({ conversation: { id, title: id, created_at: 1, updated_at: 1 }, active: active[id], events: [question(id, id), answer(id, id)] })
    }
    if (path === "/api/chat" || path.startsWith("/api/chat/evt_")) return stream(path)
    return Response.json({ error: { message: "no" } }, { status: 404 })
  })
  const box = document.createElement("div")
  document.body.append(box)
  const root = createRoot(box)
  await act(async () => root.render(<Chat drafts={new Drafts("one")} mayCreateSpaces onSignedOut={() => undefined} />))
  const element = (testid: string) => box.querySelector<HTMLElement>(`[data-testid="${testid}"]`)
  const shows = (text: string) => settled(() => expect(box.textContent).toContain(text))
  await shows("answer chat_A")
  await settled(() => expect(streams.feed).toBeDefined())
  const write = (name: string, ...events: object[]) => act(async () => events.forEach((one) => streams[name]?.enqueue(frame(one))))
  const field = () => element("composer") as HTMLTextAreaElement
  const type = (text: string) =>
    act(async () => {
      Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value")?.set?.call(field(), text)
      field().dispatchEvent(new Event("input", { bubbles: true }))
    })
  const send = async (text: string) => {
    await type(text)
    await act(async () => field().form?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true })))
  }
  return {
    active, calls, windows, element, shows, write, type, send,
    hold: () => void (held = true),
    release: () => act(async () => gates.splice(0).forEach((one) => one())),
    waiting: () => gates.length,
    close: () => act(async () => root.unmount()),
  }
}

beforeEach(() => {
  localStorage.clear()
  history.replaceState(null, "", "/c/chat_A")
})
afterEach(() => {
  vi.unstubAllGlobals()
  history.replaceState(null, "", "/")
})

test("a refresh that the feed caused does not follow its reader to another chat", async () => {
  const page = await setUp()
  page.active.chat_A = "evt_live"
  page.hold()
  await page.write("feed", { type: "turn_started", conversation_id: "chat_A", event_id: "evt_live" })
  await settled(() => expect(page.waiting()).toBe(1))
  await act(async () => goTo("chat_B"))
  await settled(() => expect(page.waiting()).toBe(2))
  await page.release()
  await page.shows("answer chat_B")
  expect(page.element("stop")).toBeNull()
  expect(page.calls).not.toContain("GET /api/chat/evt_live")
  expect(location.pathname).toBe("/c/chat_B")
  await page.close()
})

test("a follow-up is not sent to a chat that was deleted", async () => {
  const page = await setUp()
  await page.send("two")
  await page.write("/api/chat", { type: "message_started", conversation_id: "chat_A", event_id: "evt_2", created_at: 1 }, { type: "message_final", event: answer("2", "chat_A") })
  await page.shows("answer 2")
  page.active.chat_A = "evt_3"
  await page.write("feed", { type: "turn_started", conversation_id: "chat_A", event_id: "evt_3" })
  await settled(() => expect(page.element("stop")).not.toBeNull())
  await page.send("follow-up")
  await settled(() => expect(page.element("follow-up")).not.toBeNull())
  await page.write("feed", { type: "conversation_deleted", conversation_id: "chat_A" })
  await settled(() => expect(page.element("follow-up")).toBeNull())
  expect(page.calls.filter((one) => one === "POST /api/chat")).toHaveLength(1)
  await act(async () => goTo(null))
  await settled(() => expect((page.element("composer") as HTMLTextAreaElement).value).toBe("follow-up"))
  await page.close()
})

test("what is written and what waits in a chat is its draft when another one is shown", async () => {
  const page = await setUp()
  await page.send("one")
  await page.write("/api/chat", { type: "message_started", conversation_id: "chat_A", event_id: "evt_2", created_at: 1 })
  await page.send("waits")
  await page.type("written")
  await act(async () => goTo("chat_B"))
  await page.shows("answer chat_B")
  expect((page.element("composer") as HTMLTextAreaElement).value).toBe("")
  await act(async () => goTo("chat_A"))
  expect((page.element("composer") as HTMLTextAreaElement).value).toBe("written\n\nwaits")
  expect(page.element("follow-up")).toBeNull()
  await page.close()
})

test("a change of this window does not come back as one of another", async () => {
  const page = await setUp()
  await settled(() => expect(page.element("feedback-up")).not.toBeNull())
  const before = page.calls.length
  await act(async () => page.element("feedback-up")?.click())
  const change = { type: "conversation_changed", conversation_id: "chat_A" }
  await page.write("feed", { ...change, window: WINDOW })
  await page.write("feed", { ...change, window: "another" })
  await settled(() => expect(page.calls.slice(before)).toContainEqual(expect.stringContaining("/api/conversations?")))
  expect([...page.windows]).toEqual([WINDOW])
  expect(page.calls.slice(before).filter((one) => one === "GET /api/conversations/chat_A")).toHaveLength(1)
  await page.close()
})
