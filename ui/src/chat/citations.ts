// The sources that an answer cites: each page once, in the order of the first citation. URLs that are not http(s) are
// left out.
import type { Answer } from "../api/types"
import { webHref } from "../text/links"

export interface Source {
  href: string
  host: string
  /** Empty if the page has no title, or only its host as title. */
  title: string
}

const MAX_TITLE_CHARS = 300

export function sourcesOf(event: Answer): Source[] {
  const sources = new Map<string, Source>()
  for (const { url, title } of event.segments.flatMap((segment) => (segment.type === "text" && segment.annotations) || [])) {
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
