"""Streams under any sequence of acts, at two replicas: who reads and writes is as in a simple model, the frames of a
writer keep their order, and nothing of the data is stored."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import PellucidError
from pellucid.relay import open_relay
from pellucid.spaces.runtime.ingest import MAX_STREAM_FRAME_BYTES
from pellucid.spaces.runtime.maintenance import Intervals
from pellucid.spaces.runtime.provisioning import create_space
from pellucid.spaces.runtime.session import Frame, Session
from pellucid.spaces.runtime.settings import read_settings
from pellucid.spaces.runtime.space import Space
from pellucid.storage import Store
from tests.spaces.space_kit import OWNER, Sink, join_space, opened, opened_store, replica, whole_log
from tests.waiting import HOUR_SECONDS, eventually

MAX_STREAMS = 2
STREAMS = "stream/*"
WHO = {"ada": ["*"], "bob": [STREAMS], "cyd": [STREAMS], "dee": ["chat"]}
NAMES = tuple(WHO)
FAST = {"per_second": 1e6, "burst": 1e6}
SETTINGS = {"limits": {"stream": FAST, "other": FAST, "errors": FAST, "open_streams": MAX_STREAMS}}
DATA = "data-that-is-never-stored"


class Reader(Sink):
    """Outlet that separates frames of streams from envelopes."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[str] = []

    def write(self, frames: Sequence[Frame]) -> None:
        self.data += [one.text.decode() for one in frames if one.text[:1] == b"#"]
        super().write([one for one in frames if one.text[:1] != b"#"])


class Connection(NamedTuple):
    """A session, and the frames that it should have received: of each writer of each stream, in their order."""

    name: str
    session: Session
    sink: Reader
    expected: dict[tuple[str, str], list[str]]
    """By the id of the stream and the name of the writing connection."""

    def received(self) -> dict[tuple[str, str], list[str]]:
        frames: dict[tuple[str, str], list[str]] = defaultdict(list)
        for text in self.sink.data:
            _, stream, data = text.split("#", 2)
            frames[stream, data.split(" ")[0]].append(text)
        return frames


class ModelStream:
    """An open stream, by the rules of `envelopes.streams`."""

    def __init__(self, owner: str, readers: Iterable[str]) -> None:
        self.owner = owner
        self.writers = {owner}
        self.named = {owner, *readers} if readers else set()
        """Empty: everyone reads it."""

    def is_read_by(self, who: str) -> bool:
        return not self.named or who in self.named | self.writers or who == "ada"  # she may observe

    def hand_over(self, new_owner: str) -> None:
        self.writers = (self.writers - {self.owner}) | {new_owner}
        self.owner = new_owner
        if self.named:
            self.named.add(new_owner)


