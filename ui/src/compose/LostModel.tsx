// The chosen model does not exist any more: the reader decides which one answers instead.
import "../styles/compose/followUp.css"
import { plain } from "../text/visible"
import { words } from "../words"

interface Props {
  lost: string
  /** The model that can answer instead. */
  other: string
  onOther: () => void
  /** Absent if this user may not connect models. */
  onConnect?: (() => void) | undefined
}

export function LostModel({ lost, other, onOther, onConnect }: Props) {
  return (
    <section className="follow-up" data-testid="lost-model" data-held="true" aria-label={words.pickers.model}>
      <p className="follow-up__words" role="status">{words.lostModel.text(plain(lost))}</p>
      <div className="follow-up__buttons">
        <button type="button" className="quiet-button" data-testid="lost-model-other" onClick={onOther}>{words.lostModel.other(plain(other))}</button>
        {onConnect && <button type="button" className="quiet-button" onClick={onConnect}>{words.modelNotes.connect}</button>}
      </div>
    </section>
  )
}
