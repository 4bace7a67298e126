"""Measure a space with a million envelopes: appending, reading, searching, and opening.

    .venv/bin/python bench/spaces_store.py [--envelopes 1000000] [--url URL] [--file FILE] [--postgres]

Without a URL, a SQLite file in a temporary directory (or `--file`, which is kept, and used again if it is there); with
`--postgres`, a server of its own, with the settings that PostgreSQL comes with. The texts consist of common and rare
words, in trees of reasoning, by senders with many envelopes and one with few old ones. They are written with the
store's own appends. Each figure is the median of several queries; the next column has the slowest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from pellucid.envelopes import Envelope  # noqa: E402
from pellucid.envelopes.reasoning import ContextPlace, NameSet  # noqa: E402
from pellucid.relay import open_relay  # noqa: E402
from pellucid.spaces.runtime.space_manager import SpaceManager  # noqa: E402
from pellucid.storage import Append, Store, StoredEnvelope, StoredSpace, open_store  # noqa: E402
from tests.service_postgres import postgres  # noqa: E402

OWNER, NAME = "bench", "room"
BATCH = 500
TIMES = 31
TARGET = 50.0
APPEND_TARGET = 20.0
OPENINGS, OPENING_TARGET = 9, 100.0

COMMON = """
the of and to in is that it was for on are as with they be at one have this from or had by hot but some what
there we can out other were all your when up use word how said an each she which do their time if will way about
many then them would write like so these her long make thing see him two has look more day could go come did my
sound no most number who over know water than call first people may down side been now find any new work part
take get place made live where after back little only round man year came show every good me give our under name
very through just form much great think say help low line before turn cause same mean differ move right boy old
too does tell sentence set three want air well also play small end put home read hand port large spell add even
land here must big high such follow act why ask men change went light kind off need house picture try us again
animal point mother world near build self earth father request latency cache token error branch review deploy
metric
""".split()  # noqa: SIM905


def words(seed: int = 7) -> Callable[[], str]:
    """Return a function that makes sentences of common words and of twenty thousand rare ones."""
    chance = random.Random(seed)
    sounds = [a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "ai", "ou", "an", "er", "ist")]
    rare = ["".join(chance.choices(sounds, k=chance.randint(2, 4))) for _ in range(20_000)]

    def sentence() -> str:
        chosen = chance.choices(COMMON, k=chance.randint(8, 30)) + chance.choices(rare, k=chance.randint(1, 8))
        chance.shuffle(chosen)
        return " ".join(chosen)

    return sentence


def envelopes_of_a_space() -> Iterator[StoredEnvelope]:
    """Yield the envelopes of a space, without end."""
    chance, sentence, seqs = random.Random(11), words(), itertools.count(1)
    agents = [f"agent-{number}" for number in range(8)]

    def one(
        kind: str,
        sender: str,
        payload: dict[str, Any],
        place: ContextPlace,
        id: str | None = None,
        about: tuple[str, ...] = (),
    ) -> StoredEnvelope:
        seq = next(seqs)
        at = 1_700_000_000_000 + seq * 20 + chance.randint(-500, 500)
        if seq % 100_000 == 77:
            payload = {**payload, "detail": "what was seen in Zanzibar that day"}
        envelope = Envelope(
            id=id or f"msg-{seq}",
            ts=at,
            sender=sender,
            kind=kind,
            payload=payload,
            context=place.path,
            seq=seq,
            correlation_id=about,
        )
        return StoredEnvelope(envelope, at, place, b'{"links":[]}')

    for tree in itertools.count():
        agent = "once-here" if tree % 37 == 0 and tree < 37 * 20 else agents[tree % len(agents)]
        start = f"start-{tree}"
        yield one("chat", "person", {"text": sentence()}, ContextPlace())
        yield one("reasoning/start", agent, {"message": sentence()}, ContextPlace(start, "opens", agent), start)
        step, path = ContextPlace(start, "step", agent), start
        for number in range(chance.randint(4, 24)):
            if number == 9:
                path = f"{start}/inner-{tree}"
                opens = ContextPlace(path, "opens", agent)
                yield one("reasoning/start", agent, {"message": sentence()}, opens, f"inner-{tree}")
                step = ContextPlace(path, "step", agent)
            kind = chance.choice(["thought", "thought", "thought", "observation", "hypothesis"])
            meta = {"confidence": round(chance.random(), 2), "step": "look"}
            yield one(f"reasoning/{kind}", agent, {"message": sentence(), "metadata": meta}, step)
        call = {"method": "tools/call", "params": {"name": "read_file", "arguments": {"path": f"src/{tree}.py"}}}
        asks = f"call-{tree}"
        yield one("mcp/request", agent, call, step, asks)
        result = {"result": {"content": [{"type": "text", "text": sentence()}]}}
        yield one("mcp/response", "tools", result, step, about=(asks,))
        if tree % 2_000 == 5:
            yield one("mcp/withdraw", agent, {"reason": "not needed"}, step)
        yield one("reasoning/conclusion", agent, {"message": sentence()}, ContextPlace(start, "ends", agent))
        yield one("chat", agent, {"text": sentence()}, ContextPlace(), about=(start,))


async def fill(store: Store, wanted: int) -> None:
    space = StoredSpace(owner=OWNER, name=NAME, created_at=time.time(), settings=b"{}")
    head, version = (await store.spaces.put(space, [])).head, 1
    stream = envelopes_of_a_space()
    for _ in zip(range(head), stream, strict=False):
        pass
    begun, first = time.monotonic(), head
    while head < wanted:
        some = list(itertools.islice(stream, min(BATCH, wanted - head)))
        append = Append(owner=OWNER, space=NAME, expected_head=head, version=version, envelopes=some)
        head = (await store.spaces.append(append)).head
        if head % 50_000 < BATCH:
            rate = (head - first) / (time.monotonic() - begun)
            print(f"  {head} envelopes, {rate:.0f}/s", file=sys.stderr, flush=True)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(name: str, query: Callable[[], Awaitable[Any]], target: float = TARGET) -> bool:
    await query()
    spent = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        answer = await query()
        spent.append((time.perf_counter() - begun) * 1000)
        if spent[-1] > 5_000:
            break
    result = len(answer) if isinstance(answer, list | tuple) else answer
    middle = statistics.median(spent)
    shown = str(result)[:28]
    note = "" if middle < target else "   <-- over the target"
    print(f"  {name:<58} {middle:9.2f} ms  {max(spent):9.2f} ms   {shown}{note}", flush=True)
    return middle < target


async def appends(store: Store) -> None:
    """Measure appends of fifty envelopes, one after the other: CPU time of this process, and duration."""
    head = await store.spaces.head(OWNER, NAME)
    assert head is not None
    stream = envelopes_of_a_space()
    for _ in zip(range(head.head), stream, strict=False):
        pass
    used, took, seq = [], [], head.head
    for _ in range(TIMES):
        some = list(itertools.islice(stream, 50))
        append = Append(owner=OWNER, space=NAME, expected_head=seq, version=head.version, envelopes=some)
        before, begun = cpu(), time.perf_counter()
        seq = (await store.spaces.append(append)).head
        took.append((time.perf_counter() - begun) * 1000)
        used.append((cpu() - before) * 1000)
    print(f"  append of 50: {statistics.median(used):.2f} ms of CPU, {statistics.median(took):.2f} ms of waiting")


async def openings(store: Store) -> None:
    """The first opening finds no snapshot, because the envelopes were written without one."""
    relay = await open_relay(None)
    spent = []
    try:
        for _ in range(1 + OPENINGS):
            spaces = SpaceManager(store, relay)
            begun = time.perf_counter()
            await spaces.space(NAME)
            spent.append((time.perf_counter() - begun) * 1000)
            await spaces.aclose()
    finally:
        await relay.aclose()
    rest = spent[1:]
    note = "" if statistics.median(rest) < OPENING_TARGET else "   <-- over the target"
    print(f"  open: {spent[0]:.0f} ms first; then {statistics.median(rest):.1f} ms, at most {max(rest):.1f} ms{note}")


async def look(store: Store) -> bool:
    spaces = store.spaces
    head = await spaces.head(OWNER, NAME)
    assert head is not None
    last = head.head
    early, late = last // 100, last - last // 100
    tree = (await spaces.page(OWNER, NAME, before=last // 2, newest=True, kinds=["reasoning/start"], limit=1))[0]
    path = tree.place.path or ""
    at = tree.at
    id = tree.envelope.id

    def page(**wanted: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: spaces.page(OWNER, NAME, **wanted)

    def search(query: str, **wanted: Any) -> Callable[[], Awaitable[Any]]:
        return lambda: spaces.search(OWNER, NAME, query, **wanted)

    queries: dict[str, Callable[[], Awaitable[Any]]] = {
        "head": lambda: spaces.head(OWNER, NAME),
        "the newest 500 (join)": page(newest=True),
        "100 in the middle": page(after=last // 2, limit=100),
        "100, newest, of one agent": page(newest=True, sender="agent-3", limit=100),
        "100, newest, of one who said little long ago": page(newest=True, sender="once-here", limit=100),
        "100, newest, of an absent sender": page(newest=True, sender="absent", limit=100),
        "100, newest, of one kind": page(newest=True, kinds=["reasoning/start"], limit=100),
        "100, newest, of four kinds": page(newest=True, kinds=["chat", "mcp/*", "reasoning/start", "x/y"], limit=100),
        "100, newest, of a rare kind": page(newest=True, kinds=["mcp/withdraw"], limit=100),
        "100, newest, of one agent and a rare kind": page(
            newest=True, sender="agent-5", kinds=["mcp/withdraw"], limit=100
        ),
        "one tree": page(within=path),
        "one tree, by kind": page(within=path, kinds=["reasoning/*"]),
        "one by seq": lambda: spaces.get_envelope(OWNER, NAME, last // 3),
        "by id": lambda: spaces.get_envelope_by_id(OWNER, NAME, id),
        "by id that is not there": lambda: spaces.get_envelope_by_id(OWNER, NAME, "no-such-id"),
        "since": lambda: spaces.first_seq_since(OWNER, NAME, at),
        "known (20 ids, 2 paths)": lambda: spaces.existing_names(
            OWNER, NAME, NameSet(frozenset(f"msg-{n * 1000}" for n in range(20)), frozenset([path, "nowhere"]))
        ),
        "search: in ten of them": search("zanzibar"),
        "search: in none": search("qqqjx"),
        "search: in most (the)": search("the"),
        "search: in most, long ago": search("the", before=early),
        "search: three characters, some": search("baz"),
        "search: a common pair of words": search("the water"),
        "search: all its trigrams common, itself in few": search("that was the time for the"),
        "search: all its trigrams common, itself in none": search("then thenthe thatand"),
        "search: in most, of one agent": search("the", sender="agent-3"),
        "search: in most, of one who said little long ago": search("the", sender="once-here"),
        "search: in most, of a rare kind": search("not", kinds=["mcp/withdraw"]),
        "search: in most, of three kinds": search("the", kinds=["chat", "mcp/*", "reasoning/start"]),
        "search: in most, in one tree": search("the", within=path),
        "search: in ten, of one agent": search("zanzibar", sender="agent-3"),
        "search: in ten, since late": search("zanzibar", before=late),
    }
    print(f"{last} envelopes: the median of {TIMES}, the slowest, the result")
    good = [await measure(name, query) for name, query in queries.items()]
    for query in ("th", "zq"):  # no index helps here
        await measure(f"search: two characters ({query})", search(query), float("inf"))
    return all(good)


@contextlib.asynccontextmanager
async def opened(options: argparse.Namespace) -> AsyncIterator[Store]:
    with contextlib.ExitStack() as stack:
        url = options.url
        if options.postgres:
            server = stack.enter_context(postgres())
            url = server.database()
        elif url is None:
            path = options.file or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "spaces.sqlite"
            url = f"sqlite:///{path.resolve()}"
        store = await open_store(url)
        try:
            yield store
        finally:
            await store.aclose()


async def main(options: argparse.Namespace) -> int:
    async with opened(options) as store:
        await fill(store, options.envelopes)
        await appends(store)
        await openings(store)
        return 0 if await look(store) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envelopes", type=int, default=1_000_000)
    parser.add_argument("--url")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--postgres", action="store_true")
    sys.exit(asyncio.run(main(parser.parse_args())))