class World:
    """A space at two replicas, and the model of its streams."""

    def __init__(self, spaces: Sequence[Space]) -> None:
        self.streams: dict[str, ModelStream] = {}
        self.ids: list[str] = []
        """Ids of all streams that were ever opened, and of one that was not."""
        self.connections: list[Connection] = []
        self.requesters = {"ada", "bob", "cyd"}
        self.spaces = spaces
        self._count = 0

    async def close(self) -> None:
        for one in self.connections:
            await one.session.leave()

    def is_present(self, who: str) -> bool:
        return any(one.session.participant == who for one in self.connections)

    def owned(self, who: str) -> int:
        return sum(one.owner == who for one in self.streams.values())

    async def _settle(self) -> None:
        """Wait until both replicas know the whole log."""
        for space in self.spaces:
            await space.catch_up()

    # --- acts

    async def join(self, who: str, at: int) -> None:
        after = self.spaces[at].head
        sink = Reader()
        session = await self.spaces[at].join(who, sink, after_seq=after)
        await eventually(lambda: session.group_key is not None, "it is up to date")
        self._count += 1
        self.connections.append(Connection(f"{who}-{self._count}", session, sink, defaultdict(list)))
        await self._settle()
        shown = sink.of("system/welcome")[-1]["payload"]["active_streams"]
        assert {one["stream_id"]: (one["owner"], set(one["authorized_writers"])) for one in shown} == {
            id: (one.owner, one.writers) for id, one in self.streams.items() if one.is_read_by(who)
        }

    async def leave(self, number: int) -> None:
        if not self.connections:
            return
        gone = self.connections.pop(number % len(self.connections))
        who = gone.session.participant
        await gone.session.leave()
        await self._settle()
        if self.is_present(who):
            return
        ended = {id: one for id, one in self.streams.items() if one.owner == who}
        for id in ended:
            del self.streams[id]
        for stream in self.streams.values():
            stream.writers.discard(who)
        for one in self.connections:
            reasons = {
                close["payload"]["stream_id"]: close["payload"]["reason"]
                for close in one.sink.of("stream/close")
                if close["payload"]["stream_id"] in ended
            }
            readers = [id for id, stream in ended.items() if stream.is_read_by(one.session.participant)]
            assert reasons == dict.fromkeys(readers, "disconnected"), (who, one.name)

    async def request(self, who: str, at: int, fields: dict[str, Any], readers: Sequence[str]) -> None:
        accepted = (
            who in self.requesters
            and self.is_present(who)
            and self.owned(who) < MAX_STREAMS
            and all(one in WHO for one in readers)
        )
        seq = await self._post(who, at, "stream/request", fields, accepted)
        if seq is not None:
            id = f"stream-{seq}"
            self.streams[id] = ModelStream(who, readers)
            self.ids.append(id)

    async def change(self, act: str, by: str, at: int, id: str, name: str) -> None:
        stream = self.streams.get(id)
        is_owner = by != "dee" and stream is not None and stream.owner == by
        field = "new_owner" if act == "transfer-ownership" else "participant_id"
        accepted = is_owner
        match act:
            case "close":
                is_known = stream is not None and stream.is_read_by(by)
                accepted = is_owner or (by != "dee" and not is_known)  # of no open stream: passed on
            case "grant-write":
                accepted = is_owner and name in WHO
            case "revoke-write":
                accepted = is_owner and name != by
            case "transfer-ownership":
                accepted = (
                    is_owner and name in self.requesters and self.is_present(name) and self.owned(name) < MAX_STREAMS
                )
        await self._post(by, at, f"stream/{act}", {"payload": {"stream_id": id, field: name}}, accepted)
        if not accepted or stream is None:
            return
        match act:
            case "close" if is_owner:
                del self.streams[id]
            case "grant-write":
                stream.writers.add(name)
            case "revoke-write":
                stream.writers.discard(name)
            case "transfer-ownership":
                stream.hand_over(name)

    async def change_rights(self, at: int) -> None:
        """Take the right to open streams from bob, or give it back."""
        act = "revoke" if "bob" in self.requesters else "grant"
        payload = {"recipient": "bob", "capabilities": ["stream/request"]}
        await self._post("ada", at, f"capability/{act}", {"payload": payload}, accepted=True)
        self.requesters ^= {"bob"}
        if act == "revoke":
            self.streams = {id: one for id, one in self.streams.items() if one.owner != "bob"}

    async def _post(self, who: str, at: int, kind: str, fields: dict[str, Any], accepted: bool) -> int | None:
        refusal: PellucidError | None = None
        seq: int | None = None
        try:
            result = await self.spaces[at].post(who, {"kind": kind, "payload": {}, **fields})
            seq = result.stored.envelope.seq
        except PellucidError as error:
            refusal = error
        assert (refusal is None) == accepted, (kind, who, fields, refusal)
        await self._settle()
        return seq

    async def write(self, frames: Sequence[tuple[int, str]]) -> None:
        """Write several frames at once, each from one of the connections."""
        for number, id in frames if self.connections else ():
            self._count += 1
            sender = self.connections[number % len(self.connections)]
            who = sender.session.participant
            text = f"#{id}#{sender.name} {self._count} {DATA}"
            errors = len(sender.sink.errors)
            await sender.session.receive(text)
            stream = self.streams.get(id)
            if stream is None or who not in stream.writers:
                is_known = stream is not None and stream.is_read_by(who)
                code = "unauthorized_stream_write" if is_known else "stream_not_found"
                assert sender.sink.errors[errors:] == [code], text
                continue
            assert len(sender.sink.errors) == errors, text
            for one in self.connections:
                if stream.is_read_by(one.session.participant) or one.session.participant == who:
                    one.expected[id, sender.name].append(text)
        await eventually(self._has_relayed, "both replicas have the frames")

    def _has_relayed(self) -> bool:
        here, there = (one._stream_relay for one in self.spaces)
        return all(
            two._last_counts.get(one._replica_id, 0) == one._count for one, two in ((here, there), (there, here))
        )

    def check(self) -> None:
        for space in self.spaces:
            known = space._live.state.streams.state
            assert {id: (one.owner, set(one.writers)) for id, one in known.items()} == {
                id: (one.owner, one.writers) for id, one in self.streams.items()
            }
        for one in self.connections:
            received = one.received()
            assert received == one.expected, f"{one.name}: {received} != {one.expected}"


