import { expect, test } from "vitest"

import { words } from "../words"
import { lineOf } from "./line"

test.each([
  ["**F** is $$F = G\\frac{m}{r}$$ here.", `F is ${words.text.formula} here.`],
  ["one\n\n------\n\n- two\n- `three`", "one two, three"],
  ["| a | b |\n|---|---|\n| 1 | 2 |", "a b, 1 2"],
  ["# Sums\n\n2 > 1 | 3 * 4 = 12: a#b", "Sums 2 > 1 | 3 * 4 = 12: a#b"],
  ["<script>alert(1)</script>", "<script>alert(1)</script>"],
  ["", ""],
])("%j is one line", (text, line) => {
  expect(lineOf(text)).toBe(line)
})
