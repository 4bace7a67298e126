"""The parts of the golden comparison that define a difference."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import Cases
from tools.golden import Allowed, compare, explained, read_allowed
from tools.golden_kit.captures import BROKEN, Capture, Case, differences
from tools.golden_kit.fixtures import FIXTURES
from tools.golden_kit.normal import Normaliser
from tools.golden_kit.upstream import Cut, Play, Upstream, pieces

ID, OTHER = "rs_" + "0a" * 16, "rs_" + "0b" * 16
SEAL = "eyJ" + "a" * 40 + ".b.c.d.e"
NOW = 1_763_000_000.0


@given(st.binary(max_size=200), st.sampled_from(["whole", "frames", "bytes"]))
def test_pieces_add_up_to_the_body(body: bytes, cut: Cut) -> None:
    assert b"".join(pieces(body, cut, "text/event-stream")) == body


def test_every_fixture_is_cut_in_frames_and_in_bytes() -> None:
    with Cases() as case:
        for script in FIXTURES:
            with case(script.name):
                frames = pieces(script.body, "frames", script.content_type)
                assert b"".join(frames) == script.body
                assert len(frames) > 1 or "json" in script.content_type
                assert all(1 <= len(piece) <= 7 for piece in pieces(script.body, "bytes", script.content_type))


def test_a_small_piece_is_a_read_of_its_own() -> None:
    upstream = Upstream()
    body = FIXTURES[0].body
    upstream.play("p", Play(body, cut="bytes"))
    with socket.create_connection(("127.0.0.1", upstream.port)) as client:
        client.sendall(b"POST /p/v1 HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        seen = b""
        while b"\r\n\r\n" not in seen:
            seen += client.recv(65536)
        got = seen.partition(b"\r\n\r\n")[2]
        sizes = []
        while len(got) < len(body):
            read = client.recv(65536)
            sizes.append(len(read))
            got += read
    upstream.close()
    assert got == body
    assert max(sizes) <= 7
    assert [request.body for request in upstream.requests()] == [b"{}"]


def test_only_ids_times_and_names_of_a_build_are_masked() -> None:
    with Cases() as case:
        for text, expected in (
            (f"{ID} {OTHER} {ID}", "<rs 1> <rs 2> <rs 1>"),
            (f"msg_{ID[3:]} {ID}", "<msg 1> <rs 1>"),
            (SEAL, f"<seal 1>[{len(SEAL)}]"),
            ('{"created_at":1763000001,"ms":1763000001234}', '{"created_at":<now s>,"ms":<now ms>}'),
            ('{"expires_at":1765592000.5}', '{"expires_at":<now+30 days s>}'),
            ("2025-11-13T02:13:20.123Z", "<now>"),
            ("2019-11-13T02:13:20Z 1400000000", "2019-11-13T02:13:20Z 1400000000"),
            ("day = 2025-11-12, 2025-11-13", "day = <today>, <today>"),
            ("day = 2025-11-15, 2025-13-13", "day = 2025-11-15, 2025-13-13"),
            ('src="/assets/index-BMs_U-6s.js"', 'src="/assets/index-<build>.js"'),
            (
                "/assets/scale.worker-CSzO2hhH.js /assets/theme-1.js",
                "/assets/scale.worker-<build>.js /assets/theme-1.js",
            ),
            ("http://127.0.0.1:8123/v1", "http://127.0.0.1:<port>/v1"),
            ('"signature":"U0lHTkFUVVJF","text":"9.11"', '"signature":"U0lHTkFUVVJF","text":"9.11"'),
        ):
            with case(text):
                assert Normaliser(NOW)(text) == expected


def test_another_order_another_id_and_a_longer_seal_are_differences() -> None:
    with Cases() as case:
        for name, one, other in (
            ("order", f"{ID} {OTHER} {ID}", f"{ID} {OTHER} {OTHER}"),
            ("prefix", ID, ID.replace("rs_", "msg_")),
            ("seal", SEAL, SEAL + "x"),
            ("white space", '{"a": 1}', '{"a":1}'),
            ("unit", "1763000000", "1763000000000"),
        ):
            with case(name):
                assert Normaliser(NOW)(one) != Normaliser(NOW)(other)


def _capture(path: Path, **cases: list[tuple[str, str]]) -> Capture:
    capture = Capture(path)
    for name, records in cases.items():
        case = Case()
        for label, text in records:
            case.add(label, text)
        capture.put(name, case)
    return capture


def test_a_missing_new_or_changed_record_is_a_difference(tmp_path: Path) -> None:
    one = _capture(tmp_path / "one", same=[("a", "x")], other=[("a", "x"), ("b", "y")], gone=[("a", "x")])
    two = _capture(tmp_path / "two", same=[("a", "x")], other=[("a", "x"), ("b", "z")], new=[("a", "x")])
    assert {name: list(differences(one, two, name)) for name in ("same", "other", "gone", "new")} == {
        "same": [],
        "other": [("b", "y", "z")],
        "gone": [("a | (none)", "x", "")],
        "new": [("(none) | a", "", "x")],
    }
    one.close()
    two.close()
    assert compare(tmp_path / "one", tmp_path / "two", []) == 3
    assert compare(tmp_path / "one", tmp_path / "one", []) == 0


def test_a_digest_changes_with_any_record_of_its_group(tmp_path: Path) -> None:
    cases = {"a/1": [("body", "x"), ("head", "y")], "a/2": [("body", "x")], "b/1": [("body", "x")]}
    changes: dict[str, dict[str, list[tuple[str, str]]]] = {
        "same": {},
        "text": {"a/1": [("body", "z"), ("head", "y")]},
        "label": {"a/1": [("tail", "x"), ("head", "y")]},
        "order": {"a/1": [("head", "y"), ("body", "x")]},
        "new record": {"a/2": [("body", "x"), ("head", "y")]},
        "new case": {"a/3": [("body", "x")]},
        "no record": {"a/2": []},
    }
    groups = {}
    for number, (change, changed) in enumerate(changes.items()):
        with _capture(tmp_path / str(number), **{**cases, **changed}) as capture:
            groups[change] = capture.groups()
    same = groups.pop("same")
    assert {one["b"] for one in groups.values()} == {same["b"]}
    assert len({same["a"], *(one["a"] for one in groups.values())}) == 1 + len(groups)
    entry = Allowed("matrix/*", "A line.", records="reply: body", before='"old"', after='"new"')
    used: Counter[Allowed] = Counter()
    assert explained([entry], used, "matrix/x", "reply: body", '{"old":1}', '{"new":1}')
    assert not explained([entry], used, "matrix/x", "reply: body", '{"old":1}', '{"new":2}')
    assert not explained([entry], used, "turns/x", "reply: body", '{"old":1}', '{"new":1}')
    assert not explained([entry], used, "matrix/x", "reply: head", '{"old":1}', '{"new":1}')


def test_an_entry_that_explains_nothing_is_an_error(tmp_path: Path) -> None:
    _capture(tmp_path / "one", same=[("a", "x")]).close()
    assert compare(tmp_path / "one", tmp_path / "one", [Allowed("*", "A line.")]) == 1


def test_an_entry_whose_cases_were_not_run_is_ignored(tmp_path: Path) -> None:
    _capture(tmp_path / "one", same=[("a", "x")]).close()
    assert compare(tmp_path / "one", tmp_path / "one", [Allowed("other/*", "A line.")]) == 0


def test_a_failed_case_is_an_error_even_on_both_sides(tmp_path: Path) -> None:
    _capture(tmp_path / "one", same=[(BROKEN, "TimeoutError")]).close()
    assert compare(tmp_path / "one", tmp_path / "one", []) == 1


def test_an_entry_needs_its_line_in_the_changelog(tmp_path: Path) -> None:
    path = tmp_path / "allowed.toml"
    path.write_text('[[allowed]]\ncases = "*"\nchangelog = "A line  that is told."\n')
    assert read_allowed(path, "- A line\n  that is told. More.") == [Allowed("*", "A line  that is told.")]
    with pytest.raises(SystemExit, match="has no line"):
        read_allowed(path, "- Another line.")
