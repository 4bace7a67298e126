"""What is judged together, stored in one transaction, and answered together.

Nothing here waits: what only the history knows is looked up before.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...envelopes import GATEWAY, Envelope
from ...envelopes.changes import Change
from ...envelopes.verdict import Names
from ...errors import PellucidError
from ...storage import StoredEnvelope, StoredParticipant
from .configuration import Configuration
from .inbox import Answer, Item
from .invitations import invited_by
from .living import Living
from .state import SpaceState


class Batch:
    """What was judged together, and is stored and answered together."""

    def __init__(self, state: SpaceState, at: int, space: str) -> None:
        self._state = state
        self._space = space
        self._at = at
        self._answers: list[tuple[Item, Answer]] = []
        self.stored: list[StoredEnvelope] = []
        self.changes: list[tuple[Change, ...]] = []
        self.invited: list[StoredParticipant] = []
        self.refused = False
        """Whether something was not accepted that might be, by a state that others have moved on."""

    def judge(
        self,
        items: Sequence[Item],
        configuration: Configuration,
        known: Names,
        before: dict[tuple[str, str], StoredEnvelope],
        living: Living,
    ) -> None:
        """`known`: names that only the history knows. `before`: what was said under the same ids before."""
        said = self._state.unconfigured(configuration.doors)
        if said is not None:
            self._accept(configuration.told(said, self._at), Names())
        new: dict[tuple[str, str], StoredEnvelope] = {}
        for item in items:
            envelope = item.envelope if item.make is None else item.make(self._state, self._at)
            if envelope is None:
                self._answers.append((item, Answer()))
                continue
            key = (envelope.sender, envelope.id)
            if item.named:
                old = new.get(key) or living.recent.named(*key) or before.get(key)
                if old is not None and _same(old.envelope, envelope, item.dated):
                    self._answers.append((item, Answer(old, fresh=False)))
                    self.refused = True
                    continue
            stored, answer = self._accept(envelope, known, item.redacted, item.address)
            self._answers.append((item, answer))
            if stored is not None:
                new[key] = stored

    def _accept(
        self, envelope: Envelope, known: Names, redacted: tuple[str, ...] = (), address: str = ""
    ) -> tuple[StoredEnvelope | None, Answer]:
        outcome = self._state.judge(envelope, self._at, known, redacted)
        if outcome.error is not None:
            self.refused = self.refused or envelope.sender != GATEWAY
            return None, Answer(error=PellucidError(outcome.error))
        stored = outcome.stored
        assert stored is not None
        self.stored.append(stored)
        self.changes.append(outcome.changes)
        invited, told = invited_by(stored, outcome.changes, self._state, self._space, address)
        self.invited += invited
        return stored, Answer(stored, extra=told)

    def answer(self) -> None:
        """Tell each what became of it."""
        for item, answer in self._answers:
            item.tell(answer)


def _same(old: Envelope, new: Envelope, dated: bool) -> bool:
    """Whether it is the same once more, in whichever dialect. Who says when it was sent (`dated`) sends it again with
    the same time: another means that ids are counted anew, as MEW's clients do in every process."""
    if dated and new.ts != old.ts:
        return False
    return old == replace(new, seq=old.seq, ts=old.ts, dialect=old.dialect)
