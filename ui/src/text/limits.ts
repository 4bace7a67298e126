// How much of a text is read as Markdown. Beyond these bounds a block is shown as it is written: what people and models
// write for people stays far below them, and what is above them is made to hang a page.
export const LIMITS = {
  /** Characters of one paragraph, heading or cell that are read for emphasis, links and the like. */
  inline: 10_000,
  /** Quotes and lists within each other. */
  depth: 12,
  /** Characters of one block that is neither code nor a table. */
  block: 60_000,
  /** Rows and cells of a table that is drawn as one. */
  rows: 2_000,
  cells: 20_000,
  /** Characters of code that are coloured; while it still grows, and when it is whole. */
  colouredGrowing: 6_000,
  coloured: 60_000,
  /** Characters of one formula. */
  formula: 4_000,
} as const
