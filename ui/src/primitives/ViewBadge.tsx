// The view of an answer, with its description as title.
import type { View } from "../api/types"
import { optionOf, VIEWS } from "./views"

export function ViewBadge({ view }: { view: View }) {
  const option = optionOf(VIEWS, view)
  return (
    <span className="view-badge" data-view={view} title={option?.note}>
      <span className="view-dot" data-view={view} />
      {option?.name}
    </span>
  )
}
