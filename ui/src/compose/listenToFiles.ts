// Files that are dropped anywhere on the page, or pasted while nothing else but the question is written.
import { isTyping } from "./shortcuts"

interface Listeners {
  onFiles: (files: readonly File[]) => void
  /** Files are over the page, or have left it. */
  onDropping: (dropping: boolean) => void
}

const hasFiles = (event: DragEvent) => event.dataTransfer?.types.some((type) => type.toLowerCase() === "files") ?? false

export function listenToFiles(field: HTMLElement, { onFiles, onDropping }: Listeners, signal: AbortSignal): void {
  if (signal.aborted) return
  // Without preventDefault, the browser would leave the page and open the file.
  const over = (event: DragEvent) => {
    if (!hasFiles(event)) return
    event.preventDefault()
    onDropping(true)
  }
  const leave = (event: DragEvent) => {
    if (event.relatedTarget === null) onDropping(false)
  }
  const drop = (event: DragEvent) => {
    onDropping(false)
    if (!hasFiles(event)) return
    event.preventDefault()
    onFiles([...(event.dataTransfer?.files ?? [])])
  }
  const paste = (event: ClipboardEvent) => {
    const { files } = event.clipboardData ?? {}
    // Office programs put a picture next to the text that was copied.
    if (!files?.length || event.clipboardData?.getData("text/plain")) return
    if (event.target !== field && isTyping(event.target)) return
    event.preventDefault()
    onFiles([...files])
  }
  addEventListener("dragover", over, { signal })
  addEventListener("dragleave", leave, { signal })
  addEventListener("drop", drop, { signal })
  addEventListener("paste", paste, { signal })
}
