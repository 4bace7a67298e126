// Build configuration: output into the Python package, hashed names, nothing inline (the page's content security policy
// forbids it). The mode `pseudo` builds the page in a language for tests.
import react from "@vitejs/plugin-react"
import { parseSync } from "vite"
import type { ESTree } from "vite"
import { defineConfig } from "vitest/config"
import type { Plugin } from "vitest/config"

const gateway = process.env.PELLUCID_URL ?? "http://127.0.0.1:8080"

/**
 * Each chunk gets only the words that it uses: every section of words.ts becomes a module (`words.ts?chat`), every word of
 * it an export.
 */
const wordSections = (isPseudo: boolean): Plugin => ({
  name: "word-sections",
  apply: "build",
  enforce: "pre",
  transform(code, id) {
    const [file = "", section] = id.split("?")
    if (file.endsWith("/src/words.ts") && section !== undefined) return sectionModule(code, section, isPseudo)
    const found = /^import \{ words \} from "(.+)"$/m.exec(code)
    if (!found || !/\/src\/.+\.tsx?$/.test(file)) return null
    const used = /(?<![\w.])words\.(\w+)/g
    const sections = [...new Set(Array.from(code.matchAll(used), (match) => match[1]))]
    const imports = sections.map((name) => `import * as words_${name} from "${found[1]}.ts?${name}"`)
    return code.replaceAll(used, "words_$1").replace(/^import \{ words \} .*$/m, imports.join("\n"))
  },
})

function sectionModule(code: string, section: string, isPseudo: boolean): string {
  const all = parseSync("words.ts", code).program.body.flatMap((one) => (one.type === "ExportNamedDeclaration" && one.declaration?.type === "VariableDeclaration" ? one.declaration.declarations : []))[0]?.init
  const found = fieldsOf(all).find(({ name }) => name === section)
  if (!all || !found) throw new Error(`words.ts has no section ${section}`)
  const lines = fieldsOf(found.value).map(({ name, value }) => {
    const text = code.slice(value.start, value.end)
    return `const word_${name} = ${isPseudo ? `pseudo(${text}, "${section}.${name}")` : text}\nexport { word_${name} as ${name} }\n`
  })
  const imports = code.slice(0, all.start).replace(/^export const.*/m, "")
  return `${isPseudo ? 'import { pseudo } from "./testing/pseudo"\n' : ""}${imports}${lines.join("")}`
}

/** The properties of an object literal. */
const fieldsOf = (node: ESTree.Expression | null | undefined) =>
  node?.type !== "ObjectExpression" ? [] : node.properties.flatMap((one) => (one.type === "Property" && one.key.type === "Identifier" ? [{ name: one.key.name, value: one.value }] : []))

export default defineConfig(({ mode }) => ({
  plugins: [react(), wordSections(mode === "pseudo")],
  build: {
    outDir: "../src/pellucid/web",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
  },
  server: { proxy: { "/api": { target: gateway, changeOrigin: false } } },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"], testTimeout: 20_000 },
}))
