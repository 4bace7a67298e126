"""The same bytes from a server, cut anywhere: our client and aiohttp report the same status, body and error.

Where they differ, ours is right, and the difference stands in `may_differ`.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ModelError
from pellucid.upstream import UpstreamClient, UpstreamResponse
from tests.examples import many
from tests.upstream.aiohttp_peer import PeerClient, PeerResponse
from tests.upstream.body_reader import BodyReader
from tests.upstream.conftest import LIMITS
from tests.upstream.raw_server import RawServer
from tests.waiting import loop_turns

UNTOLD = "the connection is closed, and who reads still waits"
BODY = b"data: {}\n\ndata: [DONE]\n\n"


class Script(NamedTuple):
    """What a server sends before it closes."""

    sent: bytes
    head_bytes: int
    """How much of it is the head of the final response, and what precedes it."""
    is_encoded: bool
    has_more: bool
    """Whether bytes follow the response."""


class Seen(NamedTuple):
    """What a client makes of it."""

    status: int | None
    body: bytes
    code: str | None


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """A response, legal or not, and where the connection ends."""

    def draw_from(*options: Any) -> Any:
        return draw(st.sampled_from(options))

    interim = draw_from(b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
    version = draw_from(b"1.1", b"1.1", b"1.0")
    status = draw_from(b"200 OK", b"200 OK", b"404 Not Found", b"500", b"204 No Content", b"304 X", b"307 Go")
    encoding = draw_from(b"", b"", b"", b"gzip", b"deflate", b"identity", b"other", b"br")
    body = draw_from(b"", b"x", BODY, BODY * 40)
    if encoding == b"gzip":
        body = gzip.compress(body, mtime=0)
    elif encoding == b"deflate":
        body = zlib.compress(body)
    if draw_from(False, False, False, True) and encoding:
        body = draw(st.binary(min_size=1, max_size=20))
    fields = [b"Content-Type: text/event-stream"]
    if encoding:
        fields.append(b"Content-Encoding: " + encoding)
    fields += draw_from(
        [], [], [], [b"Connection: close"], [b"X: " + b"a" * 8000], [b"X: " + b"a" * 9000], [b"X: a"] * 120,
        [b"X: a"] * 130, [b"X: a", b" folded"], [b"X y: a"], [b"X: \xff\x80"], [b": a"], [b"X"], [b"Location: /x"],
    )  # fmt: skip
    framing = draw_from("length", "chunked", "chunked", "close", "both", "wrong length", "short", "other")
    if framing in ("length", "both", "short"):
        fields.append(b"Content-Length: %d" % (len(body) + (5 if framing == "short" else 0)))
    if framing == "wrong length":
        fields.append(draw_from(b"Content-Length: x", b"Content-Length: -1", b"Content-Length: 1\r\nContent-Length: 2"))
    if framing in ("chunked", "both"):
        fields.append(b"Transfer-Encoding: chunked")
        body = draw(chunks(body))
    if framing == "other":
        fields.append(b"Transfer-Encoding: gzip")
    line_end = draw_from(b"\r\n", b"\r\n", b"\r\n", b"\n")
    head = interim + line_end.join([b"HTTP/%b %b" % (version, status), *fields, b"", b""])
    if draw_from(False, False, False, False, False, True):
        head = draw_from(b"SSH-2.0\r\n", b"HTTP/2 200\r\n", b"", b"\r\n", b"HTTP/1.1 20x\r\n", b"\0") + head
    more = draw_from(b"", b"", b"", b"", b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    sent = head + body + more
    follows = bool(more) or (status[:3] in (b"204", b"304") and bool(body))
    is_cut = draw_from(False, False, True)
    return Script(sent[: draw(st.integers(0, len(sent)))] if is_cut else sent, len(head), bool(encoding), follows)


@st.composite
def chunks(draw: st.DrawFn, body: bytes) -> bytes:
    out = []
    while body:
        size = draw(st.integers(1, len(body)))
        piece, body = body[:size], body[size:]
        extension = draw(st.sampled_from([b"", b"", b";a", b';a="b;c"', b" ", b";" + b"a" * 500]))
        line = draw(st.sampled_from([b"%x", b"%x", b"%X", b"00%x"])) % size
        broken = draw(st.sampled_from([b"\r\n"] * 12 + [b"!\r\n", b"\n", b""]))
        out.append(line + extension + b"\r\n" + piece + broken)
    trailers = draw(st.sampled_from([b"", b"", b"A: b\r\nC: d\r\n", b"A\r\n", b"A: " + b"b" * 9000 + b"\r\n"]))
    return b"".join([*out, b"0\r\n", trailers, b"\r\n"])


async def seen(client: UpstreamClient | PeerClient, server: RawServer, reads: list[bytes]) -> Seen:
    """Request something, send the reads, close, and read to the end."""
    reading = asyncio.create_task(read(client, server.url))
    peer = await server.accept()
    await peer.request()
    for one in reads:
        peer.send(one)
        await loop_turns(3)
    peer.close()
    await peer.left()
    await loop_turns(50)
    if not reading.done():
        reading.cancel()
    return await reading


async def read(client: UpstreamClient | PeerClient, url: str) -> Seen:
    try:
        response: UpstreamResponse | PeerResponse = await client.open(url, {}, b"{}")
    except ModelError as error:
        return Seen(None, b"", error.info.code)
    pieces = []
    try:
        reader = BodyReader(response) if isinstance(response, UpstreamResponse) else response
        while piece := await reader.read():
            pieces.append(piece)
    except ModelError as error:
        return Seen(response.status, b"".join(pieces), error.info.code)
    except asyncio.CancelledError:
        return Seen(response.status, b"".join(pieces), UNTOLD)
    finally:
        response.close()
    return Seen(response.status, b"".join(pieces), None)


def may_differ(script: Script, ours: Seen, theirs: Seen) -> bool:
    """The differences that are meant: what aiohttp loses, and we do not."""
    if theirs.code == UNTOLD and ours.code == "stream_truncated":
        # aiohttp closes a connection whose framing or compression breaks, and does not tell who reads.
        return ours.status == theirs.status and ours.body.startswith(theirs.body)
    if theirs.code == "not_http" and ours.status is not None:
        # Framing that breaks, or bytes that follow, in the read that also brings the head: aiohttp drops the head.
        return ours.code == "stream_truncated" or script.has_more
    if ours.code == "stream_truncated" and theirs.code == "stream_truncated":
        # What came in the read that broke: aiohttp drops some of it, or all.
        return ours.status == theirs.status and ours.body.startswith(theirs.body)
    if ours.code == "stream_truncated" and theirs.code is None:
        # gzip without its end is whole to aiohttp.
        return script.is_encoded and ours.status == theirs.status
    return False


@many
@given(scripts(), st.lists(st.integers(0, 2000), max_size=4))
def test_both_clients_report_the_same(script: Script, places: list[int]) -> None:
    sent = script.sent
    cuts = sorted({min(place, len(sent)) for place in places} | {0, len(sent)})
    reads = [sent[a:b] for a, b in pairwise(cuts)]

    async def both() -> tuple[Seen, Seen]:
        async with RawServer() as server:
            own, peer = UpstreamClient(LIMITS), PeerClient(LIMITS)
            try:
                return await seen(own, server, reads), await seen(peer, server, reads)
            finally:
                await own.aclose()
                await peer.aclose()

    ours, theirs = asyncio.run(both())
    assert ours == theirs or may_differ(script, ours, theirs), (ours, theirs)
