// A day, in the language of the interface.
import { words } from "../words"

const format = new Intl.DateTimeFormat(words.language.code, { dateStyle: "medium" })

export const formatDay = (ms: number): string => format.format(ms)
