"""An agent as a participant of a space: thinking becomes reasoning, tool calls become requests, the answer a chat."""
