// The panes of a space: the conversation, and the lane of one agent.
import { memo, useCallback, useMemo } from "react"
import type { ReactNode } from "react"

import { familyOf } from "./envelope"
import { ContextHead, ContextLine } from "./ContextHead"
import type { Fold, Lane } from "./fold"
import { useRoom } from "./room"
import { RowList } from "./RowList"
import type { Target } from "./RowList"
import { isNotice, laneRows, mainRows } from "./rows"
import type { Filter, Folds, Row } from "./rows"
import { ParticipantName } from "./badges"
import { ActionMessage, Discovery, Message, Notice, Step } from "./Step"
import { words } from "../words"

interface ConversationProps {
  fold: Fold
  rev: number
  filter: Filter
  folds: Folds
  target: Target | null
  from: number
  reading: boolean
  onEarlier: () => void
  foot: ReactNode
}

function drawMain(row: Row): ReactNode {
  if (row.type === "item" && row.discovery) return <Discovery item={row.item} {...row.discovery} />
  if (row.type === "head") return <ContextLine context={row.context} />
  if (familyOf(row.item.envelope.kind) === "mcp") return <ActionMessage item={row.item} />
  return isNotice(row.item.envelope) || familyOf(row.item.envelope.kind) === "reasoning" ? <Notice envelope={row.item.envelope} {...(row.before && { more: row.before })} /> : <Message item={row.item} />
}

export function ConversationPane({ fold, rev, filter, folds, target, from, reading, onEarlier, foot }: ConversationProps) {
  // eslint-disable-next-line react-hooks/exhaustive-deps -- the fold changes in place
  const rows = useMemo(() => mainRows(fold.main, filter, folds), [fold, rev, filter, folds])
  return (
    <section className="pane pane--main" data-pane="" aria-label={words.spaces.panes.conversation} data-testid="conversation">
      <RowList
        rows={rows}
        label={words.spaces.panes.messages}
        target={target}
        draw={drawMain}
        before={
          from > 1 && Number.isFinite(from) ? (
            <button type="button" className="text-button pane__earlier" data-testid="earlier" disabled={reading} onClick={onEarlier}>
              {reading ? words.common.loading : words.spaces.panes.earlier}
            </button>
          ) : null
        }
        empty={<p className="pane__empty">{reading ? words.common.loading : filter.text !== "" ? words.spaces.panes.noMatches : words.spaces.panes.noMessages}</p>}
      />
      <div className="pane__foot">{foot}</div>
    </section>
  )
}

interface LaneProps {
  lane: Lane
  rev: number
  filter: Filter
  folds: Folds
  target: Target | null
}

export const LanePane = memo(function LanePane({ lane, rev, filter, folds, target }: LaneProps) {
  const { colourOf } = useRoom()
  // eslint-disable-next-line react-hooks/exhaustive-deps -- the lane changes in place
  const rows = useMemo(() => laneRows(lane.items, filter, folds), [lane, rev, filter, folds])
  const draw = useCallback(
    (row: Row) =>
      row.type === "item" && row.discovery ? <Discovery item={row.item} {...row.discovery} /> : row.type === "head" ? <ContextHead context={row.context} open={row.open} owner={lane.id} /> : (
        <Step item={row.item} owner={row.item.context?.owner ?? lane.id} expanded={folds.get(row.item.key) === true} />
      ),
    [lane.id, folds],
  )
  const contexts = lane.items.filter((item) => item.type === "context").length
  return (
    <section className="pane pane--lane" data-pane={lane.id} data-colour={colourOf(lane.id)} aria-label={lane.id} data-testid="lane">
      <header className="pane__head">
        <h2 className="pane__name"><ParticipantName id={lane.id} /></h2>
        <span className="pane__count">{contexts === 0 ? "" : words.spaces.panes.contexts(contexts)}</span>
      </header>
      <RowList rows={rows} label={words.spaces.panes.reasoningOf(lane.id)} target={target} draw={draw} empty={<p className="pane__empty">{filter.text !== "" ? words.spaces.panes.noMatches : words.spaces.panes.nothing}</p>} />
    </section>
  )
})
