// The question that waits for the end of an answer. If the answer did not finish, the reader decides.
import "../styles/compose/followUp.css"
import { visible } from "../text/visible"
import { words } from "../words"
import type { QuestionDraft } from "./questionFile"

interface Props {
  question: QuestionDraft
  /** The answer is in progress. */
  waiting: boolean
  onSend: () => void
  onEdit: () => void
  onDiscard: () => void
}

export function FollowUp({ question, waiting, onSend, onEdit, onDiscard }: Props) {
  const count = question.files.length
  return (
    <section className="follow-up" data-testid="follow-up" data-held={!waiting} aria-label={words.followUp.label}>
      <div className="follow-up__words">
        <p className="follow-up__lead" role="status">{waiting ? words.followUp.waits : words.followUp.held}</p>
        <p className="follow-up__text" dir="auto">
          {visible(question.text)}
          {count > 0 && <span className="follow-up__files"> {words.followUp.files(count)}</span>}
        </p>
      </div>
      <div className="follow-up__buttons">
        {!waiting && <button type="button" className="quiet-button" data-testid="follow-up-send" onClick={onSend}>{words.followUp.send}</button>}
        <button type="button" className="quiet-button" data-testid="follow-up-edit" onClick={onEdit}>{words.followUp.edit}</button>
        <button type="button" className="quiet-button" data-testid="follow-up-discard" onClick={onDiscard}>{words.followUp.discard}</button>
      </div>
    </section>
  )
}
