"""`pellucid space join|tail|say|replay|export` in a space of a real gateway."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pellucid.cli import main
from pellucid.cli.transcript import Transcript
from pellucid.envelopes import Envelope
from tests.participants.gateway_kit import review_gateway, token
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS, eventually

Space = Callable[..., Result]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Gateway with a space that has envelopes."""
    folder = tmp_path_factory.mktemp("gateway")
    with review_gateway(folder) as running:
        for envelope in (
            {"id": "q-1", "kind": "chat", "payload": {"text": "Should we deploy?"}},
            {"id": "r-1", "kind": "reasoning/start", "payload": {"message": "Checking"}, "correlation_id": ["q-1"]},
            {"context": "r-1", "kind": "reasoning/thought", "payload": {"message": "Auth\nneeds care \x1b[31m"}},
            {
                "context": "r-1",
                "kind": "mcp/request",
                "payload": {"method": "tools/call", "params": {"name": "scan", "arguments": {"path": "auth/"}}},
            },
            {"context": "r-1", "kind": "reasoning/conclusion", "payload": {"message": "Too risky", "confidence": 0.9}},
            {"kind": "chat", "payload": {"text": "No."}, "correlation_id": ["q-1"]},
        ):
            who = "ada" if envelope.get("id") == "q-1" else "bob"
            reply = running.request(
                "POST",
                "/spaces/review/envelopes",
                json.dumps(envelope).encode(),
                {"Authorization": f"Bearer {token(who)}", "Content-Type": "application/json"},
            )
            assert reply.status == 200, reply.body
        yield running


def environment(gateway: Served, who: str = "cy") -> dict[str, str]:
    url = f"ws://127.0.0.1:{gateway.port}/spaces/review/ws"
    return {**os.environ, "PELLUCID_SPACE_URL": url, "PELLUCID_SPACE_TOKEN": token(who), "COLUMNS": "100"}


@pytest.fixture
def space(gateway: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Space:
    monkeypatch.chdir(tmp_path)

    def run(*args: str, who: str = "cy", input: str = "", env: dict[str, str] | None = None) -> Result:
        result = CliRunner().invoke(main, ["space", *args], input=input, env=environment(gateway, who) | (env or {}))
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert token(who) not in result.stderr + result.stdout
        return result

    return run


TRANSCRIPT = """\
ada            Should we deploy?
bob          ╭ Checking
bob          │ Auth
             │ needs care [31m
bob          │ → scan {"path":"auth/"}
bob          ╰ Too risky  (0.9)
bob            No.
"""


def test_tail_shows_lanes_and_collapses_them(space: Space) -> None:
    result = space("tail", "--no-follow", "--before-seq", "8")
    assert (result.exit_code, result.stdout) == (0, TRANSCRIPT)
    folded = space("tail", "--no-follow", "--view", "collapsed", "--before-seq", "8").stdout
    assert [
        line for line in TRANSCRIPT.splitlines() if "Auth" not in line and "needs" not in line
    ] == folded.splitlines()
    lines = space("tail", "--no-follow", "-n", "2", "--before-seq", "8", "--json").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["reasoning/conclusion", "chat"]


def test_presence_changes_of_one_participant_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def make_envelope(kind: str, payload: dict[str, Any], who: str = "bob") -> Envelope:
        return Envelope(id="x", ts=0, sender=who, kind=kind, payload=payload, context="r")

    def presence_of(who: str, *events: str) -> list[Envelope]:
        payloads = [{"event": event, "participant": {"id": who}} for event in events]
        return [make_envelope("system/presence", payload, "system:gateway") for payload in payloads]

    async def show() -> None:
        for envelope in [
            *presence_of("alice", *["leave", "join"] * 2),
            *presence_of("bob", "join"),
            *presence_of("alice", "leave", "join"),
            make_envelope("reasoning/question", {"questions": ["Why?"]}),
            *presence_of("alice", "leave", "leave", "join", "leave"),
            make_envelope("reasoning/hypothesis", {"hypothesis": "Because."}),
            *presence_of("cy", "invited", "join"),
            *presence_of("dan", *["join", "leave"] * 2, "join"),
        ]:
            lanes.show(envelope)

    with Transcript() as lanes:
        asyncio.run(show())
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "alice left and came back, 3 times",
        "bob joined",
        "bob          │ ? Why?",
        "alice left, came back and left",
        "bob          │ ~ Because.",
        "cy may come, joined",
        "dan joined, left and came back, 2 times",
    ]


