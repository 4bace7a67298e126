"""Names under which the gateway tells about itself. Reasoning text is in none of them."""

from __future__ import annotations

import logging

log = logging.getLogger("pellucid")
"""What an operator reads. Never message content, never reasoning, never keys."""
