"""`store.record`: the tamper-evident record of what is stored (`pellucid.record`).

What is stored says so itself, in its own transaction (`record`). Here the record is read, signed, and erased from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..record import Begin, Head, KeyLine, Line, Recording, Signer
from . import record, record_erasing, record_signing, record_telling
from .errors import StoreError
from .names import storable
from .record import milliseconds
from .record_signing import Accepting, Signing
from .record_telling import Telling
from .statement import Database, each


class Signatures:
    """What came of signing."""

    def __init__(self, signed: int, refused: int) -> None:
        self.signed = signed
        """So many chains are in a new checkpoint."""
        self.refused = refused
        """So many have an end that was written without the key, and were not signed."""


class _Stopped(Exception):
    """Whoever is told does not want more."""


class _Told:
    """What whoever is told does wrong is no fault of the store's; and nothing is told twice, though it is read so."""

    def __init__(self, tell: Callable[[Line], None]) -> None:
        self._tell = tell
        self._begun = False
        self.wrong: Exception | None = None

    def __call__(self, line: Line) -> None:
        if isinstance(line, Begin):
            if self._begun:
                raise _Stopped
            self._begun = True
        try:
            self._tell(line)
        except Exception as error:
            self.wrong = error
            raise _Stopped from None


class Record:
    """`store.record`."""

    def __init__(self, database: Database, clock: Callable[[], float], recording: Recording) -> None:
        self._database = database
        self._clock = clock
        self.recording = recording

    async def sign(self, signer: Signer | None = None) -> Signatures:
        """Make checkpoints of all that went on since the last ones. `signer`: by default, who seals.

        Raises `AlreadyStored` when another replica does the same at this moment, `StoreError` as usual."""
        signer = signer or next(iter(self.recording.signers), None)
        if signer is None:
            raise ValueError("a checkpoint needs a key to sign it with")
        self.recording.waiting = 0
        if not await self._database.read(record_signing.some, None):
            return Signatures(0, 0)
        signed = refused = 0
        after: tuple[str, str] | None = ("", "")
        while after is not None:
            asked = Signing(self.recording, signer, milliseconds(self._clock()), after)
            done = await self._database.write(_SIGN_EACH, asked)
            signed, refused, after = signed + done.signed, refused + done.refused, done.after
        return Signatures(signed, refused)

    async def accept(self, *, owner: str | None = None, scope: str | None = None) -> int:
        """Take the ends of chains that were written without the key as they are, and seal them; each chain says so. How
        many there were. Of everything, one owner's, or one scope."""
        if not (storable(owner or "") and storable(scope or "")):
            return 0
        many = 0
        after: tuple[str, str] | None = ("", "")
        while after is not None:
            asked = Accepting(self.recording, milliseconds(self._clock()), owner, scope, after)
            done = await self._database.write(_ACCEPT_EACH, asked)
            many, after = many + done.signed, done.after
        return many

    async def tell(
        self,
        tell: Callable[[Line], None],
        *,
        owner: str | None = None,
        scope: str | None = None,
        keys: Sequence[KeyLine] = (),
    ) -> None:
        """Give the record away line by line, as it is now: everything, one owner's, or one scope. `tell` is called in
        another thread, or in this one, and is not to take long."""
        if not (storable(owner or "") and storable(scope or "")):
            owner, scope = "", "?"  # which nobody has
        told = _Told(tell)
        asked = Telling(told, milliseconds(self._clock()), owner, scope, tuple(keys))
        try:
            await self._database.read(record_telling.tell, asked)
        except _Stopped:
            raise told.wrong or StoreError() from None

    async def head(self, owner: str, scope: str) -> Head | None:
        """How far the chain of a scope has come: the number and hash of its newest entry. None: there is none."""
        if not (storable(owner) and storable(scope)):
            return None
        return await self._database.read(record.head, {"for_owner": owner, "for_scope": scope})

    async def owners(self, scope: str) -> tuple[str, ...]:
        """Whose scopes are called so."""
        if not storable(scope):
            return ()
        return await self._database.read(record_erasing.owners, {"for_scope": scope})

    async def erase(self, owner: str, scope: str, subjects: Sequence[str] = ()) -> int:
        """Take away what was stored in a scope: these, or all of it. How many contents went. The record says that they
        did, and keeps their digests, which can be compared with nothing any more.

        What is being answered at the moment is not over, and comes to nothing: its end is kept nowhere."""
        if not all(map(storable, (owner, scope, *subjects))):
            return 0
        return await record_erasing.erase(self._database, self.recording, self._clock(), owner, scope, tuple(subjects))


_SIGN_EACH, _ACCEPT_EACH = each(record_signing.sign), each(record_signing.accept)
