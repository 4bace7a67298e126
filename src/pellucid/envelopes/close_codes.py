"""Codes with which the socket of a space is closed: what the gateway means by them, and a participant understands.

Those below 4000 are WebSocket's own (RFC 6455, 7.4), those above are ours, like HTTP's statuses with 4000 added.
"""

from __future__ import annotations

NORMAL_CLOSURE = 1000
"""There is no more to come: a replay has ended."""
POLICY_VIOLATION = 1008
"""It said more than the space takes, and went on."""
MESSAGE_TOO_BIG = 1009
"""A frame was larger than a socket takes."""
INTERNAL_ERROR = 1011
"""A fault of the gateway's."""
SERVICE_RESTART = 1012
TRY_AGAIN_LATER = 1013
"""What is needed does not answer at the moment: the store, the history."""

INVALID_JOIN = 4400
"""The first frame was no join, or asked for something wrongly."""
UNAUTHORIZED = 4401
"""The token is not known, or there was none."""
FORBIDDEN = 4403
"""The token opens another space; or its participant was put out."""
SPACE_NOT_FOUND = 4404
"""The space is not there any more."""
JOIN_TIMEOUT = 4408
"""Nobody joined in time."""
