"""Bytes of a Responses answer to events: a stream, or a whole body. What they mean is in `items`."""

from __future__ import annotations

from ...parts import Origin
from ..answer import AnswerDecoder, EventFrames
from ..profiles import Profile
from .items import Items


def decoder(row: Profile, origin: Origin, content_type: str = "text/event-stream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte; the header is sometimes wrong."""
    return AnswerDecoder(Items(row, origin), EventFrames())
