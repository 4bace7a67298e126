// A new chat: a heading, the model, and example questions.
import { plain } from "../text/visible"
import type { EmptyStateProps } from "./props"
import { fill } from "../text/fill"
import { words } from "../words"

export function EmptyState({ model, none = false, onAsk }: EmptyStateProps) {
  return (
    <div className="empty" data-testid="empty">
      <div className="empty__inner">
        <h2 className="empty__title">{words.start.title}</h2>
        <p className="empty__lead">
          {none ? words.start.noModel : model ? fill(words.start.model, { model: <strong>{plain(model.id)}</strong> }) : words.start.anyModel}
          {model?.embedded && ` ${words.start.embedded}`}
        </p>
        <ul className="empty__questions">
          {!none && words.start.questions.map((question) => (
            <li key={question}>
              <button type="button" className="empty__question" onClick={() => onAsk(question)}>{question}</button>
            </li>
          ))}
        </ul>
      </div>
    </div>
  )
}
