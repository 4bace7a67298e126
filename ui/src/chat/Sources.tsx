// The pages that an answer cites, below its text. They arrive with the final event, below everything else: they move
// nothing, and a reader at the end is not scrolled.
import { useId, useLayoutEffect, useMemo, useRef } from "react"

import type { Answer } from "../api/types"
import { visible } from "../text/visible"
import { WebLink } from "../text/WebLink"
import { useStopFollowing } from "./followEnd"
import { sourcesOf } from "./citations"
import type { Source } from "./citations"
import { words } from "../words"

const MAX_SOURCES = 100

/** `event` is undefined while the answer streams. */
export function Sources({ event }: { event: Answer | undefined }) {
  const sources = useMemo(() => (event ? sourcesOf(event) : []), [event])
  const name = useId()
  const stopFollowing = useStopFollowing()
  const streamed = useRef(event === undefined)
  useLayoutEffect(() => {
    if (streamed.current && sources.length > 0) stopFollowing()
    streamed.current = event === undefined
  }, [event, sources, stopFollowing])
  if (sources.length === 0) return null
  return (
    <div className="sources" data-testid="sources">
      <span className="sources__name" id={name}>{words.answer.sources}</span>
      <SourceList sources={sources} labelledBy={name} />
    </div>
  )
}

/** Safari's screen reader treats a list without markers as a list only if it has the role. */
export function SourceList({ sources, labelledBy }: { sources: readonly Source[]; labelledBy: string }) {
  return (
    <ol className="sources__list" role="list" aria-labelledby={labelledBy}>
      {sources.slice(0, MAX_SOURCES).map(({ href, host, title }, index) => (
        <li key={href} className="sources__item">
          <span className="sources__number">{index + 1}</span>
          <WebLink href={href} className="sources__link">
            {title !== "" && <><bdi className="sources__title">{visible(title)}</bdi>{" "}</>}
            <span className="sources__host" dir="ltr">{host}</span>
          </WebLink>
        </li>
      ))}
      {sources.length > MAX_SOURCES && <li className="sources__item">{words.answer.moreSources(sources.length - MAX_SOURCES)}</li>}
    </ol>
  )
}
