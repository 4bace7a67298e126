// The icons of the page, drawn as lines in the text colour.
import type { ReactNode } from "react"

export function icon(shape: ReactNode, filled = false) {
  return function Icon() {
    return (
      <svg className="icon" viewBox="0 0 20 20" width="20" height="20" fill={filled ? "currentColor" : "none"} stroke={filled ? "none" : "currentColor"} strokeWidth="1.6" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
        {shape}
      </svg>
    )
  }
}

export const MenuIcon = icon(<path d="M3.5 6h13M3.5 10h13M3.5 14h8" />)
export const CloseIcon = icon(<path d="m5 5 10 10M15 5 5 15" />)
export const PlusIcon = icon(<path d="M10 4v12M4 10h12" />)
export const SearchIcon = icon(<><circle cx="9" cy="9" r="5" /><path d="m13 13 3.5 3.5" /></>)
export const MoreIcon = icon(<path d="M4.5 10h.01M10 10h.01M15.5 10h.01" strokeWidth="2.4" />)
export const SendIcon = icon(<path d="M10 16V4.5M5 9.5l5-5 5 5" />)
export const StopIcon = icon(<rect x="5.5" y="5.5" width="9" height="9" rx="1.5" fill="currentColor" stroke="none" />)
export const DownIcon = icon(<path d="m6 8 4 4 4-4" />)
export const SpaceIcon = icon(<><circle cx="7" cy="8" r="2.6" /><circle cx="13.5" cy="9.5" r="2" /><path d="M2.5 16a4.5 4.5 0 0 1 9 0M12 13.2a3.6 3.6 0 0 1 5 2.8" /></>)
export const CheckIcon = icon(<path d="m4.5 10.5 3.5 3.5 7.5-8" />)
export const SunIcon = icon(<><circle cx="10" cy="10" r="3.2" /><path d="M10 2.5v1.6M10 15.9v1.6M2.5 10h1.6M15.9 10h1.6M4.7 4.7l1.1 1.1M14.2 14.2l1.1 1.1M15.3 4.7l-1.1 1.1M5.8 14.2l-1.1 1.1" /></>)
export const MoonIcon = icon(<path d="M16 11.8A6.6 6.6 0 0 1 8.2 4a6.6 6.6 0 1 0 7.8 7.8Z" />)
export const HalfIcon = icon(<><circle cx="10" cy="10" r="6.5" /><path d="M10 3.5a6.5 6.5 0 0 1 0 13Z" fill="currentColor" stroke="none" /></>)

export const FileIcon = icon(<><path d="M11.5 3H6.2A1.2 1.2 0 0 0 5 4.2v11.6A1.2 1.2 0 0 0 6.2 17h7.6a1.2 1.2 0 0 0 1.2-1.2V6.5Z" /><path d="M11.5 3v3.5H15" /></>)

/** The logo: two overlapping lenses. */
export function Mark() {
  return (
    <svg className="mark" viewBox="0 0 32 32" width="28" height="28" fill="none" aria-hidden="true">
      <path className="mark__lens" d="M16 8.3a8.5 8.5 0 0 1 0 15.4 8.5 8.5 0 0 1 0-15.4Z" />
      <circle cx="12.5" cy="16" r="8.5" />
      <circle cx="19.5" cy="16" r="8.5" />
    </svg>
  )
}
