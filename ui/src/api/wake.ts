// When the network or the user is back: a pause between attempts is over, and a connection that has been silent may be
// dead without a sign of it (the packets of its end were lost).

export type Wake = "online" | "visible"

/** Call back when the browser is online again, or the page is visible again. Returns a function that ends this. */
export function onWake(listener: (reason: Wake) => void): () => void {
  const online = () => listener("online")
  const visible = () => {
    if (document.visibilityState === "visible") listener("visible")
  }
  addEventListener("online", online)
  // A page that returns from the back/forward cache.
  addEventListener("pageshow", visible)
  document.addEventListener("visibilitychange", visible)
  return () => {
    removeEventListener("online", online)
    removeEventListener("pageshow", visible)
    document.removeEventListener("visibilitychange", visible)
  }
}

/**
 * Call back when the page is left. It may go on to exist in the browser's back/forward cache, where its timers stop and
 * its connections, of which a browser opens only six to a server, do not. Returns a function that ends this.
 */
export function onLeft(listener: () => void): () => void {
  addEventListener("pagehide", listener)
  return () => removeEventListener("pagehide", listener)
}

/** Wait for that time, or until the network or the user is back. Returns whether it was the latter. */
export function waitForWake(ms: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const done = (isAwake: boolean) => {
      clearTimeout(timer)
      stop()
      signal.removeEventListener("abort", abort)
      resolve(isAwake)
    }
    const abort = () => done(false)
    const timer = setTimeout(abort, ms)
    const stop = onWake(() => done(true))
    signal.addEventListener("abort", abort)
    if (signal.aborted) abort()
  })
}

/** The gateway writes at least every 20 s; a connection that was silent for longer may be dead. */
export const SILENCE_MS = 25_000

/** A signal that follows another one and can be aborted by itself. */
export function linkedAbort(parent: AbortSignal): AbortController {
  const child = new AbortController()
  if (parent.aborted) child.abort()
  else parent.addEventListener("abort", () => child.abort(), { signal: child.signal })
  return child
}
