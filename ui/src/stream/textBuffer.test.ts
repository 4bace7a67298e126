import fc from "fast-check"
import { expect, test } from "vitest"

import { TextBuffer } from "./textBuffer"

test("the text is the joined pieces, whenever it is read", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.string(), fc.boolean(), fc.nat(20))), (steps) => {
      const pieces = new TextBuffer()
      let text = ""
      for (const [piece, look, tail] of steps) {
        pieces.append(piece)
        text += piece
        if (look) expect(pieces.text).toBe(text)
        expect(pieces.length).toBe(text.length)
        expect(text.endsWith(pieces.tail(tail))).toBe(true)
        expect(pieces.tail(tail).length).toBeGreaterThanOrEqual(Math.min(tail, text.length))
      }
      expect(pieces.text).toBe(text)
    }),
  )
})

test("appending to a long text takes no longer than to a short one", () => {
  const pieces = new TextBuffer()
  for (let n = 0; n < 1_000_000; n++) pieces.append("word ")
  expect(pieces.text).toHaveLength(5_000_000)
})
