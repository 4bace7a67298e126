// Filters of a space: level of detail, participants, kinds, text.
import { plain } from "../text/visible"
import { useRoom } from "./room"
import { GROUPS } from "./rows"
import type { Filter, Group, SpaceView } from "./rows"

export const VIEWS: readonly { value: SpaceView; name: string; note: string }[] = [
  { value: "full", name: "Everything", note: "Every thought" },
  { value: "folded", name: "Folded", note: "One or two lines for each context" },
  { value: "main", name: "Conversation", note: "Only messages to everyone" },
]

const NAMES: Record<Group, string> = {
  thoughts: "Thoughts", questions: "Questions", observations: "Observations", hypotheses: "Hypotheses",
  conclusions: "Conclusions", tools: "Tools", chat: "Chat", notices: "Notices",
}

interface Props {
  filter: Filter
  participants: readonly string[]
  onFilter: (filter: Filter) => void
}

const toggled = <T,>(set: ReadonlySet<T>, one: T): ReadonlySet<T> => {
  const next = new Set(set)
  if (!next.delete(one)) next.add(one)
  return next
}

export function ViewSwitch({ filter, onFilter }: Omit<Props, "participants">) {
  return (
    <div className="segments" role="group" aria-label="Level of detail">
      {VIEWS.map(({ value, name, note }) => (
        <button key={value} type="button" className="segments__item" data-testid={`view-${value}`} title={note} aria-pressed={filter.view === value} onClick={() => onFilter({ ...filter, view: value })}>
          {name}
        </button>
      ))}
    </div>
  )
}

export function Filters({ filter, participants, onFilter }: Props) {
  const { colourOf } = useRoom()
  return (
    <section className="filters" aria-label="Filter" data-testid="filters">
      <label className="search filters__text">
        <span className="visually-hidden">Filter by text</span>
        <input
          type="search"
          className="search__field"
          data-testid="filter-text"
          placeholder="Filter by text"
          dir="auto"
          defaultValue={filter.text}
          onChange={(event) => onFilter({ ...filter, text: event.target.value.trim().toLowerCase() })}
        />
      </label>
      {participants.length > 0 && (
        <div className="filters__row" role="group" aria-label="Participants">
          {participants.map((id) => (
            <button key={id} type="button" className="pill" data-colour={colourOf(id)} aria-pressed={!filter.without.has(id)} onClick={() => onFilter({ ...filter, without: toggled(filter.without, id) })}>
              <span className="pill__dot" aria-hidden="true" /><bdi>{plain(id)}</bdi>
            </button>
          ))}
        </div>
      )}
      <div className="filters__row" role="group" aria-label="Kinds">
        {GROUPS.map((group) => (
          <button key={group} type="button" className="pill" aria-pressed={!filter.hidden.has(group)} onClick={() => onFilter({ ...filter, hidden: toggled(filter.hidden, group) })}>
            {NAMES[group]}
          </button>
        ))}
      </div>
    </section>
  )
}
