"""The connection of a participant, and how it is made again.

One task hears (`_run`), one for each connection sends. What is heard goes through `Arrivals`, to the echoes that
somebody waits for (`Outbox`), to the `Roster`, and then to whoever hears (`Hearers`). A gap that the space tells of is
read from the history before anything after it; where that cannot be had, the connection is made anew from before the
gap.

Where there is no connection, or it was closed, there may be one later (`Broken`), or there will be none
(`SpaceClosed`).

What has arrived of a space is each envelope once, in the space's order, whatever the connection did in between
(`Arrivals`):

    arrivals.resume           what to ask a connection for: where to go on, or how much of the history
    arrivals.welcomed(head)   a connection was accepted
    arrivals.begin_anew(head) … by another space than the one whose numbers these are
    arrivals.take(envelope)   the envelope as it is to be handed on, or None: it was here before

The space sends in its order, and leaves out what this reader is not shown: so numbers may be missing, but none comes
later than a greater one. What a connection missed the next one is asked for.

Who is in a space, as one of them is told (`Roster`): by each welcome, and by who came and left since.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any, NamedTuple

import msgspec
from msgspec import structs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from ...envelopes import DIALECTS, USUAL, closing, kinds
from ...envelopes.envelope import Envelope, EnvelopeError
from ...envelopes.payloads import Presence, Present, Welcome
from ...envelopes.shown import SpaceView
from ...envelopes.translate import read
from ...errors import PellucidError
from ...telemetry import log, place_of
from .inbox import Hearers
from .outbox import Outbox
from .refusals import Kicked, SpaceClosed
from .remote import Address, SpaceReader, problem


class Resume(NamedTuple):
    after_seq: int | None
    history: int | None


class Arrivals:
    """Of one participant."""

    def __init__(self, after_seq: int | None = None, history: int = 0) -> None:
        self.seen = after_seq or 0
        """The number of the last that was taken."""
        self.head = self.seen
        """The number of the newest that is known of."""
        self.joined: int | None = 0 if after_seq is not None else None
        """Where the space stood when this participant came: what is not newer is replayed. None: it was not said."""
        self._history = history if after_seq is None else 0
        self._asked = after_seq is not None

    @property
    def resume(self) -> Resume:
        if self._asked or self.seen:
            return Resume(self.seen, None)
        return Resume(None, self._history or None)

    def welcomed(self, head: int | None) -> None:
        if head is None:
            return
        self.head = max(self.head, head)
        if self.joined is None:
            self.joined = head
            if not self._history:
                self.seen, self._asked = max(self.seen, head), True

    def begin_anew(self, head: int) -> None:
        """The numbers until now were another space's. All that there is, is past."""
        self.seen, self.head, self.joined, self._asked = 0, head, head, True

    def take(self, envelope: Envelope) -> Envelope | None:
        seq = envelope.seq
        if not seq:
            return envelope
        if seq <= self.seen:
            return None
        self.seen = seq
        self.head = max(self.head, seq)
        if self.joined is None or envelope.replayed == (seq <= self.joined):
            return envelope
        # Asked for again after a cut, the history holds what is new, and what was missed holds history.
        return structs.replace(envelope, replayed=seq <= self.joined)


CLOSE_SECONDS = 3.0
MOST_UNHEARD = 64
"""Frames that are read ahead."""

_FOR_GOOD = {
    closing.BROKE_RULES: "the space closed the connection for breaking its rules",
    closing.NO_JOIN: "the space does not understand how this participant came in",
    closing.NO_TOKEN: "the space does not know this token",
    closing.NOT_LET_IN: "this participant may not be in the space",
    closing.GONE: "there is no such space",
}
_MAY_PASS = frozenset({408, 421, 425, 429})
"""Statuses below 500 that say "not now"."""


class Broken(Exception):
    """There is no connection, and there may be one later."""


