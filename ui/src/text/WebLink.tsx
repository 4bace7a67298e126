// An external link: opens a new window without opener or referrer, and shows its address as title.
import type { ReactNode } from "react"

import { plain } from "./visible"

interface Props {
  /** The result of `safeHref` or `webHref`. */
  href: string
  className?: string
  children: ReactNode
}

export const WebLink = ({ href, className, children }: Props) => (
  <a {...(className && { className })} href={href} title={plain(href).slice(0, 500)} target="_blank" rel="noopener noreferrer nofollow">
    {children}
  </a>
)
