// What the user thinks of an answer: good or bad, with a comment if they like.
import { lazy, Suspense, useState } from "react"

import { client } from "../api/client"
import type { Answer, Feedback as Opinion } from "../api/types"
import { icon } from "../primitives/icons"
import { words } from "../words"

const CommentDialog = lazy(() => import("./CommentDialog"))

const Thumb = icon(<path d="M6.5 9 9.6 3.4c1.4 0 2 .9 1.8 2.2L11 8.2h4a1.4 1.4 0 0 1 1.4 1.7l-1.1 5.2a1.5 1.5 0 0 1-1.5 1.2H6.5M6.5 8.7v7.6M3.5 8.7h3v7.6h-3z" />)

export function Feedback({ event }: { event: Answer }) {
  // The stored feedback, until the user changes it here.
  const [changed, setChanged] = useState<Opinion | null>()
  const [commenting, setCommenting] = useState(false)
  const [failed, setFailed] = useState(false)
  const opinion = changed === undefined ? event.feedback : changed
  const set = async (next: Opinion | null) => {
    setChanged(next)
    setFailed(false)
    try {
      await client.setFeedback(event.id, next)
    } catch (error) {
      setChanged(opinion ?? null)
      setFailed(true)
      throw error
    }
  }
  const rate = (rating: "up" | "down") => void set(opinion?.rating === rating ? null : { ...opinion, rating }).catch(() => undefined)
  return (
    <span className="feedback" data-testid="feedback">
      {(["up", "down"] as const).map((rating) => {
        return (
          <button
            key={rating}
            type="button"
            className={`icon-button feedback__button feedback__button--${rating}`}
            data-testid={`feedback-${rating}`}
            aria-label={words.feedback[rating]}
            title={words.feedback[rating]}
            aria-pressed={opinion?.rating === rating}
            onClick={() => rate(rating)}
          >
            <Thumb />
          </button>
        )
      })}
      {opinion && (
        <button type="button" className="quiet-button" data-testid="feedback-comment" onClick={() => setCommenting(true)}>
          {opinion.comment ? words.feedback.changeComment : words.feedback.addComment}
        </button>
      )}
      {failed && <span role="alert">{words.feedback.failed}</span>}
      {commenting && opinion && (
        <Suspense>
          <CommentDialog comment={opinion.comment ?? ""} onSave={(comment) => set({ rating: opinion.rating, comment })} onClose={() => setCommenting(false)} />
        </Suspense>
      )}
    </span>
  )
}
