"""To every seat what it may see of what was stored: one write for each commit, of frames that are made once.

Seats that speak the same dialect and read by the same rights are a group. What a stranger in the group is shown is
worked out once for all of them. It differs for nobody but whoever said it, is addressed by it, or owns what it ends,
and those are shown what a stranger is, at least (see `envelopes.shown`).

A seat whose outlet is full is behind. Nothing more is written to it; what it may see is counted, until its outlet is
drained.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...envelopes import DialectName, closing
from ...envelopes.kinds import CANCEL
from ...envelopes.shown import SpaceView, Subscriber, is_shown
from ...storage import StoredEnvelope
from ...telemetry import log, place_of
from .outlet import Direct, Frame, Line, frame_of
from .seats import Seat

STRANGER = ""
"""Nobody's id."""


class _Told:
    """One commit, with its frames."""

    def __init__(self, stored: Sequence[StoredEnvelope], advisory: bool) -> None:
        self.stored = stored
        self.advisory = advisory
        self.concerned: set[str] = set()
        """Whom it may be shown to where a stranger is not."""
        self._frames: dict[DialectName, list[Frame | None]] = {}
        for one in stored:
            envelope = one.envelope
            self.concerned.add(envelope.sender)
            self.concerned.update(envelope.to)
            if envelope.kind == CANCEL and one.place.owner is not None:
                self.concerned.add(one.place.owner)

    def frames(self, dialect: DialectName, reader: Subscriber, most: int | None = None) -> list[Frame]:
        made = self._frames.get(dialect)
        if made is None:
            made = self._frames[dialect] = [None] * len(self.stored)
        out: list[Frame] = []
        for number, one in enumerate(self.stored[:most] if most is not None else self.stored):
            if is_shown(one.envelope, one.place, reader, advisory=self.advisory):
                frame = made[number]
                if frame is None:
                    frame = made[number] = frame_of(one.told, dialect)
                out.append(frame)
        return out


class _Group:
    def __init__(self, dialect: DialectName, view: SpaceView, reasoning: bool, observes: bool) -> None:
        self.dialect = dialect
        self.stranger = Subscriber(participant=STRANGER, view=view, reasoning=reasoning, observes=observes)
        self.lines: dict[Seat, Line] = {}
        """Those that may be written to with nothing asked."""
        self.others: dict[Seat, None] = {}

    def discard(self, seat: Seat) -> None:
        self.lines.pop(seat, None)
        self.others.pop(seat, None)

    def __bool__(self) -> bool:
        return bool(self.lines or self.others)


class Audience:
    """The seats that hear what is said now. `limit`: bytes that may wait in an outlet."""

    def __init__(self, *, advisory: bool, limit: int) -> None:
        self.advisory = advisory
        self.limit = limit
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._behind: dict[Seat, None] = {}

    def add(self, seat: Seat) -> None:
        reader = seat.reader
        key = (seat.speaks, reader.view, reader.reasoning, reader.observes)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(seat.speaks, reader.view, reader.reasoning, reader.observes)
        seat.group = key
        self._line_up(seat)
        if isinstance(seat.outlet, Direct):
            seat.outlet.watch(partial(self._line_up, seat))

    def _line_up(self, seat: Seat) -> None:
        if seat.group is None:
            return
        group = self._groups[seat.group]
        group.discard(seat)
        line = seat.outlet.line if isinstance(seat.outlet, Direct) else None
        if line is not None:
            group.lines[seat] = line
        else:
            group.others[seat] = None

    def discard(self, seat: Seat) -> None:
        self._behind.pop(seat, None)
        if seat.group is None:
            return
        if isinstance(seat.outlet, Direct):
            seat.outlet.watch(None)
        group = self._groups[seat.group]
        group.discard(seat)
        if not group:
            del self._groups[seat.group]
        seat.group = None

    def regroup(self, seat: Seat) -> None:
        """Its dialect or its rights are others now."""
        if seat.group is not None:
            self.discard(seat)
            self.add(seat)

    def deliver(self, stored: Sequence[StoredEnvelope], out: dict[str, int]) -> list[Seat]:
        """To all. `out`: participants who are put out by one of these, and by which (its place in `stored`): they are
        shown nothing after it. Those whose outlet is full now come back, and are behind."""
        told = _Told(stored, self.advisory)
        concerned, limit = told.concerned, self.limit
        full: list[tuple[Seat, int]] = []
        broken: list[Seat] = []
        for group in self._groups.values():
            shared = told.frames(group.dialect, group.stranger)
            everything = len(shared) == len(stored) and not out
            seats = [*group.others] if everything else [*group.lines, *group.others]
            if everything:
                data = shared[0].wire if len(shared) == 1 else b"".join([frame.wire for frame in shared])
                broke: list[Line] = []
                # Nothing but lines is touched here: what is said to hundreds is a system call each, and what Python
                # has to fetch in between costs as much again.
                for line in tuple(group.lines.values()):
                    try:
                        line(data)
                    except Exception:
                        broke.append(line)
                if broke:
                    # Their outlets know what that means.
                    seats += [seat for seat, line in group.lines.items() if line in broke]
            for seat in seats:
                frames = shared
                if not everything:
                    participant = seat.participant
                    if participant in out:
                        frames = told.frames(group.dialect, seat.reader, out[participant] + 1)
                    elif participant in concerned:
                        frames = told.frames(group.dialect, seat.reader)
                if frames:
                    outlet = seat.outlet
                    if outlet.waiting > limit:
                        full.append((seat, len(frames)))
                        continue
                    try:
                        outlet.write(frames)
                    except Exception as error:
                        log.error("an outlet broke: %s", place_of(error))
                        broken.append(seat)
        for seat in self._behind:
            seat.missed += len(told.frames(seat.speaks, seat.reader, out.get(seat.participant, len(stored) - 1) + 1))
        for seat in broken:
            seat.close(closing.BROKEN, "what was said could not be sent")
        for seat, missed in full:
            self.discard(seat)
            self._behind[seat] = None
            seat.missed = missed
        return [seat for seat, _ in full]
