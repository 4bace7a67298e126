"""Who sits in a space at this replica, and what each of them is given of what is stored.

* To every seat what it may see: one write for each commit, of frames that are made once. Seats that speak the same
  dialect and read by the same rights are a group; what a stranger in the group is shown is worked out once for all of
  them. It differs for nobody but whoever said it, is addressed by it, or owns what it ends, and those are shown what a
  stranger is, at least (see `envelopes.shown`).
* A seat whose outlet is full is behind. Nothing more is written to it; what it may see is counted, until its outlet is
  drained.
* A seat that comes in, or comes back, has its own place in the log (`seat.at`) until it is in the audience. It is given
  what follows, page by page, as its outlet takes it. When nothing follows that was delivered to others, it is put into
  the audience: in the same step, so that nothing comes in between. What is not delivered yet is not read ahead.
* Whose rights are others now is told so by a welcome, and reads by them from that commit on; whoever is put out is
  given what put them out, and let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from ...envelopes import GATEWAY, DialectName, Present, closing, said
from ...envelopes.grants import Change, Granted, GrantEnded, Kicked
from ...envelopes.kinds import CANCEL, CONFIGURED, PRESENCE
from ...envelopes.shown import SpaceView, Subscriber, is_shown
from ...errors import PellucidError
from ...storage import Spaces, StoredEnvelope
from ...telemetry import log, place_of
from .ids import new_id
from .living import Configuration, Living
from .seats import Direct, Frame, Line, Seat, frame_of

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
"""Runs it in the background, until the space is closed."""

STRANGER = ""
"""Nobody's id."""
PAGE = 200
MOST_PAGES = 20
"""In which so many envelopes are looked for as were asked for: others may hide between them."""
TRIES = 5
PAUSE = 0.5


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
    """The seats that hear what is said now."""

    def __init__(self, configuration: Configuration, *, delivered: int) -> None:
        self.delivered = delivered
        """The number of the newest envelope that was delivered."""
        self.configure(configuration)
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._behind: dict[Seat, None] = {}

    def configure(self, configuration: Configuration) -> None:
        self.advisory = configuration.settings.advisory
        self.limit = configuration.settings.limits.outlet_bytes
        """Bytes that may wait in an outlet."""

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
        self.delivered = stored[-1].envelope.seq
        return [seat for seat, _ in full]


