// A new chat: a heading, the model, and example questions.
import { modelName } from "../connect/about"
import { fill } from "../text/fill"
import { words } from "../words"
import type { EmptyStateProps } from "./props"

export function EmptyState({ model, none = false, onAsk, onConnect }: EmptyStateProps) {
  return (
    <div className="empty" data-testid="empty">
      <div className="empty__inner">
        <h2 className="empty__title">{words.start.title}</h2>
        <p className="empty__lead">
          {none
            ? onConnect ? words.start.connectFirst : words.start.noModel
            : model ? fill(words.start.model, { model: <strong>{modelName(model)}</strong> }) : words.start.anyModel}
          {model?.embedded && ` ${words.start.embedded}`}
          {model?.loading && <span data-testid="loading"> {words.start.loading}</span>}
          {model?.larger && onConnect && !model.loading && ` ${words.start.larger(modelName(model.larger))}`}
        </p>
        <p className="empty__connect">
          {onConnect && (
            <button type="button" className={none ? "button button--first" : "button"} data-testid="connect-open" onClick={onConnect}>{words.modelNotes.connect}</button>
          )}
        </p>
        {!none && onAsk && (
          <ul className="empty__questions">
            {words.start.questions.map((question) => (
              <li key={question}>
                <button type="button" className="empty__question" onClick={() => onAsk(question)}>{question}</button>
              </li>
            ))}
          </ul>
        )}
      </div>
    </div>
  )
}
