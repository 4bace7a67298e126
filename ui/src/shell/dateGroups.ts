// The heading of a chat in the list, by the day of its last change.
const DAY = 86_400_000

export function dayGroup(time: number, now: number): string {
  const midnight = new Date(now).setHours(0, 0, 0, 0)
  if (time >= midnight) return "Today"
  if (time >= midnight - DAY) return "Yesterday"
  if (time >= midnight - 7 * DAY) return "This week"
  if (time >= midnight - 30 * DAY) return "This month"
  return "Earlier"
}
