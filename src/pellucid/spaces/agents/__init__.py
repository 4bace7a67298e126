"""An agent in a space: its thinking becomes reasoning, its tools requests, its answer the chat."""
