"""How a run was requested: everything but the run that its encoding depends on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .. import StoredRunHeader
from .dialects import DialectName
from .encode import Encoder
from .messages import Message

PROTOCOL = "agui"
"""The protocol's name, in stored runs and in the options of the command line."""


class RunHeader(StoredRunHeader, frozen=True, kw_only=True):
    """How a run was requested."""

    protocol: str = PROTOCOL
    thread_id: str
    run_id: str
    dialect: DialectName
    model: str
    parent_run_id: str | None = None
    reasoning: bool = True
    chunks: bool = False
    snapshot: bool | None = None
    stored: bool = False
    history: list[Message] = msgspec.field(default_factory=list)
    """The messages before the run, if the run ends with a snapshot of all messages."""

    def encoder(self, *, reasoning: bool, binary: bool, model: str | None, history: Sequence[Message]) -> Encoder:
        """Return the encoder of the run for one viewer.

        Args:
            reasoning: Whether the viewer may see that there is reasoning.
            binary: Whether events are protobuf frames.
            model: The name of the model, for the usage; None if it is not sent.
            history: `history`, as the viewer may see it.
        """
        return Encoder(
            self.thread_id,
            self.run_id,
            self.dialect,
            parent_run_id=self.parent_run_id,
            reasoning=self.reasoning and reasoning,
            chunks=self.chunks,
            model=model,
            history=history,
            ahead=not self.stored,  # a stored run is the same to the byte whenever it is read
            snapshot=self.snapshot,
            binary=binary,
        )
