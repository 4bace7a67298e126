"""Who says the thoughts of a space in fewer words (`[spaces.NAME] compress`): the writer of summaries."""

from __future__ import annotations

from collections.abc import Sequence

from ..envelopes import Envelope, text_of
from ..runs.summaries import Writer
from ..spaces.runtime.compression import Compressor

MOST = 16_000
"""Characters that are read for one such thought, of all that it stands for together."""


def compressor(writer: Writer | None) -> Compressor | None:
    """None: nobody writes here."""
    if writer is None:
        return None

    async def said_shorter(thoughts: Sequence[Envelope]) -> str:
        each = MOST // max(1, len(thoughts))
        written = await writer.summary("\n\n".join(text_of(thought)[:each] for thought in thoughts))
        return written.text or ""

    return said_shorter
