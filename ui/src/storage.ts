// The browser's storage. It can be forbidden, full or broken: what cannot be stored lasts until the page is closed.

export class BrowserStorage {
  constructor(private readonly open: () => Storage) {}

  get(key: string): string | null {
    return this.attempt((storage) => storage.getItem(key)) ?? null
  }

  /** The stored JSON; null if there is none. */
  getJson(key: string): unknown {
    return this.attempt((storage) => JSON.parse(storage.getItem(key) ?? "null") as unknown) ?? null
  }

  /** null deletes the entry. */
  set(key: string, value: string | null): void {
    this.attempt((storage) => (value === null ? storage.removeItem(key) : storage.setItem(key, value)))
  }

  setJson(key: string, value: unknown): void {
    this.set(key, JSON.stringify(value))
  }

  keys(): string[] {
    return this.attempt((storage) => Object.keys(storage)) ?? []
  }

  private attempt<Result>(work: (storage: Storage) => Result): Result | undefined {
    try {
      return work(this.open())
    } catch {
      return undefined
    }
  }
}

/** Of this browser. */
export const browserStorage = new BrowserStorage(() => localStorage)
/** Of this tab. */
export const tabStorage = new BrowserStorage(() => sessionStorage)
