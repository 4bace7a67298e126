// A native modal dialog: it traps the focus, closes on Escape and makes the rest inert.
import { useLayoutEffect, useRef } from "react"
import type { ReactNode } from "react"

interface Props {
  className: string
  label: string
  onClose: () => void
  children: ReactNode
}

/** The dialog is open as long as it is mounted. */
export function Dialog({ className, label, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null)
  // Close it while it is still in the document: only then does the browser restore the focus.
  useLayoutEffect(() => {
    const element = dialog.current
    element?.showModal()
    return () => element?.close()
  }, [])
  return (
    // The dialog handles keys itself (Escape fires `cancel`). Clicks on the backdrop are for pointers only.
    <dialog
      ref={dialog}
      className={className}
      aria-label={label}
      onCancel={(event) => {
        event.preventDefault()
        onClose()
      }}
      onClick={(event) => {
        if (event.target === dialog.current) onClose()
      }}
    >
      {children}
    </dialog>
  )
}
