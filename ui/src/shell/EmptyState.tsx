// A new chat: a heading, the model, and example questions.
import { plain } from "../text/visible"
import type { EmptyStateProps } from "./props"

const QUESTIONS = [
  "A bat and a ball cost 1.10 together. The bat costs 1.00 more than the ball. What does the ball cost?",
  "Explain to a child why the sky is blue.",
  "Write a function that finds the longest palindrome in a text, and say how fast it is.",
]

export function EmptyState({ model, none = false, onAsk }: EmptyStateProps) {
  return (
    <div className="empty" data-testid="empty">
      <div className="empty__inner">
        <h2 className="empty__title">What would you like to ask?</h2>
        <p className="empty__lead">
          {none && "No model is available yet. The operator of this gateway can add one with --upstream-model or in the configuration."}
          {none ? null : model ? <><strong>{plain(model.id)}</strong> answers, and you can watch it think.</> : "Ask, and watch it think."}
          {model?.embedded && " It runs on this machine: nothing you write leaves it."}
        </p>
        <ul className="empty__questions">
          {!none && QUESTIONS.map((question) => (
            <li key={question}>
              <button type="button" className="empty__question" onClick={() => onAsk(question)}>{question}</button>
            </li>
          ))}
        </ul>
      </div>
    </div>
  )
}
