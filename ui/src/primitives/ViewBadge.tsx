// The view of an answer, with its description as title.
import type { View } from "../api/types"
import { words } from "../words"
import { optionOf, VIEWS } from "./views"

export function ViewBadge({ view }: { view: View }) {
  const option = optionOf(VIEWS, view)
  return (
    <span className="view-badge" data-view={view} title={option?.note}>
      <span className="view-dot" data-view={view} />
      {words.pickers.badges[view]}
    </span>
  )
}
