// The pages that an answer rests on, beneath its text. They are known with the final event and come below all that is
// being read then: they may push nothing, and whoever reads at the end is not taken along.
import { useId, useLayoutEffect, useMemo, useRef } from "react"

import type { Answer } from "../api/types"
import { visible } from "../text/visible"
import { WebLink } from "../text/WebLink"
import { useStopFollowing } from "./followEnd"
import { sourcesOf } from "./citations"

const MOST = 100

/** `event` is absent while it streams. */
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
      <span className="sources__name" id={name}>Sources</span>
      {/* Without its marks, a list is one for some readers only if it says so. */}
      <ol className="sources__list" role="list" aria-labelledby={name}>
        {sources.slice(0, MOST).map(({ href, host, title }, index) => (
          <li key={href} className="sources__item">
            <span className="sources__number">{index + 1}</span>
            <WebLink href={href} className="sources__link">
              {title !== "" && <><bdi className="sources__title">{visible(title)}</bdi>{" "}</>}
              <span className="sources__host" dir="ltr">{host}</span>
            </WebLink>
          </li>
        ))}
        {sources.length > MOST && <li className="sources__item">and {sources.length - MOST} more</li>}
      </ol>
    </div>
  )
}
