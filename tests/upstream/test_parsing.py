"""The state machine of a response, without a socket: whatever the bytes are, and however they are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.upstream.errors import DisconnectError
from pellucid.upstream.parsing import MAX_FIELD_BYTES, MAX_FIELDS, ResponseParser
from tests.cases import Cases
from tests.examples import many

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


class Outcome:
    """What a parser makes of a connection's bytes, in these reads, and of its end."""

    def __init__(self, *reads: bytes, ends: bool = True, reset: bool = False) -> None:
        parser = ResponseParser()
        self.body = b"".join(parser.feed(read) for read in reads)
        self.is_reusable = parser.is_reusable and parser.is_complete
        self.has_begun: bool | None = None
        if ends:
            try:
                parser.end(ConnectionResetError() if reset else None)
            except DisconnectError as error:
                self.has_begun = error.has_begun
        self.status = parser.head and parser.head.status
        self.headers = dict(parser.head.headers) if parser.head else {}
        self.is_complete = parser.is_complete
        self.is_broken = parser.is_over and not parser.is_complete
        self.why = str(parser.error) if parser.error else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and self.shown == other.shown

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.shown)

    @property
    def shown(self) -> dict[str, object]:
        # The words of a refusal quote the read.
        return {**vars(self), "why": self.why is not None}


