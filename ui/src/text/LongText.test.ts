import { expect, test } from "vitest"

import { endLists } from "./LongText"

test.each([
  ["1. a\n2. b\nSo it is.", "1. a\n2. b\n\nSo it is."],
  ["- a\n  more of a\nThen", "- a\n  more of a\n\nThen"],
  ["- a\n- b\n-", "- a\n- b\n-"],
  ["- a\n1", "- a\n1"],
  ["Text\nof two lines", "Text\nof two lines"],
  ["```\n- a\nb\n```", "```\n- a\nb\n```"],
])("a line after a list in %j stands by itself", (text, shown) => {
  expect(endLists(text)).toBe(shown)
})
