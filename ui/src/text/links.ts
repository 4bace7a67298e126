// Allowed link targets: web and mail. Everything else (scripts, data, files, this page) is shown as text.
const ALLOWED = new Set(["http:", "https:", "mailto:"])

/** The normalized address, or null if it is not allowed. */
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

/** The normalized address if it is http(s), or null. */
export function webHref(address: string): string | null {
  const href = safeHref(address)
  return href !== null && /^https?:/.test(href) ? href : null
}

/** The host, if the link's text names a different one; otherwise null. */
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
