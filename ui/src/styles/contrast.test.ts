// The colours of both themes in tokens.css (and those of participants) have WCAG's contrast ratios: 4.5 for text, 3 for
// icons and borders.
import { readFileSync } from "node:fs"
import { describe, expect, it } from "vitest"

const css = ["tokens.css", "spaces/colours.css"].map((name) => readFileSync(`src/styles/${name}`, "utf8")).join()
const colours = new Map<string, [string, string]>()
for (const [, name = "", light = "", dark = ""] of css.matchAll(/--([\w-]+): light-dark\((#[\da-f]+), (#[\da-f]+)\)/g)) colours.set(name, [light, dark])

function luminance(hex: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const channel = Number.parseInt(hex.slice(at, at + 2), 16) / 255
    return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

function ratio(name: string, ground: string, theme: 0 | 1): number {
  const pair = [name, ground].map((one) => luminance(colours.get(one)?.[theme] ?? "")).toSorted((a, b) => b - a)
  return ((pair[0] ?? 0) + 0.05) / ((pair[1] ?? 0) + 0.05)
}

const GROUNDS = ["ground", "ground-side", "ground-raised", "ground-quiet", "ground-code", "glass"]
const TEXT: [string, string[]][] = [
  ["ink", GROUNDS],
  ["ink-quiet", GROUNDS],
  ["ink-faint", GROUNDS],
  ["accent", GROUNDS],
  ["danger", [...GROUNDS, "danger-ground"]],
  ["ink", ["danger-ground"]],
  ["warning", ["ground", "ground-side", "ground-raised", "ground-quiet", "glass", "ground-code"]],
  ["on-accent", ["accent-ground"]],
  ...Array.from({ length: 8 }, (_, index): [string, string[]] => [`who-${index}`, GROUNDS]),
  ...["code-word", "code-text", "code-number", "code-name", "code-note"].map((name): [string, string[]] => [name, ["ground-code"]]),
]
const ICONS: [string, string[]][] = [
  ["line-strong", ["ground", "ground-raised", "glass"]],
  ["accent", GROUNDS],
  ["good", ["ground", "glass"]],
]

describe.each([[0, "light"], [1, "dark"]] as const)("the colours", (theme, name) => {
  for (const [least, rows] of [[4.5, TEXT], [3, ICONS]] as const) {
    for (const [colour, grounds] of rows) {
      it(`${name}: ${colour} is ${least} on ${grounds.join(", ")}`, () => {
        for (const ground of grounds) expect(ratio(colour, ground, theme), ground).toBeGreaterThanOrEqual(least)
      })
    }
  }
})
