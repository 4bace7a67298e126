// Filters of a space: level of detail, participants, kinds, text.
import { plain } from "../text/visible"
import { useRoom } from "./room"
import { GROUPS } from "./rows"
import type { Filter, Group, SpaceView } from "./rows"
import { words } from "../words"

const VIEWS = Object.entries(words.spaces.filters.views) as [SpaceView, [name: string, note: string]][]

const NAMES: Record<Group, string> = words.spaces.filters.groups

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
    <div className="segments" role="group" aria-label={words.spaces.filters.detail}>
      {VIEWS.map(([value, [name, note]]) => (
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
    <section className="filters" aria-label={words.spaces.filters.label} data-testid="filters">
      <label className="search filters__text">
        <span className="visually-hidden">{words.spaces.filters.byText}</span>
        <input
          type="search"
          className="search__field"
          data-testid="filter-text"
          placeholder={words.spaces.filters.byText}
          dir="auto"
          defaultValue={filter.text}
          onChange={(event) => onFilter({ ...filter, text: event.target.value.trim().toLowerCase() })}
        />
      </label>
      {participants.length > 0 && (
        <div className="filters__row" role="group" aria-label={words.spaces.participants.label}>
          {participants.map((id) => (
            <button key={id} type="button" className="pill" data-colour={colourOf(id)} aria-pressed={!filter.without.has(id)} onClick={() => onFilter({ ...filter, without: toggled(filter.without, id) })}>
              <span className="pill__dot" aria-hidden="true" /><bdi>{plain(id)}</bdi>
            </button>
          ))}
        </div>
      )}
      <div className="filters__row" role="group" aria-label={words.spaces.filters.kinds}>
        {GROUPS.map((group) => (
          <button key={group} type="button" className="pill" aria-pressed={!filter.hidden.has(group)} onClick={() => onFilter({ ...filter, hidden: toggled(filter.hidden, group) })}>
            {NAMES[group]}
          </button>
        ))}
      </div>
    </section>
  )
}
