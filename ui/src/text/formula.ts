// TeX to MathML, loaded on demand. The library's output is parsed as an inert document and copied by an allow-list, so
// that only MathML gets out.
import temml from "temml/dist/temml.mjs"
import { createElement } from "react"
import type { CSSProperties, ReactNode } from "react"

import { plain } from "./visible"

const ELEMENTS = new Set(
  ("math maction menclose merror mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow ms mspace " +
    "msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover none semantics annotation").split(" "),
)
const ATTRIBUTES = new Set(
  ("accent accentunder columnalign columnlines columnspacing columnspan depth dir display displaystyle encoding fence form height " +
    "largeop linethickness lspace mathbackground mathcolor mathsize mathvariant maxsize minsize movablelimits notation " +
    "rowlines rowspacing rowspan rspace scriptlevel separator stretchy symmetric voffset width").split(" "),
)
// Lengths and borders, needed for tables and boxes.
const STYLES = /^(?:padding|margin|border|width|min-width|height|text-align|vertical-align|display|font-style|font-weight|color|background-color|line-height|transform)(?:-(?:left|right|top|bottom))?$/

/** The invisible operators of MathML: the application of a function, times, separator, plus. */
const OPERATOR = /^[\u2061-\u2064]$/

function styles(text: string): CSSProperties {
  const result: Record<string, string> = {}
  for (const declaration of text.split(";")) {
    const [name = "", value = ""] = declaration.split(/:(.*)/s).map((side) => side.trim())
    if (STYLES.test(name) && /^[\w\s.%#+-]{1,60}$/.test(value)) {
      result[name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())] = value
    }
  }
  return result
}

function copy(node: Node, key: number): ReactNode {
  if (node.nodeType === 3) return OPERATOR.test(node.textContent ?? "") ? node.textContent : plain(node.textContent ?? "")
  if (!(node instanceof Element)) return null
  const name = node.localName.toLowerCase()
  if (!ELEMENTS.has(name)) return null
  const props: Record<string, unknown> = { key }
  for (const { name: attribute, value } of node.attributes) {
    if (ATTRIBUTES.has(attribute)) props[attribute] = value
    else if (attribute === "class" && /^[\w\s-]{1,100}$/.test(value)) props.className = value
    else if (attribute === "data-style") props.style = styles(value)
  }
  return createElement(name, props, ...[...node.childNodes].map(copy))
}

/** The formula as MathML, or null if the TeX is invalid. */
export function formula(tex: string, display: boolean): ReactNode {
  try {
    const markup = temml.renderToString(tex, {
      annotate: true,
      displayMode: display,
      maxExpand: 200,
      maxSize: [20, 50],
      strict: false,
      throwOnError: true,
      trust: false,
    })
    // The page's content security policy forbids style attributes, also in an inert document; quotes in texts are
    // escaped.
    const inert = markup.replaceAll(' style="', ' data-style="')
    const root = new DOMParser().parseFromString(inert, "text/html").querySelector("math")
    return root ? copy(root, 0) : null
  } catch {
    return null
  }
}
