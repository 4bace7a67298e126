// The participants of a space and their status. Each name scrolls to the participant's lane.
import { plain } from "../text/visible"
import type { Lane } from "./fold"
import { useRoom } from "./room"
import type { Participant } from "./session"
import { words } from "../words"

interface Props {
  participants: readonly Participant[]
  lanes: readonly Lane[]
  colourOf: (who: string) => number
  onPane: (pane: string) => void
}

export function ParticipantBar({ participants, lanes, colourOf, onPane }: Props) {
  const { me } = useRoom()
  const presence = new Map(participants.map(({ id, present }) => [id, present]))
  const others = participants.filter(({ id, present }) => present && id !== me && !lanes.some((lane) => lane.id === id))
  return (
    <nav className="participant-bar" aria-label={words.spaces.participants.label}>
      <ul className="participant-bar__list">
        <li><button type="button" className="participant-bar__item" data-testid="to-main" onClick={() => onPane("")}>{words.spaces.participants.conversation}</button></li>
        {lanes.map((lane) => {
          const thinking = [...lane.open].some((context) => context.start !== null)
          const isPresent = presence.get(lane.id) === true
          return (
            <li key={lane.id}>
              <button type="button" className="participant-bar__item" data-testid="to-lane" data-colour={colourOf(lane.id)} data-present={isPresent} title={isPresent ? words.spaces.participants.present : words.spaces.participants.absent} onClick={() => onPane(lane.id)}>
                <span className={thinking ? "participant-bar__dot participant-bar__dot--busy" : "participant-bar__dot"} aria-hidden="true" />
                <bdi className="participant-bar__name">{plain(lane.id)}</bdi>
                {thinking && <span className="visually-hidden">{words.spaces.participants.thinkingMark}</span>}
                {!isPresent && <span className="visually-hidden">{words.spaces.participants.absentMark}</span>}
                {lane.waiting.size > 0 && <span className="participant-bar__waiting">{lane.waiting.size}<span className="visually-hidden">{words.spaces.participants.waitingMark}</span></span>}
              </button>
            </li>
          )
        })}
        {others.length > 0 && (
          <li className="participant-bar__others">
            <span className="participant-bar__label">{words.spaces.participants.others}</span> {others.map(({ id }, index) => <span key={id}>{index > 0 && ", "}<bdi>{plain(id)}</bdi></span>)}
          </li>
        )}
      </ul>
    </nav>
  )
}
