// Syntax highlighting, loaded on demand. The result is elements with class names.
import { createLowlight } from "lowlight"
import type { RootContent } from "hast"
import bash from "highlight.js/lib/languages/bash"
import c from "highlight.js/lib/languages/c"
import cpp from "highlight.js/lib/languages/cpp"
import csharp from "highlight.js/lib/languages/csharp"
import css from "highlight.js/lib/languages/css"
import diff from "highlight.js/lib/languages/diff"
import dockerfile from "highlight.js/lib/languages/dockerfile"
import go from "highlight.js/lib/languages/go"
import ini from "highlight.js/lib/languages/ini"
import java from "highlight.js/lib/languages/java"
import javascript from "highlight.js/lib/languages/javascript"
import json from "highlight.js/lib/languages/json"
import kotlin from "highlight.js/lib/languages/kotlin"
import lua from "highlight.js/lib/languages/lua"
import makefile from "highlight.js/lib/languages/makefile"
import php from "highlight.js/lib/languages/php"
import python from "highlight.js/lib/languages/python"
import r from "highlight.js/lib/languages/r"
import ruby from "highlight.js/lib/languages/ruby"
import rust from "highlight.js/lib/languages/rust"
import shell from "highlight.js/lib/languages/shell"
import sql from "highlight.js/lib/languages/sql"
import swift from "highlight.js/lib/languages/swift"
import typescript from "highlight.js/lib/languages/typescript"
import xml from "highlight.js/lib/languages/xml"
import yaml from "highlight.js/lib/languages/yaml"
import { createElement } from "react"
import type { ReactNode } from "react"

import { visible } from "./visible"

const lowlight = createLowlight({
  bash, c, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json, kotlin, lua, makefile, php, python, r,
  ruby, rust, shell, sql, swift, typescript, xml, yaml,
})

function draw(node: RootContent, key: number): ReactNode {
  if (node.type === "text") return visible(node.value)
  if (node.type !== "element") return null
  const names = node.properties.className
  return createElement("span", { key, className: Array.isArray(names) ? names.join(" ") : undefined }, ...node.children.map(draw))
}

/** The code as highlighted elements, or null if the language is unknown. */
export function highlight(code: string, language: string): ReactNode {
  if (!lowlight.registered(language)) return null
  try {
    return lowlight.highlight(language, code).children.map(draw)
  } catch {
    return null
  }
}
