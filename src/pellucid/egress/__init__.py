"""What this server fetches on somebody else's word: one policy for images that a request names, and for MCP servers.

Nothing here runs for an address that the operator wrote into the configuration: that is the operator's own word. The
policy stands here; `fetching`, `connector` and `httpx`, which need aiohttp, are imported by those who fetch.
"""

from .policy import EgressError, EgressPolicy

__all__ = ["EgressError", "EgressPolicy"]
