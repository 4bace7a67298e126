// Where a link may lead: the web and mail. Everything else (scripts, data, files, this page itself) is only its text.
const ALLOWED = new Set(["http:", "https:", "mailto:"])

/** The address in its plain form, or null where it may not be followed. */
export function safeHref(address: string): string | null {
  const trimmed = address.trim()
  if (!/^(?:https?:\/\/|mailto:|www\.)/i.test(trimmed)) return null
  try {
    const url = new URL(/^www\./i.test(trimmed) ? `https://${trimmed}` : trimmed)
    return ALLOWED.has(url.protocol) ? url.href : null
  } catch {
    return null
  }
}

const bare = (name: string) => name.toLowerCase().replace(/^www\./, "")

/** The same for what can only be a page. */
export function webHref(address: string): string | null {
  const href = safeHref(address)
  return href !== null && /^https?:/.test(href) ? href : null
}

/** The host, where the link's text names another address than the one that it leads to; else null. */
export function hiddenHost(label: string, href: string): string | null {
  const named = /^\s*(?:https?:\/\/)?((?:[\p{L}\p{N}-]+\.)+\p{L}{2,})(?:[/:?#]|\s*$)/iu.exec(label)?.[1]
  if (!named) return null
  const { host } = new URL(href)
  try {
    return bare(new URL(`https://${named}`).host) === bare(host) ? null : host
  } catch {
    return host
  }
}
