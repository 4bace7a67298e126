// Under which heading a chat stands, by the day on which something last happened in it.
const DAY = 86_400_000

export function dayGroup(time: number, now: number): string {
  const midnight = new Date(now).setHours(0, 0, 0, 0)
  if (time >= midnight) return "Today"
  if (time >= midnight - DAY) return "Yesterday"
  if (time >= midnight - 7 * DAY) return "This week"
  if (time >= midnight - 30 * DAY) return "This month"
  return "Earlier"
}
