// Loads what the texts of a chat need before they are shown, so that nothing moves when it arrives.
import { useFormulas } from "./FormulaView"

/** Formulas that are not loaded by then are shown as source at first. */
const MAX_WAIT_MS = 2_000

const FORMULA = /\$|\\[([]/

/** Wait until the formulas of these texts, if they have any, can be rendered. */
export async function prepare(texts: Iterable<string>): Promise<void> {
  for (const text of texts) {
    if (FORMULA.test(text)) return Promise.race([useFormulas.load(), new Promise<void>((done) => setTimeout(done, MAX_WAIT_MS))])
  }
}
