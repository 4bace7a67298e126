"""Access control: API keys, JWTs, policies, limits, and web pages of other origins. See `docs/access.md`."""
