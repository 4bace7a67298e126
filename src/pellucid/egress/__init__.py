"""One policy for the URLs that a request makes this server fetch: images, and MCP servers.

The policy does not apply to addresses that the operator wrote into the configuration. `connector` and
`httpx_transport` need aiohttp, so they are not imported here: modules that fetch import them.
"""

from .policy import EgressError, EgressPolicy

__all__ = ["EgressError", "EgressPolicy"]
