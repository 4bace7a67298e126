// Icons that only a space uses.
import { icon } from "../primitives/icons"

export const PlayIcon = icon(<path d="M6.5 4.2v11.6a.6.6 0 0 0 .92.5l8.9-5.8a.6.6 0 0 0 0-1L7.42 3.7a.6.6 0 0 0-.92.5Z" />, true)
export const PauseIcon = icon(<path d="M6 4h2.6v12H6zM11.4 4H14v12h-2.6z" />, true)
export const FilterIcon = icon(<path d="M3.5 5.5h13M6 10h8M8.5 14.5h3" />)
export const InviteIcon = icon(<path d="M8 10a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM2.5 16.5a5.5 5.5 0 0 1 11 0M15 6v5M12.5 8.5h5" />)
export const LeaveIcon = icon(<path d="M8.5 4H5a1 1 0 0 0-1 1v10a1 1 0 0 0 1 1h3.5M12.5 6.5 16 10l-3.5 3.5M16 10H8.5" />)
