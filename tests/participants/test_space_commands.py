"""`pellucid space join|tail|say|replay|export` in a real gateway's space."""

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
from tests.participants.gateway_kit import a_gateway, token
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS, eventually

Space = Callable[..., Result]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A space in which something was said."""
    folder = tmp_path_factory.mktemp("gateway")
    with a_gateway(folder) as running:
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
        done = CliRunner().invoke(main, ["space", *args], input=input, env=environment(gateway, who) | (env or {}))
        assert done.exception is None or isinstance(done.exception, SystemExit)
        assert token(who) not in done.stderr + done.stdout
        return done

    return run


SAID = """\
ada            Should we deploy?
bob          ╭ Checking
bob          │ Auth
             │ needs care [31m
bob          │ → scan {"path":"auth/"}
bob          ╰ Too risky  (0.9)
bob            No.
"""


def test_tail_shows_lanes_and_folds_them(space: Space) -> None:
    done = space("tail", "--no-follow", "--before-seq", "8")
    assert (done.exit_code, done.stdout) == (0, SAID)
    folded = space("tail", "--no-follow", "--view", "collapsed", "--before-seq", "8").stdout
    assert [line for line in SAID.splitlines() if "Auth" not in line and "needs" not in line] == folded.splitlines()
    lines = space("tail", "--no-follow", "-n", "2", "--before-seq", "8", "--json").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["reasoning/conclusion", "chat"]


def test_comings_and_goings_of_one_participant_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def told(kind: str, payload: dict[str, Any], who: str = "bob") -> Envelope:
        return Envelope(id="x", ts=0, sender=who, kind=kind, payload=payload, context="r")

    def came(who: str, *events: str) -> list[Envelope]:
        several = [{"event": event, "participant": {"id": who}} for event in events]
        return [told("system/presence", payload, "system:gateway") for payload in several]

    async def show() -> None:
        for envelope in [
            *came("alice", *["leave", "join"] * 2),
            *came("bob", "join"),
            *came("alice", "leave", "join"),
            told("reasoning/question", {"questions": ["Why?"]}),
            *came("alice", "leave", "leave", "join", "leave"),
            told("reasoning/hypothesis", {"hypothesis": "Because."}),
            *came("cy", "invited", "join"),
            *came("dan", *["join", "leave"] * 2, "join"),
        ]:
            lanes.show(envelope)

    with Transcript() as lanes:
        asyncio.run(show())
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "alice left and came back, 3 times",
        "bob came",
        "bob          │ ? Why?",
        "alice left, came back and left",
        "bob          │ ~ Because.",
        "cy may come, came",
        "dan came, left and came back, 2 times",
    ]


def test_what_nobody_follows_with_words_is_told_all_the_same(
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
        assert asyncio.run(show()).strip() == "bob came"


def test_replay_and_export(space: Space, tmp_path: Path) -> None:
    assert space("replay", "--before-seq", "8").stdout == SAID
    lines = [json.loads(line) for line in space("replay", "--before-seq", "8", "--json").stdout.splitlines()]
    assert all(line["replayed"] for line in lines)
    done = space("export", "--before-seq", "8", "-o", "all.jsonl")
    assert (done.exit_code, done.stdout) == (0, "")
    *envelopes, last = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [one["seq"] for one in envelopes] == [one["seq"] for one in lines]
    assert "kind" not in last
    [chat] = [
        json.loads(line) for line in space("export", "--format", "chat-jsonl", "--before-seq", "8").stdout.splitlines()
    ]
    assert chat["messages"][0]["role"] == "user"


def test_say_is_stored(space: Space) -> None:
    id, seq = space("say", "Hello", "--to", "bob").stdout.split()
    told = json.loads(space("say", "-", "--json", "--answers", id, input="Hello again").stdout)
    assert told["seq"] > int(seq)
    refused = space("say", "--kind", "space/kick", "--payload", '{"participant_id": "ada"}')
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("Error: ")
    assert space("say").exit_code == 2


def test_what_is_wrong_is_one_sentence(space: Space) -> None:
    for command in (["tail"], ["say", "x"], ["export"], ["join"]):
        wrong = space(*command, env={"PELLUCID_SPACE_TOKEN": "pst_wrong"})
        assert (wrong.exit_code, wrong.stdout) == (1, ""), (command, wrong.stderr)
        assert len(wrong.stderr.splitlines()) == 1
        assert "pst_wrong" not in wrong.stderr
    assert space("tail", env={"PELLUCID_SPACE_URL": "http://127.0.0.1:1/spaces/x"}).exit_code == 1
    assert "names no space" in space("tail", env={"PELLUCID_SPACE_URL": "http://127.0.0.1:1"}).stderr
    for missing in ("PELLUCID_SPACE_URL", "PELLUCID_SPACE_TOKEN"):
        unsaid = space("tail", env={missing: ""})
        assert (unsaid.exit_code, missing in unsaid.stderr) == (2, True)
    nowhere = space("export", "-o", "nowhere/all.jsonl")
    assert (nowhere.exit_code, nowhere.stderr) == (2, "Error: nowhere/all.jsonl: No such file or directory\n")
    assert space("export", "--reasoning", "think").exit_code == 2


def test_join_takes_lines(space: Space) -> None:
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
    done = space("join", "-n", "0", input="\n".join(lines) + "\n")
    assert done.exit_code == 0, done.stderr
    shown = done.stdout.splitlines()
    assert "cy             Hello, all." in shown
    assert "cy             /slashed" in shown
    assert "cy             psst  (to bob)" in shown
    assert "cy (you)" in shown
    assert sum(line.startswith("! ") for line in shown) == 3
    assert "not said" not in done.stdout


def test_join_at_a_terminal_cancels_what_it_sees(gateway: Served, space: Space, tmp_path: Path) -> None:
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
