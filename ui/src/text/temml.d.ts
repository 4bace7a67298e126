// The part of temml's types that is used here.
declare module "temml/dist/temml.mjs" {
  const temml: {
    renderToString(
      tex: string,
      options: {
        annotate?: boolean
        displayMode?: boolean
        maxExpand?: number
        maxSize?: [number, number]
        strict?: boolean
        throwOnError?: boolean
        trust?: boolean
      },
    ): string
  }
  export default temml
}
