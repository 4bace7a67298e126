// Scales images down that are larger than models use. The format stays: PNG if anything shows through, else JPEG, WebP
// stays WebP. Animations and images that are small enough are left as they are.

/** Providers scale images down to this, or to less, before a model sees them. */
export const MAX_SIDE = 2048
/** Files of more bytes are not read. */
export const MAX_SCALED_BYTES = 64 << 20

const QUALITY = 0.9
const MAX_TRIES = 6
const FORMATS = new Set(["image/png", "image/jpeg", "image/webp"])

export interface ScaleRequest {
  image: Blob
  media_type: string
  /** The most bytes that the result may have. */
  max_bytes: number
}

export interface Scaled {
  bytes: Uint8Array
  media_type: string
  width: number
  height: number
}

/** Return the scaled image; null: it is left as it is. Rejects if it cannot be decoded. */
export type Scale = (request: ScaleRequest) => Promise<Scaled | null>

export const isScalable = (media_type: string) => FORMATS.has(media_type)

/** Whether an image has frames that a canvas would lose. */
export function isAnimated(bytes: Uint8Array, media_type: string): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (media_type === "image/webp") return bytes.length > 20 && view.getUint32(12) === 0x56503858 /* VP8X */ && (view.getUint8(20) & 2) !== 0
  if (media_type !== "image/png") return false
  for (let at = 8; at + 8 <= bytes.length; at += view.getUint32(at) + 12) {
    const chunk = view.getUint32(at + 4)
    if (chunk === 0x6163544c /* acTL */) return true
    if (chunk === 0x49444154 /* IDAT */) return false
  }
  return false
}

/** By which factor the sides of an image are multiplied, so that it has at most `MAX_SIDE` pixels in each direction. */
export const factorOf = (width: number, height: number) => Math.min(1, MAX_SIDE / Math.max(width, height))

export const scaleImage: Scale = async ({ image, media_type, max_bytes }) => {
  // Turned as the file says.
  const bitmap = await createImageBitmap(image, { imageOrientation: "from-image" })
  let factor = factorOf(bitmap.width, bitmap.height)
  if (factor === 1 && image.size <= max_bytes) return null
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const width = Math.max(1, Math.round(bitmap.width * factor))
    const height = Math.max(1, Math.round(bitmap.height * factor))
    const canvas = new OffscreenCanvas(width, height)
    const context = canvas.getContext("2d")
    if (!context) return null
    context.imageSmoothingQuality = "high"
    context.drawImage(bitmap, 0, 0, width, height)
    const type = media_type === "image/png" && isOpaque(context.getImageData(0, 0, width, height).data) ? "image/jpeg" : media_type
    const blob = await canvas.convertToBlob({ type, quality: QUALITY })
    if (blob.size <= max_bytes) return { bytes: new Uint8Array(await blob.arrayBuffer()), media_type: blob.type, width, height }
    factor *= Math.min(0.85, Math.sqrt(max_bytes / blob.size))
  }
  return null
}

function isOpaque(pixels: Uint8ClampedArray): boolean {
  for (let at = 3; at < pixels.length; at += 4) if (pixels[at] !== 255) return false
  return true
}

let turn: Promise<unknown> = Promise.resolve()

/** Scale in a worker, one image after the other. Browsers without these leave images as they are. */
export const scaleInWorker: Scale = (request) => {
  if (typeof Worker === "undefined" || typeof OffscreenCanvas === "undefined") return Promise.resolve(null)
  const scaled = turn.then(() => inWorker(request))
  turn = scaled.catch(() => undefined)
  return scaled
}

function inWorker(request: ScaleRequest): Promise<Scaled | null> {
  const worker = new Worker(new URL("./scale.worker.ts", import.meta.url), { type: "module" })
  return new Promise<Scaled | null>((resolve, reject) => {
    worker.onmessage = ({ data }: MessageEvent<Scaled | null>) => resolve(data)
    worker.onerror = () => reject(new DOMException("", "EncodingError"))
    worker.postMessage(request)
  }).finally(() => worker.terminate())
}