WHOLE = {
    "a length": (HEAD + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "chunks": (CHUNKED + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", b"hello!"),
    "chunks with extensions and trailers": (
        CHUNKED + b'5;a="b;c";d\r\nhello\r\n0;x\r\nDigest: y\r\nZ: z\r\n\r\n',
        b"hello",
    ),
    "chunks, upper case, a space": (CHUNKED + b"A \r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    "nothing": (HEAD + b"Content-Length: 0\r\n\r\n", b""),
    "no chunk": (CHUNKED + b"0\r\n\r\n", b""),
    "interim responses": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        + HEAD
        + b"Content-Length: 1\r\n\r\na",
        b"a",
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "no content with a length": (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
    "not modified in chunks": (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 1\n\na", b"a"),
    "a folded field": (HEAD + b"X: a\r\n b\r\nContent-Length: 1\r\n\r\na", b"a"),
    "an empty line first": (b"\r\n" + HEAD + b"Content-Length: 1\r\n\r\na", b"a"),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na", b"a"),
}
UNTIL_CLOSE = {
    "no length": (HEAD + b"\r\nhello", b"hello"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello"),
    "another transfer coding": (HEAD + b"Transfer-Encoding: gzip\r\n\r\nhello", b"hello"),
    "chunked, but not last": (HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\nhello", b"hello"),
    "close": (HEAD + b"Connection: close\r\n\r\nhello", b"hello"),
}
NOT_HTTP = {
    "another protocol": b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
    "HTML": b"<html>\n",
    "HTTP/2": b"HTTP/2 200 OK\r\n\r\n",
    "no status": b"HTTP/1.1 abc OK\r\n\r\n",
    "both lengths": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a length that is none": HEAD + b"Content-Length: 5x\r\n\r\nhello",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\nhello",
    "a length beyond 64 bits": HEAD + b"Content-Length: 99999999999999999999\r\n\r\nhello",
    "NUL": HEAD + b"X: a\0b\r\n\r\n",
    "a space in a name": HEAD + b"X y: a\r\n\r\n",
    "a long field": HEAD + b"X: " + b"a" * MAX_FIELD_BYTES + b"\r\n\r\n",
    "a long name": HEAD + b"X" * (MAX_FIELD_BYTES + 1) + b": a\r\n\r\n",
    "a field without end": HEAD + b"X: " + b"a" * MAX_FIELD_BYTES,
    "white space without end": HEAD + b"X:" + b" " * 10 * MAX_FIELD_BYTES,
    "a long reason": b"HTTP/1.1 200 " + b"O" * (MAX_FIELD_BYTES + 1) + b"\r\n\r\n",
    "many fields": HEAD + b"X: a\r\n" * (MAX_FIELDS + 1) + b"\r\n",
}
BROKEN_BODIES = {
    "no size": (CHUNKED + b"5\r\nhello\r\nzz\r\n", b"hello"),
    "a size beyond 64 bits": (CHUNKED + b"5\r\nhello\r\nfffffffffffffffff\r\n", b"hello"),
    "too much in a chunk": (CHUNKED + b"5\r\nhello!\r\n", b"hello"),
    "a trailer that is none": (CHUNKED + b"5\r\nhello\r\n0\r\n\0: a\r\n\r\n", b"hello"),
    "an endless extension": (CHUNKED + b"5\r\nhello\r\n5;" + b"a" * 2 * MAX_FIELD_BYTES, b"hello"),
    "an endless trailer": (CHUNKED + b"5\r\nhello\r\n0\r\nX: " + b"a" * 2 * MAX_FIELD_BYTES, b"hello"),
    "many trailers": (CHUNKED + b"5\r\nhello\r\n0\r\n" + b"X: a\r\n" * (MAX_FIELDS + 2), b"hello"),
}


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[n : n + size] for n in range(0, len(data), size)]


def test_a_whole_response() -> None:
    with Cases() as case:
        for name, (data, body) in WHOLE.items():
            for size in (len(data), 1, 3):
                with case(f"{name}, {size} bytes a read"):
                    outcome = Outcome(*cut(data, size), ends=False)
                    assert (outcome.is_complete, outcome.body, outcome.is_reusable) == (True, body, True)


def test_a_response_that_ends_with_its_connection() -> None:
    with Cases() as case:
        for name, (data, body) in UNTIL_CLOSE.items():
            for size in (len(data), 1, 3):
                with case(f"{name}, {size} bytes a read"):
                    assert not Outcome(*cut(data, size), ends=False).is_complete
                    outcome = Outcome(*cut(data, size))
                    assert (outcome.is_complete, outcome.body, outcome.is_reusable) == (True, body, False)
                    # A connection that is reset does not end its body.
                    assert Outcome(*cut(data, size), reset=True).is_broken


def test_what_is_not_http() -> None:
    with Cases() as case:
        for name, data in NOT_HTTP.items():
            for size in (len(data), 1, 3):
                with case(f"{name}, {size} bytes a read"):
                    outcome = Outcome(*cut(data, size), ends=False)
                    assert (outcome.status, outcome.is_broken, outcome.body) == (None, True, b"")
                    assert outcome.why


def test_a_body_that_is_broken_gives_what_came_before() -> None:
    with Cases() as case:
        for name, (data, body) in BROKEN_BODIES.items():
            # What has no end is noticed at the end of a read.
            for size in (len(data) // 2, 1, 3):
                with case(f"{name}, {size} bytes a read"):
                    outcome = Outcome(*cut(data, size), ends=False)
                    assert (outcome.status, outcome.is_broken) == (200, True)
                    assert outcome.body == body
                    assert not outcome.is_reusable


def test_a_response_that_stops_anywhere_is_truncated() -> None:
    with Cases() as case:
        for name, (data, body) in WHOLE.items():
            if b"\r\n" not in data:
                continue
            for n in range(len(data)):
                with case(f"{name}, {n} bytes"):
                    outcome = Outcome(data[:n])
                    assert outcome.is_broken
                    assert body.startswith(outcome.body)
                    assert (outcome.has_begun is None) == (outcome.status is not None)


@pytest.mark.parametrize(
    ("data", "has_begun"),
    [
        (b"", False),
        (b"\r\n", False),
        (b"H", True),
        (HEAD, True),
        (b"HTTP/1.1 100 Continue\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n", False),  # no part of the response itself
    ],
)
def test_whether_a_response_had_begun(data: bytes, has_begun: bool) -> None:
    assert Outcome(data).has_begun is has_begun


@pytest.mark.parametrize("behind", [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x", b"\0", b"0\r\n\r\n"])
def test_what_comes_behind_a_response_is_no_part_of_it(behind: bytes) -> None:
    with Cases() as case:
        for name, (data, body) in WHOLE.items():
            for reads in ([data + behind], [data, behind], cut(data + behind, 1)):
                with case(f"{name}, {len(reads)} reads"):
                    outcome = Outcome(*reads, ends=False)
                    assert (outcome.is_complete, outcome.body, outcome.is_reusable) == (True, body, False)


@pytest.mark.parametrize(
    ("head", "is_reusable"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Keep-Alive\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: foo, Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", True),
        (b"HTTP/1.1 101 Switching Protocols\r\n", False),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n", False),
    ],
)
def test_whether_the_server_keeps_the_connection(head: bytes, is_reusable: bool) -> None:
    outcome = Outcome(head + b"Content-Length: 0\r\n\r\n", ends=False)
    assert (outcome.is_complete, outcome.is_reusable) == (True, is_reusable)


def test_headers_are_found_in_any_case() -> None:
    parser = ResponseParser()
    parser.feed(HEAD + b"X-Id: first\r\nx-id: second\r\nName:  J\xc3\xb6rg \t\r\nRaw: \xff\r\nEmpty:\r\n\r\n")
    assert parser.head is not None
    headers = parser.head.headers
    assert headers["X-ID"] == headers["x-id"] == "first"
    assert headers.get("NAME") == "Jörg"
    assert headers["raw"].encode("utf-8", "surrogateescape") == b"\xff"
    assert headers["empty"] == ""
    assert "other" not in headers
    assert list(headers) == ["x-id", "name", "raw", "empty"]


PIECES = [*(data for data, _ in WHOLE.values()), *NOT_HTTP.values(), *(data for data, _ in BROKEN_BODIES.values())]


@many
@given(st.data())
def test_cuts_change_nothing(data: st.DataObject) -> None:
    """However a response arrives, it is the same one."""
    sent = data.draw(st.sampled_from([one for one in PIECES if len(one) < MAX_FIELD_BYTES]))
    sent = sent[: data.draw(st.integers(0, len(sent)))] if data.draw(st.booleans()) else sent
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    reads = [sent[a:b] for a, b in pairwise([0, *cuts, len(sent)]) if a < b]
    assert Outcome(*reads) == Outcome(*([sent] if sent else []))


@many
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_end_somehow(reads: list[bytes]) -> None:
    for prefix in (b"", HEAD, CHUNKED, CHUNKED + b"5\r\n"):
        outcome = Outcome(prefix, *reads)
        assert outcome.is_complete or outcome.is_broken
