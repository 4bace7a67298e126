import type { Ref } from "react"

interface Props {
  /** Opens the browser's dialog: `click()`. */
  ref: Ref<HTMLInputElement>
  label: string
  testId: string
  onPick: (files: File[]) => void
}

/** The browser's dialog for files. The same file can be picked again. */
export function FilePicker({ ref, label, testId, onPick }: Props) {
  return (
    <input
      ref={ref}
      type="file"
      multiple
      hidden
      data-testid={testId}
      aria-label={label}
      onChange={(event) => {
        onPick([...(event.target.files ?? [])])
        event.target.value = ""
      }}
    />
  )
}
