// Inline text: emphasis, code, links, formulas. Rendered from tokens as elements, never as HTML.
import type { Links, Token, Tokens } from "marked"
import { memo, useContext, useMemo } from "react"
import type { ReactNode } from "react"

import { FormulaView } from "./FormulaView"
import { readInline } from "./grammar"
import type { Formula } from "./grammar"
import { LIMITS } from "./limits"
import { hiddenHost, safeHref } from "./links"
import { TextRoleContext } from "./role"
import { visible } from "./visible"
import { WebLink } from "./WebLink"
import { words } from "../words"

const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00A0", copy: "©", mdash: "—", ndash: "–", hellip: "…", times: "×", rarr: "→", larr: "←", middot: "·", deg: "°" }

function unescape(text: string): string {
  if (!text.includes("&")) return text
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]{2,8}));/gi, (whole, decimal, hex, name) => {
    if (name) return ENTITIES[name] ?? whole
    const code = decimal ? Number.parseInt(decimal, 10) : Number.parseInt(hex, 16)
    return code > 0 && code <= 0x10_ffff && !(code >= 0xd800 && code <= 0xdfff) ? String.fromCodePoint(code) : "\uFFFD"
  })
}

function Link({ href: address, label, children }: { href: string; label: string; children: ReactNode }) {
  const role = useContext(TextRoleContext)
  const href = safeHref(address)
  if (role === "overlay") return <span className="link">{children}</span>
  if (!href) return <span className="link link--dead" title={words.text.blockedLink}>{children}</span>
  const elsewhere = hiddenHost(label, href)
  return (
    <>
      <WebLink className="link" href={href}>{children}</WebLink>
      {elsewhere && <span className="link__host"> ({elsewhere})</span>}
    </>
  )
}

function drawAll(tokens: readonly Token[] | undefined, depth: number): ReactNode {
  return tokens?.map((token, index) => draw(token, index, depth))
}

function draw(token: Token, key: number, depth: number): ReactNode {
  if (depth > LIMITS.depth) return visible(token.raw)
  switch (token.type) {
    case "strong":
      return <strong key={key}>{drawAll(token.tokens, depth + 1)}</strong>
    case "em":
      return <em key={key}>{drawAll(token.tokens, depth + 1)}</em>
    case "del":
      return <del key={key}>{drawAll(token.tokens, depth + 1)}</del>
    case "codespan":
      return <code key={key} className="code-span" dir="ltr">{visible((token as Tokens.Codespan).text)}</code>
    case "br":
      return <br key={key} />
    case "checkbox":
      return null
    case "link": {
      const link = token as Tokens.Link
      return <Link key={key} href={link.href} label={link.text}>{drawAll(link.tokens, depth + 1)}</Link>
    }
    case "image": {
      const image = token as Tokens.Image
      const label = image.text || words.text.image
      return <Link key={key} href={image.href} label={label}><span className="link__image">{visible(unescape(label))}</span></Link>
    }
    case "formula": {
      const formula = token as Formula
      return <FormulaView key={key} tex={formula.tex} display={formula.display} />
    }
    default: {
      const inner = (token as Tokens.Text).tokens
      if (inner?.length) return <span key={key}>{drawAll(inner, depth + 1)}</span>
      const text = (token as Tokens.Text).text ?? token.raw
      return <span key={key}>{visible(token.type === "escape" ? text : unescape(text))}</span>
    }
  }
}

interface Props {
  text: string
  links?: Links
}

export const Inline = memo(function Inline({ text, links }: Props) {
  return useMemo(() => drawAll(readInline(text, links), 0), [text, links])
})
