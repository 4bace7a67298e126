// Entry point of the page.
import "./styles/tokens.css"
import "./styles/base.css"
import "./chat/layout.css"
import "./styles/shell.css"
import "./styles/text.css"
import "./styles/chat.css"
import "./styles/touch.css"
import { StrictMode } from "react"
import { createRoot } from "react-dom/client"

import { App } from "./App"
import { Boundary } from "./Boundary"
import { words } from "./words"

document.documentElement.lang = words.language.code
document.documentElement.dir = words.language.direction

const root = document.getElementById("root")
if (root) {
  createRoot(root).render(
    <StrictMode>
      <Boundary>
        <App />
      </Boundary>
    </StrictMode>,
  )
}
