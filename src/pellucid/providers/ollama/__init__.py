"""Ollama's own `/api/chat`: lines of JSON, with reasoning in a field of its own and arguments as objects."""
