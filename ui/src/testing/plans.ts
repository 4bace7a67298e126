// Arbitrary answers for property tests.
import fc from "fast-check"

import type { Planned } from "./recorded"

const words = fc.oneof(fc.string({ minLength: 1, maxLength: 8 }), fc.constantFrom("日本", "🙂", "é", "\n\n", "**", "\r\n", "שלום"))
const deltas = fc.array(words, { minLength: 1, maxLength: 4 })

export const plans: fc.Arbitrary<Planned[]> = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant("reasoning" as const), parts: fc.array(deltas, { maxLength: 3 }) }),
    fc.record({ kind: fc.constant("tool" as const), name: words, args: words, result: words, logs: fc.array(words, { maxLength: 2 }) }),
    fc.record({ kind: fc.constant("text" as const), deltas }),
  ),
  { maxLength: 6 },
)
