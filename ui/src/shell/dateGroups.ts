// The heading of a chat in the list, by the day of its last change.
import { words } from "../words"

const DAY = 86_400_000

export function dayGroup(time: number, now: number): string {
  const midnight = new Date(now).setHours(0, 0, 0, 0)
  if (time >= midnight) return words.days.today
  if (time >= midnight - DAY) return words.days.yesterday
  if (time >= midnight - 7 * DAY) return words.days.week
  if (time >= midnight - 30 * DAY) return words.days.month
  return words.days.earlier
}
