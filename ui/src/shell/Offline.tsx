// A quiet line while the browser is connected to no network.
import { useOnline } from "../primitives/useOnline"
import { isLoopback } from "../routes"
import { words } from "../words"

export function Offline() {
  const isOnline = useOnline()
  return (
    <div role="status">
      {!isOnline && <p className="offline" data-testid="offline">{isLoopback(location.hostname) ? words.page.offlineHere : words.page.offline}</p>}
    </div>
  )
}
