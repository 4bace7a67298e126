// Error boundary: shows a message and a reload button if rendering fails.
import { Component } from "react"
import type { ReactNode } from "react"

import { ErrorState } from "./primitives/ErrorState"
import { words } from "./words"

export class Boundary extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false }

  static getDerivedStateFromError() {
    return { failed: true }
  }

  override render() {
    if (!this.state.failed) return this.props.children
    return (
      <main className="page-failure">
        <ErrorState
          title={words.page.broken}
          message={words.page.brokenMore}
          retry={words.page.reload}
          onRetry={() => location.reload()}
        />
      </main>
    )
  }
}
