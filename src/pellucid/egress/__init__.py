"""What this server fetches on somebody else's word: one policy for images that a request names, and for MCP servers.

Nothing here runs for an address that the operator wrote into the configuration: that is the operator's own word.
"""

from .errors import EgressError
from .policy import EgressPolicy, Fetched

__all__ = ["EgressError", "EgressPolicy", "Fetched"]