names = st.sampled_from(NAMES)
replicas = st.integers(0, 1)
numbers = st.integers(0, 20)
ACTS = st.one_of(
    st.tuples(st.just("join"), names, replicas),
    st.tuples(st.just("leave"), numbers),
    st.tuples(
        st.just("request"),
        names,
        replicas,
        st.sampled_from(["", "to", "target"]),
        st.lists(st.sampled_from([*NAMES, "eve"]), unique=True, min_size=1, max_size=2),
    ),
    st.tuples(
        st.sampled_from(["grant-write", "grant-write", "revoke-write", "transfer-ownership", "close"]),
        st.one_of(st.just("owner"), names),
        replicas,
        numbers,
        st.sampled_from([*NAMES, "eve"]),
    ),
    st.tuples(st.just("rights"), replicas),
    st.tuples(st.just("write"), st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8)),
    st.tuples(st.just("write"), st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8)),
)


@given(st.lists(ACTS, min_size=8, max_size=40))
def test_streams_are_those_of_the_model(acts: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(Path(folder, "streams.sqlite"), acts))
        for file in Path(folder).iterdir():
            assert DATA.encode() not in file.read_bytes(), file.name


async def _play(file: Path, acts: list[tuple[Any, ...]]) -> None:
    async with AsyncExitStack() as stack:
        store: Store = await stack.enter_async_context(opened_store(f"sqlite:///{file}"))
        await create_space(store.spaces, OWNER, "room", read_settings(SETTINGS), WHO)
        relay = await open_relay(None)
        stack.push_async_callback(relay.aclose)
        # Only leaves that are announced count, however slow this machine is.
        intervals = Intervals(poll_seconds=0.5, presence_seconds=HOUR_SECONDS)
        managers = [await stack.enter_async_context(replica(store, relay, intervals=intervals)) for _ in range(2)]
        world = World([await one.space("room") for one in managers])
        stack.push_async_callback(world.close)
        for number, name in enumerate(NAMES):
            await world.join(name, number % 2)
        await world.request("ada", 0, {}, ())
        await world.request("cyd", 1, {"to": ["bob"]}, ["bob"])
        await world.change("grant-write", "cyd", 1, world.ids[1], "dee")
        for act in acts:
            await _act(world, *act)
            world.check()
        # The log alone gives the same streams, as after a crash.
        async with replica(store, relay, intervals=intervals) as later:
            restored = await later.space("room")
            assert restored._live.state.streams.state == world.spaces[0]._live.state.streams.state
            log = await whole_log(restored)
            assert not any(DATA in msgspec.json.encode(one.envelope.payload).decode() for one in log)


async def _act(world: World, act: str, *how: Any) -> None:
    match act, how:
        case "join", (who, at):
            await world.join(who, at)
        case "leave", (number,):
            await world.leave(number)
        case "request", (who, at, field, several):
            fields = {"": {}, "to": {"to": several}, "target": {"payload": {"target": several}}}[field]
            readers = [one for one in several if field == "target" or one in WHO] if field else []
            await world.request(who, at, fields, readers)
        case "rights", (at,):
            await world.change_rights(at)
        case "write", (frames,):
            ids = [*world.streams, *world.ids, "stream-0"]
            await world.write([(number, ids[other % len(ids)]) for number, other in frames])
        case _, (by, at, number, name):
            ids = [*world.streams, *world.ids]
            id = ids[number % len(ids)]
            stream = world.streams.get(id)
            await world.change(act, (stream.owner if stream else "ada") if by == "owner" else by, at, id, name)


def test_a_slow_reader_misses_frames_and_its_buffer_is_bounded() -> None:
    async def scene() -> None:
        limits = {**SETTINGS["limits"], "outlet_bytes": 100_000, "bytes": FAST}
        async with opened(settings={"limits": limits}) as (_, space, _store):
            ada, _ = await join_space(space, "ada")
            fast, slow = Reader(), Sink()
            await space.join("bob", fast)
            await space.join("cyd", slow)
            slow.stuck = True
            result = await space.post("ada", {"kind": "stream/request", "payload": {}})
            head = f"#stream-{result.stored.envelope.seq}#"
            await eventually(lambda: fast.of("stream/open") and slow.of("stream/open"))
            frame = head + "x" * (MAX_STREAM_FRAME_BYTES - len(head))
            for _ in range(50):
                await ada.receive(frame)
            assert len(fast.data) == 50
            assert slow.buffered_bytes <= 100_000 + MAX_STREAM_FRAME_BYTES + 100
            slow.drain()
            await ada.receive(head + "again")
            assert slow.frames[-1].text == (head + "again").encode()

    asyncio.run(scene())
