// The worker in which an image is scaled.
import { scaleImage } from "./scale"
import type { ScaleRequest } from "./scale"

addEventListener("message", ({ data }: MessageEvent<ScaleRequest>) => {
  scaleImage(data).then(
    (scaled) => postMessage(scaled, { transfer: scaled ? [scaled.bytes.buffer as ArrayBuffer] : [] }),
    // An error outside of a promise reaches the page.
    (error: unknown) => setTimeout(() => { throw error }),
  )
})
