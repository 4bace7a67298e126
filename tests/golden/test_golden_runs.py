"""The golden comparison of runs: their pace, the ids of the provider, relations of times, response shapes."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple, cast

import pytest

from tests.cases import Cases
from tests.waiting import wait_until
from tools.golden_kit import upstream as upstream_module
from tools.golden_kit.captures import Case
from tools.golden_kit.capturing import in_short
from tools.golden_kit.fixtures import FIXTURES
from tools.golden_kit.gateway import Gateway
from tools.golden_kit.normal import Clock, Normaliser
from tools.golden_kit.pacing import PacedReply, body_of, threads
from tools.golden_kit.protocols import CLIENTS
from tools.golden_kit.runs import cell
from tools.golden_kit.shapes import SHAPED, SHAPES, WIRES
from tools.golden_kit.upstream import Peers, Play, Upstream, own_counts

ID, OTHER = "rs_" + "0a" * 16, "rs_" + "0b" * 16
NOW = 1_763_000_000.0

RELAY = """
import socket, sys
held, upstream = int(sys.argv[1]), ("127.0.0.1", int(sys.argv[2]))
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
client, _ = server.accept()
client.recv(65536)
model = socket.create_connection(upstream)
model.sendall(b"POST /p/v1 HTTP/1.1\\r\\nContent-Length: 0\\r\\n\\r\\n")
model.recv(65536)
client.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
waiting = []
while True:
    data = model.recv(65536)
    over = data == b"0\\r\\n\\r\\n"
    waiting += [] if over else [data]
    if len(waiting) > held or over:
        client.sendall(b"".join(waiting))
        waiting = []
    if over:
        client.sendall(data)
        break
