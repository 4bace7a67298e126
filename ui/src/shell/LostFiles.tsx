// The files of a draft are in the page alone: after a reload, their names stand where they were.
import "../styles/compose/followUp.css"
import { plain } from "../text/visible"
import { words } from "../words"

interface Props {
  names: readonly string[]
  /** Open the browser's dialog for files. */
  onAttach: () => void
  onDismiss: () => void
}

export function LostFiles({ names, onAttach, onDismiss }: Props) {
  return (
    <section className="follow-up" data-testid="lost-files" aria-label={words.compose.files}>
      <p className="follow-up__words" role="status" dir="auto">{words.lostFiles.text(names.map(plain).join(", "), names.length)}</p>
      <div className="follow-up__buttons">
        <button type="button" className="quiet-button" data-testid="attach-again" onClick={onAttach}>{words.lostFiles.attach}</button>
        <button type="button" className="quiet-button" onClick={onDismiss}>{words.lostFiles.dismiss}</button>
      </div>
    </section>
  )
}
