// The browser's own modal dialog: it keeps the focus, closes on Escape and makes the rest inert.
import { useLayoutEffect, useRef } from "react"
import type { ReactNode } from "react"

interface Props {
  className: string
  label: string
  onClose: () => void
  children: ReactNode
}

/** Open as long as it is drawn. */
export function Dialog({ className, label, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null)
  // It is closed while it is still there: only then does the browser give the focus back.
  useLayoutEffect(() => {
    const element = dialog.current
    element?.showModal()
    return () => element?.close()
  }, [])
  return (
    // Keys are the dialog's own: Escape fires cancel. A press beside it is for the pointer alone.
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