class Resuming:
    """Gives a seat what stands between its place in the log and `audience`."""

    def __init__(
        self,
        audience: Audience,
        configuration: Configuration,
        living: Living,
        spaces: Spaces,
        now_ms: Callable[[], int],
        spawn: Spawn,
    ) -> None:
        self._audience = audience
        self._configuration = configuration
        self._living = living
        self._spaces = spaces
        self._now_ms = now_ms
        self._spawn = spawn

    def begin(self, seat: Seat, after: int | None, history: int) -> None:
        """Its welcome is written; nothing else is."""
        seat.at = self._audience.delivered if after is None else after
        if seat.at > self._audience.delivered:
            # The number is of another space by this name: of this one they know nothing, and it is all past.
            seat.at, seat.past = 0, self._audience.delivered
        if after is None and history > 0:
            seat.task = self._spawn(self._keep(seat, history))
        elif not self._from_memory(seat):
            seat.task = self._spawn(self._keep(seat, 0))

    def wait_for(self, seat: Seat) -> None:
        """Its outlet is full: until it is drained."""
        seat.task = self._spawn(self._drain(seat))

    async def _drain(self, seat: Seat) -> None:
        await seat.outlet.drained()
        if seat.gone:
            return
        if seat.missed:
            told = said.gap(
                new_id(),
                self._now_ms(),
                seat.participant,
                after=seat.at,
                before=self._audience.delivered + 1,
                missed=seat.missed,
            )
            seat.write(told)
            seat.missed = 0
        seat.task = None
        self._audience.discard(seat)
        self._audience.add(seat)

    def _from_memory(self, seat: Seat) -> bool:
        """Whether all that it missed is at hand, and written: then it is up to date."""
        if seat.at < self._audience.delivered:
            told = self._living.recent.after(seat.at, PAGE + 1)
            if told is None or len(told) > PAGE:
                return False
            self._give(seat, told)
        self._audience.add(seat)
        return True

    async def _keep(self, seat: Seat, history: int) -> None:
        tries = 0
        while not seat.gone:
            try:
                if history:
                    await self._replay(seat, history)
                    history = 0
                await self._catch_up(seat)
                return
            except PellucidError:
                tries += 1
                if tries == TRIES:
                    seat.close(closing.LATER, "the history does not answer; come back in a moment")
                    return
                await asyncio.sleep(PAUSE * tries)
        self._audience.discard(seat)

    async def _catch_up(self, seat: Seat) -> None:
        while seat.at < self._audience.delivered and not seat.gone:
            told = self._living.recent.after(seat.at, PAGE)
            if told is None:
                told = await self._page(after=seat.at, before=self._audience.delivered + 1, limit=PAGE)
            if not told:
                break
            self._give(seat, told)
            if seat.outlet.waiting:
                await seat.outlet.drained()
            else:
                await asyncio.sleep(0)
        if not seat.gone:
            seat.task = None
            self._audience.add(seat)

    def _give(self, seat: Seat, told: list[StoredEnvelope]) -> None:
        frames = [
            frame_of(replace(one.told, replayed=True) if one.envelope.seq <= seat.past else one.told, seat.speaks)
            for one in told
            if self._shows(one, seat)
        ]
        seat.at = told[-1].envelope.seq
        if frames:
            seat.outlet.write(frames)

    async def _replay(self, seat: Seat, many: int) -> None:
        """The last that it may see, flagged. Where they begin is looked for first: what was looked through is not held,
        unless it was one portion."""
        end = seat.at + 1
        step = max(PAGE, min(many, 1000))
        first = before = end
        found = looked = 0
        once: list[StoredEnvelope] | None = None
        while found < many and before > 1 and looked < MOST_PAGES * step:
            told = await self._page(before=before, limit=step, newest=True)
            if not told:
                break
            once = told if looked == 0 else None
            seqs = [one.envelope.seq for one in told if self._shows(one, seat)][found - many :]
            first = seqs[0] if seqs else first
            found, looked, before = found + len(seqs), looked + len(told), told[0].envelope.seq
        if once is not None:
            await self._flagged(seat, [one for one in once if one.envelope.seq >= first])
            return
        after = first - 1
        while after < end - 1 and not seat.gone:
            told = await self._page(after=after, before=end, limit=PAGE)
            if not told:
                break
            after = told[-1].envelope.seq
            await self._flagged(seat, told)

    async def _flagged(self, seat: Seat, told: list[StoredEnvelope]) -> None:
        shown = [one for one in told if self._shows(one, seat)]
        for start in range(0, len(shown), PAGE):
            if seat.gone:
                return
            some = shown[start : start + PAGE]
            seat.outlet.write([frame_of(replace(one.told, replayed=True), seat.speaks) for one in some])
            await seat.outlet.drained()

    def _shows(self, one: StoredEnvelope, seat: Seat) -> bool:
        return is_shown(one.envelope, one.place, seat.reader, advisory=self._audience.advisory)

    async def _page(self, **which: Any) -> list[StoredEnvelope]:
        """Raises `StoreError`."""
        return await self._spaces.page(self._configuration.owner, self._configuration.name, **which)


class Consequences(NamedTuple):
    out: dict[str, int]
    """Who is put out, and by which of the envelopes."""
    rights: set[str]
    """Who holds more or less than before."""
    left: list[str]
    configured: bool


