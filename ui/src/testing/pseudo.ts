// A language for tests (`vite build --mode pseudo`): every word of the page, accented and about 40 % longer, or in
// letters that are written from right to left, if `globalThis.pseudoDirection` is "rtl" when the page starts. Whatever
// is still in plain letters has no word in words.ts.

const ACCENTED = new Map(Array.from("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", (letter, index) => [letter, Array.from("áƀćđéƒĝĥíĵķĺɱńóƥɋŕśţúṽŵẋýźÁƁĆĐÉƑĜĤÍĴĶĹṀŃÓƤɊŔŚŢÚṼŴẊÝŹ")[index] ?? letter]))
const HEBREW = Array.from("אבגדהוזחטיכלמנסעפצקרשת")

const isRightToLeft = (globalThis as { pseudoDirection?: string }).pseudoDirection === "rtl"

const letterOf = (letter: string) => (isRightToLeft ? (HEBREW[letter.toLowerCase().charCodeAt(0) % HEBREW.length] ?? letter) : (ACCENTED.get(letter) ?? letter))

/** The text in the language; places such as `{name}` stay. Vowels are doubled: four of ten letters. */
const textOf = (text: string) =>
  text.replace(/\{\w+\}|[a-zA-Z]/g, (piece) => (piece.length > 1 ? piece : letterOf(piece).repeat(/[aeiouAEIOU]/.test(piece) ? 2 : 1)))

/** A word, or a table of words, by its place in words.ts. */
export function pseudo<Word>(word: Word, place: string): Word {
  const own: Record<string, unknown> = {
    "language.code": isRightToLeft ? "he" : "en",
    "language.direction": isRightToLeft ? "rtl" : "ltr",
    // The name of the product has no translation.
    "common.product": word,
  }
  return (own[place] ?? translated(word)) as Word
}

function translated(word: unknown): unknown {
  if (typeof word === "string") return textOf(word)
  if (typeof word === "function") return (...args: unknown[]) => translated((word as (...args: unknown[]) => unknown)(...args))
  if (Array.isArray(word)) return word.map(translated)
  if (typeof word === "object" && word !== null) return Object.fromEntries(Object.entries(word).map(([name, one]) => [name, translated(one)]))
  return word
}
