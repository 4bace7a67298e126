"""The chat API, which the page uses (seed 002; `docs/chat.md`)."""