model.recv(1)
"""
"""A gateway that passes on what it reads, and holds so many pieces back until the next."""


class _Process(NamedTuple):
    pid: int
    port: int


@contextmanager
def _relay(held: int, upstream: Upstream) -> Iterator[Gateway]:
    args = [sys.executable, "-S", "-E", "-c", RELAY, str(held), str(upstream.port)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield cast("Gateway", _Process(process.pid, int(process.stdout.readline())))
        process.kill()


def _paced(held: int) -> str:
    upstream = Upstream()
    with closing(upstream), _relay(held, upstream) as gateway, closing(PacedReply(gateway)) as reply:
        upstream.play("p", Play(b"data: 1\n\ndata: 2\n\ndata: 3\n\n", cut="frames", watch=reply.watch))
        reply.ask("POST", "/v1", {}, {})
        return reply.text()


def test_buffering_of_events_moves_the_marks() -> None:
    marks = "--- head\n", "--- frame 1\n", "--- frame 2\n", "--- frame 3\n", "--- end\n", "--- nothing more\n"
    one, two, three = (f"data: {n}\n\n" for n in (1, 2, 3))
    head, first, second, third, end, last = marks
    with Cases() as case:
        for held, expected in (
            (0, head + first + one + second + two + third + three + end + last),
            (1, head + first + second + one + two + third + end + three + last),
            (9, head + first + second + third + end + one + two + three + last),
        ):
            with case(f"{held} held back"):
                assert _paced(held) == expected


def test_sleeping_threads_are_idle() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        wait_until(lambda: [state for state, *_ in threads(process.pid)] == [b"S"])
        assert threads(process.pid) == threads(process.pid)
        process.kill()
    assert b"R" in [state for state, *_ in threads(os.getpid())]


def test_the_peer_of_a_connection_is_known() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with server, closing(Peers()) as peers, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        one.sendall(b"12345")
        wait_until(lambda: peers.of(one) == (5, 5, 0, 0))
        other.recv(2)
        other.sendall(b"123")
        wait_until(lambda: peers.of(one) == (3, 5, 3, 0))
        assert own_counts(one) == (3, 5)
        other.close()
        wait_until(lambda: peers.of(one) is None)


def test_a_body_is_whole_at_its_end() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    counted = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
    with Cases() as case:
        for data, expected in (
            (b"HTTP/1.1 200", (b"", False)),
            (chunked, (b"", False)),
            (chunked + b"3\r\nab", (b"ab", False)),
            (chunked + b"3\r\nabc\r\n", (b"abc", False)),
            (chunked + b"3\r\nabc\r\n0\r\n\r\n", (b"abc", True)),
            (counted + b"ab", (b"ab", False)),
            (counted + b"abc", (b"abc", True)),
        ):
            with case(repr(data)):
                assert body_of(data) == expected


def test_a_response_that_is_not_read_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "READ_SECONDS", 0.02)
    faults: list[str] = []

    def has_fault() -> bool:
        try:
            upstream.check()
        except RuntimeError as error:
            faults.append(str(error))
        return bool(faults)

    upstream = Upstream()
    upstream.play("p", Play(b"data: 1\n\n", cut="frames"))
    with closing(upstream), socket.create_connection(("127.0.0.1", upstream.port)) as client:
        client.sendall(b"POST /p/v1 HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        wait_until(has_fault)
    assert re.fullmatch(r"the gateway left \d+ bytes of a response unread", faults[0])
    upstream.check()


def test_values_of_the_upstream_are_not_masked() -> None:
    normal = Normaliser(NOW)
    normal.know(f'{{"id":"{ID}","created":1763000001}}')
    assert normal(f"{ID} {OTHER} 1763000001 1763000002") == f"{ID} <rs 1> 1763000001 <now s>"


def test_an_id_of_ours_in_the_place_of_the_providers_is_a_difference() -> None:
    records = []
    for sent in (ID, OTHER):
        case = Case()
        case.know(ID)
        case.add("reply", f'{{"id":"{sent}"}}')
        records.append(case.records)
    assert records == [[("reply", f'{{"id":"{ID}"}}')], [("reply", '{"id":"<rs 1>"}')]]


def test_nine_digits_are_an_id_only_in_an_id_field() -> None:
    assert Normaliser(NOW)('{"id":"12ab34cd5","text":"12ab34cd5"}') == '{"id":"<short 1>","text":"12ab34cd5"}'


def test_inconsistent_times_are_recorded() -> None:
    event = 'event: x\ndata: {{"response":{{"id":"resp_1","created_at":{},"completed_at":{}}}}}\n\n'
    with Cases() as case:
        for name, text, expected in (
            ("in order", event.format(5, 6) + event.format(5, 5), []),
            ("unknown", event.format(5, "null"), []),
            ("over before it began", event.format(5, 4), ["completed_at before created_at"]),
            ("begun twice", event.format(5, 6) + event.format(6, 6), ["another created_at of one resp"]),
            ("a part", '{"timeline":[{"started_at":7,"ended_at":6}]}', ["ended_at before started_at"]),
            ("no JSON", '{"created_at":5', []),
        ):
            with case(name):
                assert Clock().faults(text) == expected


def test_a_time_that_changes_between_records_is_a_record() -> None:
    case = Case()
    for made in (1, 1, 2):
        case.add("read", f'{{"id":"resp_1","created_at":{made}}}')
    assert [label for label, _ in case.records] == ["read", "read", "read", "read: times"]


def test_a_cell_is_compared_but_for_what_is_random() -> None:
    case = Case()
    with Cases() as named:
        for column, value, expected in (
            ("record_entries.digest", b"12", "(2 bytes)"),
            ("record_entries.number", 3, "3"),
            ("record_entries.more", b'{"ends":[[1,1]]}', '{"ends":[[1,1]]}'),
            ("texts.number", 91, "<texts.number 1>"),
            ("texts.number", 92, "<texts.number 2>"),
            ("responses.number", 91, "91"),
            ("response_bodies.log", b"[[1,[]],[2,[7]],[3,[8]]]", "[[2,[7,8]]]"),
            ("response_bodies.messages", b"[[1,[]],[2,[7]],[3,[8]]]", "[[1,[]],[2,[7]],[3,[8]]]"),
            ("responses.conversation_id", None, "null"),
        ):
            with named(f"{column} {value!r}"):
                table, name = column.split(".")
                assert cell(case, table, name, value) == expected


def test_every_shape_is_in_every_wire_and_is_played_in_the_short_form() -> None:
    names = [script.name for script in SHAPED]
    assert len(set(names)) == len(names)
    assert {f"shape:{wire.provider}:{shape}" for wire in WIRES for shape in SHAPES} <= set(names)
    assert {script.provider for script in SHAPED} <= {script.provider for script in FIXTURES}
    for name in names:
        short = [client.name for client in CLIENTS if in_short(f"pace/{name}/{client.name}/raw")]
        assert short == ["openresponses/openresponses", "agui/1.0", "chat"]
