"""Who may do what: keys, tokens, policies, limits, and web pages of other origins. See `docs/access.md`."""