def test_discovery_is_left_out_unless_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    def of(kind: str, id: str, about: tuple[str, ...] = (), **payload: Any) -> Envelope:
        return Envelope(id=id, ts=0, sender="ada", kind=kind, correlation_id=about, payload=payload)

    call = {"name": "look", "arguments": {}}
    envelopes = [
        of("mcp/response", "0", ("before",), result={"tools": []}),
        of("mcp/request", "1", method="tools/list"),
        of("mcp/response", "2", ("1",), result={"tools": [{"name": "look"}]}),
        of("mcp/request", "3", method="resources/list"),
        of("mcp/response", "4", ("3",), error={"code": -32601, "message": "no resources"}),
        of("mcp/request", "5", method="notifications/tools/list_changed"),
        of("mcp/request", "8", ("3",), method="notifications/cancelled"),
        of("mcp/request", "6", method="tools/call", params=call),
        of("mcp/response", "7", ("6",), result={"content": [{"type": "text", "text": "nothing"}]}),
    ]
    for with_discovery, expected in ((False, ["→ look", "← nothing"]), (True, len(envelopes))):
        with Transcript(with_discovery=with_discovery) as transcript:
            for envelope in envelopes:
                transcript.show(envelope)
        lines = [" ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()]
        assert expected in (lines, len(lines))
    with Transcript(as_json=True) as transcript:
        for envelope in envelopes:
            transcript.show(envelope)
    assert len(capsys.readouterr().out.splitlines()) == len(envelopes)


def test_presence_is_shown_after_a_delay_without_further_envelopes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.cli.transcript.GATHER_SECONDS", 0.01)
    payload = {"event": "join", "participant": {"id": "bob"}}

    async def show() -> str:
        lanes.show(Envelope(id="x", ts=0, sender="system:gateway", kind="system/presence", payload=payload))
        shown: list[str] = []

        def is_shown() -> bool:
            shown.append(capsys.readouterr().out)
            return any(shown)

        await eventually(is_shown)
        return "".join(shown)

    with Transcript() as lanes:
        assert asyncio.run(show()).strip() == "bob joined"


def test_replay_and_export(space: Space, tmp_path: Path) -> None:
    assert space("replay", "--before-seq", "8").stdout == TRANSCRIPT
    lines = [json.loads(line) for line in space("replay", "--before-seq", "8", "--json").stdout.splitlines()]
    assert all(line["replayed"] for line in lines)
    result = space("export", "--before-seq", "8", "-o", "all.jsonl")
    assert (result.exit_code, result.stdout) == (0, "")
    *envelopes, last = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [one["seq"] for one in envelopes] == [one["seq"] for one in lines]
    assert "kind" not in last
    [chat] = [
        json.loads(line) for line in space("export", "--format", "chat-jsonl", "--before-seq", "8").stdout.splitlines()
    ]
    assert chat["messages"][0]["role"] == "user"


def test_say_stores_an_envelope(space: Space) -> None:
    id, seq = space("say", "Hello", "--to", "bob").stdout.split()
    stored = json.loads(space("say", "-", "--json", "--answers", id, input="Hello again").stdout)
    assert stored["seq"] > int(seq)
    refused = space("say", "--kind", "space/kick", "--payload", '{"participant_id": "ada"}')
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("Error: ")
    assert space("say").exit_code == 2


def test_errors_are_one_sentence(space: Space) -> None:
    for command in (["tail"], ["say", "x"], ["export"], ["join"]):
        wrong = space(*command, env={"PELLUCID_SPACE_TOKEN": "pst_wrong"})
        assert (wrong.exit_code, wrong.stdout) == (1, ""), (command, wrong.stderr)
        assert len(wrong.stderr.splitlines()) == 1
        assert "pst_wrong" not in wrong.stderr
    assert space("tail", env={"PELLUCID_SPACE_URL": "http://127.0.0.1:1/spaces/x"}).exit_code == 1
    assert "names no space" in space("tail", env={"PELLUCID_SPACE_URL": "http://127.0.0.1:1"}).stderr
    for missing in ("PELLUCID_SPACE_URL", "PELLUCID_SPACE_TOKEN"):
        result = space("tail", env={missing: ""})
        assert (result.exit_code, missing in result.stderr) == (2, True)
    result_without_directory = space("export", "-o", "nowhere/all.jsonl")
    assert (result_without_directory.exit_code, result_without_directory.stderr) == (
        2,
        "Error: nowhere/all.jsonl: No such file or directory\n",
    )
    assert space("export", "--reasoning", "think").exit_code == 2


def test_join_reads_commands_and_chats_from_lines(space: Space) -> None:
    lines = [
        "Hello, all.",
        "//slashed",
        "/who",
        "/to bob psst",
        "/nonsense",
        "/view sideways",
        "/cancel",
        "/quit",
        "not said",
    ]
    result = space("join", "-n", "0", input="\n".join(lines) + "\n")
    assert result.exit_code == 0, result.stderr
    shown = result.stdout.splitlines()
    assert "cy             Hello, all." in shown
    assert "cy             /slashed" in shown
    assert "cy             psst  (to bob)" in shown
    assert "cy (you)" in shown
    assert sum(line.startswith("! ") for line in shown) == 3
    assert "not said" not in result.stdout


def test_join_at_a_terminal_can_cancel_reasoning(gateway: Served, space: Space, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PELLUCID, "space", "join", "-n", "0"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env=environment(gateway, "boss") | {"TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)

    def until(text: bytes) -> bytes:
        seen = b""
        while text not in seen:
            seen += os.read(ours, 4096)
        return seen

    until(b"You are boss")
    [id, _] = space("say", "--kind", "reasoning/start", "Thinking hard", who="ada").stdout.split()
    until(b"Thinking hard")
    os.write(ours, b"/cancel ada enough of it\n")
    until(b"cancelled: enough of it")
    os.write(ours, b"/quit\n")
    assert process.wait(LIMIT_SECONDS) == 0
    os.close(ours)
    last = json.loads(space("tail", "--no-follow", "-n", "50", "--json").stdout.splitlines()[-1])
    assert last["kind"] in ("reasoning/cancel", "system/presence")
    assert id
