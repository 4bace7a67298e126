// Error boundary: shows a message and a reload button if rendering fails.
import { Component } from "react"
import type { ReactNode } from "react"

import { ErrorState } from "./chat/ErrorState"

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
          title="Something went wrong on this page."
          message="Nothing is lost: the gateway stores your questions and the answers."
          retry="Reload"
          onRetry={() => location.reload()}
        />
      </main>
    )
  }
}
