// The sources that an answer cites, or that a search found: each page once, in the order of the first mention. URLs that
// are not http(s) are left out.
import type { Answer, Json } from "../api/types"
import { webHref } from "../text/links"

export interface Source {
  href: string
  host: string
  /** Empty if the page has no title, or only its host as title. */
  title: string
}

const MAX_TITLE_CHARS = 300

export const sourcesOf = (event: Answer): Source[] => uniqueSources(event.segments.flatMap((segment) => (segment.type === "text" && segment.annotations) || []))

/** The fields in which providers name a page, and the limits of what is searched for them. */
const ADDRESSES = ["url", "uri", "link", "retrieved_url"]
const MAX_DEPTH = 5
const MAX_VALUES = 1_000

const known = new WeakMap<object, Source[]>()

/** The pages in the result of a provider's tool, which may have any shape. */
export function sourcesIn(result: Json | undefined): Source[] {
  if (typeof result !== "object" || result === null) return []
  const cached = known.get(result)
  if (cached) return cached
  const pages: Mention[] = []
  let left = MAX_VALUES
  const visit = (value: Json, depth: number) => {
    if (typeof value !== "object" || value === null || depth > MAX_DEPTH || left-- <= 0) return
    if (Array.isArray(value)) return value.forEach((one) => visit(one, depth + 1))
    const url = ADDRESSES.map((name) => value[name]).find((one) => typeof one === "string")
    const title = value["title"]
    if (typeof url === "string") pages.push({ url, title: typeof title === "string" ? title : "" })
    for (const one of Object.values(value)) visit(one, depth + 1)
  }
  visit(result, 0)
  const sources = uniqueSources(pages)
  known.set(result, sources)
  return sources
}

interface Mention {
  url: string
  title: string
}

function uniqueSources(mentions: readonly Mention[]): Source[] {
  const sources = new Map<string, Source>()
  for (const { url, title } of mentions) {
    const href = webHref(url)
    if (href === null) continue
    const { host } = new URL(href)
    const shortTitle = title.trim().slice(0, MAX_TITLE_CHARS)
    const known = sources.get(href)?.title
    sources.set(href, { href, host, title: known || (repeatsHost(shortTitle, host, href) ? "" : shortTitle) })
  }
  return [...sources.values()]
}

/** Whether the title only repeats the host or the address. */
const repeatsHost = (title: string, host: string, href: string) => title === host || `www.${title}` === host || title === href