async def dial(address: Address, token: str, *, view: SpaceView, resume: Resume, max_frame: int) -> ClientConnection:
    """Raises `Broken`, `SpaceClosed`."""
    url = address.socket(view=view, after_seq=resume.after_seq, history=resume.history)
    try:
        return await connect(
            url,
            subprotocols=[DIALECTS[USUAL].subprotocol],  # type: ignore[list-item]
            additional_headers={"Authorization": f"Bearer {token}"},
            compression=None,
            max_size=max_frame,
            max_queue=MOST_UNHEARD,
            close_timeout=CLOSE_SECONDS,
        )
    except InvalidStatus as error:
        raise _not_let_in(address, error) from None
    except InvalidURI as error:
        raise SpaceClosed(str(error), kind="invalid_request", code="invalid_url") from None
    except (InvalidHandshake, OSError, TimeoutError, EOFError) as error:
        raise Broken(f"nobody answers ({type(error).__name__})") from None


def _not_let_in(address: Address, error: InvalidStatus) -> Exception:
    status = error.response.status_code
    info = problem(status, bytes(error.response.body or b""))
    if status >= 500 or status in _MAY_PASS:
        return Broken(f"it answers with {status}: {info.message}")
    return SpaceClosed(
        f"{address.socket()} does not let this participant in: {info.message}",
        kind=info.kind,
        code=info.code or "not_let_in",
    )


def closed_for_good(code: int | None, why: str) -> SpaceClosed | None:
    """What a connection that the space closed with this code means, where nobody is to come back. `why`: its words."""
    if code not in _FOR_GOOD:
        return None
    return SpaceClosed(f"{_FOR_GOOD[code]}{f': {why}' if why else ''}", kind="forbidden", code=f"closed_{code}")


class Roster:
    """`me` is this participant with what it may; `others` are the rest, by id."""

    def __init__(self) -> None:
        self.me = Present("")
        self.others: dict[str, Present] = {}
        self.head = 0
        """Where the space stood at the last welcome: up to there it is known who is here."""

    def welcomed(self, welcome: Envelope, head: int) -> None:
        """Raises `msgspec.ValidationError` for what is none."""
        said = msgspec.convert(welcome.payload, Welcome)
        self.me = said.you
        self.others = {one.id: one for one in said.participants if one.id != said.you.id}
        self.head = head

    def hear(self, envelope: Envelope) -> None:
        """Somebody may have come or left."""
        if envelope.kind != kinds.PRESENCE or envelope.seq <= self.head:
            return
        said = msgspec.convert(envelope.payload, Presence)
        if said.participant.id == self.me.id:
            return
        if said.event == "join":
            self.others[said.participant.id] = said.participant
        elif said.event == "leave":
            self.others.pop(said.participant.id, None)


WELCOME_SECONDS = 15.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

_LASTING = frozenset({"unauthorized", "forbidden", "not_found", "invalid_request"})


