// The participants of a space and their status. Each name scrolls to the participant's lane.
import { plain } from "../text/visible"
import type { Lane } from "./fold"
import { useRoom } from "./room"
import type { Person } from "./session"

interface Props {
  people: readonly Person[]
  lanes: readonly Lane[]
  colourOf: (who: string) => number
  onPane: (pane: string) => void
}

export function ParticipantBar({ people, lanes, colourOf, onPane }: Props) {
  const { me } = useRoom()
  const presence = new Map(people.map(({ id, present }) => [id, present]))
  const others = people.filter(({ id, present }) => present && id !== me && !lanes.some((lane) => lane.id === id))
  return (
    <nav className="strip" aria-label="Participants">
      <ul className="strip__list">
        <li><button type="button" className="strip__one strip__one--main" data-testid="to-main" onClick={() => onPane("")}>Conversation</button></li>
        {lanes.map((lane) => {
          const thinking = [...lane.open].some((context) => context.start !== null)
          const isPresent = presence.get(lane.id) === true
          return (
            <li key={lane.id}>
              <button type="button" className="strip__one" data-testid="to-lane" data-colour={colourOf(lane.id)} data-present={isPresent} title={isPresent ? "Here" : "Not here"} onClick={() => onPane(lane.id)}>
                <span className={thinking ? "strip__dot strip__dot--busy" : "strip__dot"} aria-hidden="true" />
                <bdi className="strip__name">{plain(lane.id)}</bdi>
                {thinking && <span className="visually-hidden">, thinking</span>}
                {!isPresent && <span className="visually-hidden">, not here</span>}
                {lane.waiting.size > 0 && <span className="strip__waiting">{lane.waiting.size}<span className="visually-hidden"> waiting</span></span>}
              </button>
            </li>
          )
        })}
        {others.length > 0 && (
          <li className="strip__others">
            <span className="strip__also">also here:</span> {others.map(({ id }, index) => <span key={id}>{index > 0 && ", "}<bdi>{plain(id)}</bdi></span>)}
          </li>
        )}
      </ul>
    </nav>
  )
}
