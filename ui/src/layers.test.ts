// The order of the folders: each imports only from those before it. What stands next to this file is below all of them
// (words and what they need, storage, addresses), or above (the pages).
import { readdirSync, readFileSync } from "node:fs"
import { dirname, join, normalize } from "node:path"
import { expect, test } from "vitest"

const SOURCE = import.meta.dirname
const FOLDERS = ["api", "text", "primitives", "compose", "connect", "live", "stream", "chat", "conversation", "shell", "spaces"]
const BASE = ["formats", "words", "storage", "routes"]
/** For tests alone. */
const TESTS = /\.test\.|testkit|^testing\//

const levelOf = (path: string): number => {
  const folder = dirname(path)
  if (folder === ".") return BASE.includes(path.replace(/\.tsx?$/, "")) ? -1 : FOLDERS.length
  return FOLDERS.indexOf(folder.split("/")[0] ?? "")
}

function imports(path: string): string[] {
  const code = readFileSync(join(SOURCE, path), "utf-8")
  const specifiers = Array.from(code.matchAll(/\b(?:from|import) ?\(?"(\.[^"]+)"/g), (match) => match[1] ?? "")
  return specifiers.filter((one) => !one.endsWith(".css")).map((one) => normalize(join(dirname(path), one)))
}

test("a folder imports only from the folders before it", () => {
  const files = readdirSync(SOURCE, { recursive: true, encoding: "utf-8" }).filter((path) => /\.tsx?$/.test(path) && !path.endsWith(".d.ts") && !TESTS.test(path))
  const unknown = files.filter((path) => dirname(path) !== "." && levelOf(path) < 0)
  const wrong = files.flatMap((path) =>
    imports(path)
      .filter((target) => levelOf(target) > levelOf(path) || (levelOf(target) === levelOf(path) && dirname(target) !== dirname(path)))
      .map((target) => `${path} imports ${target}`),
  )
  expect({ unknown, wrong }).toEqual({ unknown: [], wrong: [] })
  // The words of a module are imported; so the rule sees imports.
  expect(imports("shell/Sidebar.tsx")).toContain("words")
})