def consequences_of(stored: Sequence[StoredEnvelope], changes: Sequence[tuple[Change, ...]]) -> Consequences:
    """`changes`: those of each envelope."""
    found = Consequences({}, set(), [], any(_is_of_gateway(one, CONFIGURED) for one in stored))
    for number, (one, some) in enumerate(zip(stored, changes, strict=True)):
        for change in some:
            match change:
                case Kicked(participant=participant):
                    found.out.setdefault(participant, number)
                case Granted(grant=grant):
                    found.rights.add(grant.recipient)
                case GrantEnded(recipient=recipient):
                    found.rights.add(recipient)
        if _is_of_gateway(one, PRESENCE) and one.envelope.payload.get("event") == "leave":
            who = one.envelope.payload.get("participant")
            if isinstance(who, dict):
                found.left.append(str(who["id"]))
    return found


def _is_of_gateway(stored: StoredEnvelope, kind: str) -> bool:
    return stored.envelope.kind == kind and stored.envelope.sender == GATEWAY


class Seating:
    """A space's seats."""

    def __init__(
        self,
        configuration: Configuration,
        living: Living,
        spaces: Spaces,
        now_ms: Callable[[], int],
        spawn: Spawn,
    ) -> None:
        self._configuration = configuration
        self._living = living
        self._now_ms = now_ms
        self._of: dict[str, dict[Seat, None]] = {}
        """By participant."""
        self.audience = Audience(configuration, delivered=living.head)
        self._resuming = Resuming(self.audience, configuration, living, spaces, now_ms, spawn)

    @property
    def all(self) -> list[Seat]:
        return [seat for mine in self._of.values() for seat in mine]

    def add(self, seat: Seat, after_seq: int | None, history: int) -> None:
        """It is welcome, and is brought up to where the others are."""
        self._of.setdefault(seat.participant, {})[seat] = None
        self._welcome(seat, after_seq)
        self._resuming.begin(seat, after_seq, history)

    def remove(self, seat: Seat) -> None:
        """Nothing more is written to it."""
        self.audience.discard(seat)
        seat.stop()
        mine = self._of.get(seat.participant)
        if mine is not None:
            mine.pop(seat, None)
            if not mine:
                del self._of[seat.participant]

    def close(self, code: int, reason: str) -> None:
        """All of them."""
        for seat in self.all:
            seat.close(code, reason)

    def deliver(self, stored: Sequence[StoredEnvelope], what: Consequences) -> None:
        affected = what.rights
        if what.configured:
            self.audience.configure(self._configuration)
            affected = affected.union(self._of)
        self._take_rights(affected)
        before = self.audience.delivered
        full = self.audience.deliver(stored, what.out)
        for seat in full:
            seat.at = before
            self._resuming.wait_for(seat)
        for participant in {*what.out, *(one for one in affected if not self._is_member(one))}:
            for seat in list(self._of.get(participant, ())):
                seat.close(closing.NOT_LET_IN, "you are not in this space any more")

    def _take_rights(self, participants: Iterable[str]) -> None:
        """Some of what they may is another now: they are told, and read by it."""
        state = self._living.state
        for participant in participants:
            for seat in list(self._of.get(participant, ())):
                reader = state.subscriber(participant, seat.reader.view)
                if reader != seat.reader:
                    seat.reader = reader
                    self.audience.regroup(seat)
                if self._is_member(participant) and seat.capabilities != state.capabilities(participant):
                    self._welcome(seat)

    def _welcome(self, seat: Seat, after_seq: int | None = None) -> None:
        state = self._living.state
        foreign = {} if after_seq is None or after_seq <= self.audience.delivered else {"unknown_after_seq": after_seq}
        seat.capabilities = state.capabilities(seat.participant)
        others = [Present(one, state.capabilities(one)) for one in state.present if one != seat.participant]
        seat.write(
            said.welcome(
                new_id(),
                self._now_ms(),
                Present(seat.participant, seat.capabilities),
                others,
                space=self._configuration.name,
                head=self.audience.delivered,
                view=seat.reader.view,
                **foreign,
            )
        )

    def _is_member(self, participant: str) -> bool:
        return self._living.state.ledger.is_member(participant)
