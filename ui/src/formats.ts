// Formats of numbers and times, in the language of the document.
const formats = {
  number: (locale: string) => new Intl.NumberFormat(locale),
  clock: (locale: string) => new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  list: (locale: string) => new Intl.ListFormat(locale),
  moment: (locale: string) => new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" }),
}

const made: { [Name in keyof typeof formats]?: ReturnType<(typeof formats)[Name]> } = {}

/** The language of the document, in the browser's region (en-GB, for example) if that has the same language. */
function locale(): string {
  const { lang } = document.documentElement
  return lang === "" || navigator.language.split("-", 1)[0] === lang ? navigator.language : lang
}

export const formatNumber = (value: number) => (made.number ??= formats.number(locale())).format(value)
/** The time of day. */
export const formatClock = (time: Date) => (made.clock ??= formats.clock(locale())).format(time)
/** Day and time. */
export const formatMoment = (time: Date) => (made.moment ??= formats.moment(locale())).format(time)

/** Items as a list, in the language of the page: A, B, and C. */
export const formatList = (items: readonly string[]) => (made.list ??= formats.list(locale())).format(items)

/** An amount of money; a currency that is no code of ISO 4217 stands before it as it is. */
export function formatCurrency(amount: number, currency: string, digits: number): string {
  try {
    return new Intl.NumberFormat(locale(), { style: "currency", currency, minimumFractionDigits: digits, maximumFractionDigits: digits }).format(amount)
  } catch {
    return `${currency} ${amount.toFixed(digits)}`
  }
}

/** `one` for 1, otherwise `many`. */
export const plural = (count: number, one: string, many: string) => (count === 1 ? one : many)
