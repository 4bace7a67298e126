"""Close codes of a space's WebSocket.

Codes below 4000 are WebSocket's own (RFC 6455, section 7.4). Those above are HTTP statuses plus 4000.
"""

from __future__ import annotations

NORMAL_CLOSURE = 1000
"""The connection is finished: a replay has ended."""
POLICY_VIOLATION = 1008
"""The client exceeded the rate limit and did not slow down, or its participant has too many connections."""
MESSAGE_TOO_BIG = 1009
"""A frame was larger than the socket accepts."""
INTERNAL_ERROR = 1011
"""A fault of the gateway."""
SERVICE_RESTART = 1012
TRY_AGAIN_LATER = 1013
"""A dependency (the store, the history) does not answer at the moment."""

INVALID_JOIN = 4400
"""The first frame was not a join, or the join had wrong parameters."""
UNAUTHORIZED = 4401
"""The token is unknown, or there was none."""
FORBIDDEN = 4403
"""The token belongs to another space, or its participant was removed."""
SPACE_NOT_FOUND = 4404
"""The space does not exist any more."""
JOIN_TIMEOUT = 4408
"""No join arrived in time."""