class Link:
    def __init__(
        self,
        address: Address,
        token: str,
        *,
        view: SpaceView,
        after_seq: int | None,
        history: int,
        patience: float,
        max_frame: int,
    ) -> None:
        self.address = address
        self.view = view
        self.arrivals = Arrivals(after_seq, history)
        self.reader = SpaceReader(address, token)
        self.roster = Roster()
        self.hearers = Hearers(self._fetch)
        self._token = token
        self._patience = patience
        self._max_frame = max_frame
        self._outbox = Outbox(patience)
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._welcome: asyncio.Future[None] | None = None
        """Done once the first welcome came, or it is known that none will."""
        self._why: str | None = None
        """What was told before a connection was closed instead of a welcome."""
        self._kicked: Kicked | None = None
        self._over: Exception | None = None
        self._leaving = False

    # --- from outside --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._task is not None:
            raise RuntimeError("a Participant is used once; make another one")
        self._welcome = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())
        try:
            await self._welcome
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._leaving = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._end(None)
        await self.reader.aclose()

    @property
    def connected(self) -> bool:
        return self._socket is not None

    async def look(self, view: SpaceView) -> None:
        if view != self.view:
            self.view = view
            if self._socket is not None:
                await self._socket.close()  # and it is made again, with the new view, from where it stood

    async def send(self, envelope: Envelope) -> Envelope:
        if self._over is not None:
            raise self._over
        if self._task is None or self._leaving:
            raise SpaceClosed("this participant is not in the space: use it in `async with`", code="not_joined")
        sent = self._outbox.add(envelope)
        try:
            return await sent.echo
        finally:
            self._outbox.drop(sent)

    # --- connecting ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failure: Exception | None = None
        try:
            failure = await self._stay()
        except Exception as error:
            log.error("a participant's connection broke on a fault of our own: %s", place_of(error))
            failure = error
        finally:
            self._end(failure)

    async def _stay(self) -> Exception:
        """Until there is no more to be done; why."""
        loop = asyncio.get_running_loop()
        pause, since = FIRST_PAUSE, loop.time()
        while True:
            seen = self.arrivals.seen
            try:
                await self._session()
                since = loop.time()
                if self.arrivals.seen > seen:
                    pause = FIRST_PAUSE
            except SpaceClosed as error:
                return error
            except Broken as error:
                if self._welcome is None or not self._welcome.done():
                    return SpaceClosed(f"{self.address.socket()}: {error}", code="unreachable")
                if loop.time() - since > self._patience:
                    return SpaceClosed(
                        f"the connection to {self.address.socket()} was lost, and {self._patience:g} s were not enough "
                        f"to make it again: {error}",
                        code="lost",
                    )
            # Many lose their connection at once when a server goes, and should not come back at once.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _session(self) -> None:
        """One connection, to its end. Raises `Broken`: there was none; `SpaceClosed`: there will be none."""
        socket = await dial(
            self.address, self._token, view=self.view, resume=self.arrivals.resume, max_frame=self._max_frame
        )
        sender: asyncio.Task[None] | None = None
        try:
            try:
                async with asyncio.timeout(WELCOME_SECONDS):
                    while not self._welcomed(await socket.recv()):
                        pass
            except TimeoutError:
                raise Broken("no welcome came") from None
            self._socket = socket
            self._outbox.again()
            sender = asyncio.create_task(self._send_all(socket))
            async for data in socket:
                await self._heard(data)
        except ConnectionClosed:
            pass
        except PellucidError as error:
            log.debug("a gap could not be read, the connection is made again: %s", error.info.code)
        finally:
            welcomed, self._socket = self._socket is not None, None
            if sender is not None:
                sender.cancel()
            with contextlib.suppress(Exception):
                await socket.close()
        self._closed(socket.close_code, socket.close_reason or "")
        if not welcomed:
            raise Broken("it was closed before the welcome")

    def _closed(self, code: int | None, reason: str) -> None:
        """Raises where it is for good."""
        if self._kicked is not None:
            raise self._kicked
        if code == closing.TOO_BIG:
            self._outbox.too_large(reason)
        elif (over := closed_for_good(code, self._why or reason)) is not None:
            raise over

    async def _send_all(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await socket.send((await self._outbox.next()).data, text=True)

    # --- hearing -------------------------------------------------------------------------------------------------

    def _welcomed(self, data: str | bytes) -> bool:
        """Whether it is the welcome, with which a connection begins."""
        envelope = self._read(data)
        if envelope is None:
            return False
        if envelope.kind != kinds.WELCOME:
            if envelope.kind == kinds.ERROR:
                said = envelope.payload.get("message")
                self._why = said if isinstance(said, str) else None
                return False
            raise Broken(f"it began with {envelope.kind!r}, not with {kinds.WELCOME!r}")
        self._come_in(envelope)
        return True

    def _come_in(self, envelope: Envelope) -> None:
        head = envelope.payload.get("head")
        head = head if isinstance(head, int) and not isinstance(head, bool) else None
        self.roster.welcomed(envelope, head or 0)
        if envelope.payload.get("unknown_after_seq") is not None:
            log.warning("the space %s is not the one that was left: it begins anew", self.address.space)
            self.arrivals.begin_anew(head or 0)
            self.hearers.hand_on(envelope)
        else:
            self.arrivals.welcomed(head)
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_result(None)

    def _read(self, data: str | bytes) -> Envelope | None:
        try:
            return read(data)
        except EnvelopeError as error:
            log.warning("a frame of the space cannot be read: %s", error.info.code)
            return None

    async def _heard(self, data: str | bytes) -> None:
        envelope = self._read(data)
        if envelope is None:
            return
        if envelope.kind == kinds.WELCOME:
            self._come_in(envelope)  # what this participant may has changed
        elif envelope.kind == kinds.GAP:
            await self._fill(envelope.payload)
        elif envelope.kind == kinds.ERROR and not envelope.seq:
            if not self._outbox.refused(envelope):
                self.hearers.hand_on(envelope)
        elif envelope.sender == self.roster.me.id and self._is_ahead(envelope):
            await self._fill({"before_seq": envelope.seq + 1})
        else:
            self._take(envelope)

    def _is_ahead(self, envelope: Envelope) -> bool:
        """Whether an echo may be the answer to the same envelope sent again, which comes at once, before what was said
        in the meantime."""
        seen = self.arrivals.seen
        times = self._outbox.echoed(envelope)
        return envelope.seq > seen + 1 and (times > 1 or (times == 1 and seen < self.roster.head))

    async def _fill(self, payload: dict[str, Any]) -> None:
        """Read what was left out. Raises `PellucidError`."""
        after, before = payload.get("after_seq"), payload.get("before_seq")
        if not isinstance(before, int):
            return
        reached = self.arrivals.seen
        if isinstance(after, int):
            reached = max(reached, after)
        while reached < before - 1:
            page = await self.reader.page(after_seq=reached, before_seq=before, view=self.view)
            for envelope in page.envelopes:
                self._take(envelope)
            if not page.has_more or page.reached <= reached:
                return
            reached = page.reached

    def _take(self, envelope: Envelope) -> None:
        if envelope.sender == self.roster.me.id:
            self._outbox.echoed(envelope)  # out of the history, it may be the first that is heard of it
        new = self.arrivals.take(envelope)
        if new is None:
            return
        self.roster.hear(new)
        if new.kind == kinds.KICK and not new.replayed and new.payload.get("participant_id") == self.roster.me.id:
            reason = new.payload.get("reason")
            self._kicked = Kicked(new.sender, reason if isinstance(reason, str) else None)
        self.hearers.hand_on(new)

    async def _fetch(self, after: int, before: int) -> tuple[list[Envelope], int]:
        """For an inbox that was full. Raises `PellucidError` where it cannot be had."""
        loop = asyncio.get_running_loop()
        since, pause = loop.time(), FIRST_PAUSE
        while True:
            if self._leaving:
                return [], before - 1
            try:
                page = await self.reader.page(after_seq=after, before_seq=before, view=self.view)
                break
            except PellucidError as error:
                if error.info.kind in _LASTING or loop.time() - since > self._patience:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        joined = self.arrivals.joined or 0
        found = [msgspec.structs.replace(one, replayed=one.seq <= joined) for one in page.envelopes]
        return found, page.reached if page.has_more else before - 1

    # --- the end -------------------------------------------------------------------------------------------------

    def _end(self, failure: Exception | None) -> None:
        if self._over is None and failure is not None:
            self._over = failure
        told = failure or self._over or SpaceClosed("this participant has left the space", code="left")
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(told)
        self._outbox.fail(told)
        self.hearers.end(told, None if self._leaving else failure)
