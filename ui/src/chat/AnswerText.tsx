// The text of an answer, live or final. Both use the same elements, so nothing is rendered again at the end.
import type { ReactNode } from "react"

import type { Answer, FileSegment } from "../api/types"
import { useLiveText } from "../stream/hooks"
import { liveTexts } from "../stream/streamingBus"
import { safeHref } from "../text/links"
import { Markdown } from "../text/Markdown"
import { plain, visible } from "../text/visible"
import { WebLink } from "../text/WebLink"
import { contentOf } from "./format"
import { words } from "../words"

interface Props {
  eventId: string
  event: Answer | undefined
}

export function AnswerText({ eventId, event }: Props) {
  const live = useLiveText(eventId)
  const blocks = event ? finalBlocks(event) : live ? liveTexts(live).map((one, n) => <Markdown key={`text-${n}`} text={one.text.text} streaming />) : []
  return blocks.length > 0 ? <div className="answer__text" data-testid="answer-text">{blocks}</div> : null
}

function finalBlocks(event: Answer): ReactNode[] {
  let texts = 0
  return contentOf(event).map((segment) => {
    switch (segment.type) {
      case "text":
        return <Markdown key={`text-${texts++}`} text={segment.text} />
      case "refusal":
        return <p key={segment.id} className="answer__refusal" dir="auto">{visible(segment.text)}</p>
      case "file":
        return <File key={segment.id} segment={segment} />
    }
  })
}

/** A file is a link or a button; its content is not loaded until the user asks for it. */
function File({ segment }: { segment: FileSegment }) {
  const name = words.answer.file(plain(segment.media_type))
  if (segment.url !== undefined) {
    const href = safeHref(segment.url)
    return <p className="answer__file">{href ? <WebLink href={href}>{name}</WebLink> : name}</p>
  }
  return (
    <p className="answer__file">
      <button type="button" className="quiet-button" onClick={() => save(segment)}>{words.answer.save(name)}</button>
    </p>
  )
}

function save({ data = "" }: FileSegment) {
  const bytes = Uint8Array.from(atob(data), (character) => character.codePointAt(0) ?? 0)
  const address = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }))
  const link = document.createElement("a")
  link.href = address
  link.download = "answer"
  link.click()
  setTimeout(() => URL.revokeObjectURL(address), 10_000)
}
