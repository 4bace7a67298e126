// Files that are dropped anywhere on the page, or pasted while nothing else but the question is written.
import { isTyping } from "./shortcuts"

interface Listeners {
  onFiles: (files: readonly File[]) => void
  /** Files are over the page, or have left it. */
  onDropping: (dropping: boolean) => void
}

const hasFiles = (event: DragEvent) => event.dataTransfer?.types.some((type) => type.toLowerCase() === "files") ?? false

/** The files of a clipboard. Office programs put a picture next to the text that was copied: the text is meant. */
export const pastedFiles = (data: DataTransfer | null): File[] => (data === null || data.getData("text/plain") !== "" ? [] : [...data.files])

export function listenToFiles(field: HTMLElement, { onFiles, onDropping }: Listeners, signal: AbortSignal): void {
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
    // A form that is open may have taken them.
    if (!hasFiles(event) || event.defaultPrevented) return
    event.preventDefault()
    onFiles([...(event.dataTransfer?.files ?? [])])
  }
  const paste = (event: ClipboardEvent) => {
    if (event.target !== field && isTyping(event.target)) return
    const files = pastedFiles(event.clipboardData)
    if (files.length === 0) return
    event.preventDefault()
    onFiles(files)
  }
  addEventListener("dragover", over, { signal })
  addEventListener("dragleave", leave, { signal })
  addEventListener("drop", drop, { signal })
  addEventListener("paste", paste, { signal })
}
