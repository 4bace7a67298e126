// Limits for Markdown. Beyond them a block is shown as source. Regular texts stay far below; larger ones are made to
// block the page.
export const LIMITS = {
  /** Characters of one paragraph, heading or cell that are parsed as inline Markdown. */
  inline: 10_000,
  /** Nesting depth of quotes and lists. */
  depth: 12,
  /** Characters of one block that is neither code nor a table. */
  block: 60_000,
  /** Characters of source that are shown as one element; the browser lays out only those near the visible area. */
  slice: 4_000,
  /** Blocks of a text that are rendered at once; later ones in groups, when they are near the visible area. */
  blocks: 150,
  group: 50,
  /** Rows and cells of a table. */
  rows: 2_000,
  cells: 20_000,
  /** Characters of highlighted code, while it is written and when it is complete. */
  colouredGrowing: 6_000,
  coloured: 60_000,
  /** Characters of one formula. */
  formula: 4_000,
} as const
