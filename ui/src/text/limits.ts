// Limits for Markdown. Beyond them a block is shown as source. Regular texts stay far below; larger ones are made to
// block the page.
export const LIMITS = {
  /** Characters of one paragraph, heading or cell that are parsed as inline Markdown. */
  inline: 10_000,
  /** Signs of emphasis, links and formulas in it. */
  signs: 1_000,
  /** Nesting depth of quotes and lists. */
  depth: 12,
  /** Characters of one block that is neither code nor a table. */
  block: 60_000,
  /** Characters of source that are shown as one element; the browser lays out only those near the visible area. */
  slice: 4_000,
  /** The same without a line end, and how far from its end a space is sought. */
  sliceOfLine: 16_000,
  word: 500,
  /** Where a long list or table is cut into several blocks: characters, or items (a row counts by its cells). */
  piece: 4_000,
  pieceItems: 100,
  /** Characters after which a list without a place for a cut, or a quote, is cut after any line, and shown as source. */
  pieceMax: 16_000,
  /** Characters by which a text grows in one frame. */
  step: 12_000,
  /** Blocks and characters that are rendered at once; later ones in groups, when they are near the visible area. */
  first: { blocks: 150, characters: 30_000 },
  group: { blocks: 50, characters: 10_000 },
  /** Cells of one block of a table. */
  cells: 2_000,
  /** Characters of highlighted code, while it is written and when it is complete. */
  colouredGrowing: 6_000,
  coloured: 60_000,
  /** Characters of one formula. */
  formula: 4_000,
} as const
