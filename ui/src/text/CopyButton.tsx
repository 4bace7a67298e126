// A button that copies a text and shows the result for a moment.
import { useEffect, useState } from "react"
import { words } from "../words"

async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  // Without a secure context, browsers have no clipboard API.
  const area = document.createElement("textarea")
  area.value = text
  area.className = "visually-hidden"
  document.body.append(area)
  area.select()
  const isCopied = document.execCommand("copy")
  area.remove()
  if (!isCopied) throw new Error("the browser does not allow copying")
}

interface Props {
  text: string
  label: string
}

export function CopyButton({ text, label }: Props) {
  const [state, setState] = useState("")
  useEffect(() => {
    if (!state) return
    const timer = setTimeout(() => setState(""), 1_600)
    return () => clearTimeout(timer)
  }, [state])
  return (
    <button
      type="button"
      className="code__copy"
      aria-label={label}
      onClick={() => copyText(text).then(() => setState(words.common.copied), () => setState(words.common.copyRefused))}
    >
      <span aria-live="polite">{state || words.common.copy}</span>
    </button>
  )
}
