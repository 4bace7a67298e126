// The name that a participant gets in a space: without spaces.
import type { InputHTMLAttributes, Ref } from "react"

import { directionOf } from "../text/direction"

interface Props extends Pick<InputHTMLAttributes<HTMLInputElement>, "className" | "autoComplete"> {
  label: string
  testId: string
  value: string
  onChange: (name: string) => void
  ref?: Ref<HTMLInputElement>
}

export function ParticipantField({ label, testId, value, onChange, className = "", autoComplete = "nickname", ref }: Props) {
  return (
    <label className="sign-in__label">
      {label}
      <input
        ref={ref}
        className={`sign-in__field ${className}`.trim()}
        data-testid={testId}
        required
        maxLength={60}
        pattern="\S+"
        autoComplete={autoComplete}
        dir={directionOf(value)}
        value={value}
        onChange={(event) => onChange(event.target.value.replace(/\s+/g, "-"))}
      />
    </label>
  )
}
