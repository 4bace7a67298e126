// What an answer says that it rests on: each page once, in the order in which it is first cited. What is not a page of
// the web is left out: nobody can go there.
import type { Answer } from "../api/types"
import { webHref } from "../text/links"

export interface Source {
  href: string
  host: string
  /** Empty where the page has none, or none but its host. */
  title: string
}

const LONGEST_TITLE = 300

export function sourcesOf(event: Answer): Source[] {
  const sources = new Map<string, Source>()
  for (const { url, title } of event.segments.flatMap((segment) => (segment.type === "text" && segment.annotations) || [])) {
    const href = webHref(url)
    if (href === null) continue
    const { host } = new URL(href)
    const shortTitle = title.trim().slice(0, LONGEST_TITLE)
    const known = sources.get(href)?.title
    sources.set(href, { href, host, title: known || (repeatsHost(shortTitle, host, href) ? "" : shortTitle) })
  }
  return [...sources.values()]
}

/** Whether a title says no more than the host does. */
const repeatsHost = (title: string, host: string, href: string) => title === host || `www.${title}` === host || title === href
