// A link out of the page: in a window of its own, which knows nothing of this one, and says on hover where it leads.
import type { ReactNode } from "react"

import { plain } from "./visible"

interface Props {
  /** Of `safeHref` or `webHref`. */
  href: string
  className?: string
  children: ReactNode
}

export const WebLink = ({ href, className, children }: Props) => (
  <a {...(className && { className })} href={href} title={plain(href).slice(0, 500)} target="_blank" rel="noopener noreferrer nofollow">
    {children}
  </a>
)
