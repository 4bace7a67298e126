import { expect, test } from "vitest"

import { BusContext } from "../stream/hooks"
import type { Conflict } from "../stream/pendingAnswer"
import { StreamingBus } from "../stream/streamingBus"
import { draw } from "../text/draw.testkit"
import { words } from "../words"
import { Announcer } from "./Announcer"

test.each<Conflict>(["moved", "busy"])("of a conflict (%s), screen readers hear what is shown", (conflict) => {
  const pending = { key: "1", phase: "refused", conversation_id: "chat_1", event_id: null, stopping: false, skew: 0, error: "follows: load it again", conflict } as const
  const { box } = draw(
    <BusContext value={new StreamingBus(() => undefined)}>
      <Announcer pending={pending} ended={null} />
    </BusContext>,
  )
  expect(box.textContent).toContain(words.live.conflict[conflict].message)
  expect(box.textContent).not.toContain("follows")
})
