"""`pellucid space` on the store of a running gateway, and its error messages."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pellucid.cli.main import main
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import get, joined, served, token
from tests.waiting import LIMIT_SECONDS


def run(*args: str, status: int = 0) -> Any:
    result = CliRunner().invoke(main, ["space", *args])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout) if "--json" in args and not status else result


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'kept.sqlite'}"


def test_a_running_gateway_sees_created_spaces_at_once(tmp_path: Path, store: str) -> None:
    with served(tmp_path, {}, storage={"url": store}) as gateway:
        made = run(
            *("create", "made", "--participant", "alice=chat,reasoning/*", "--participant", "bob", "--json"),
            *("--store", store, "--reasoning", "flag"),
        )
        assert made["tokens"].keys() == {"alice", "bob"}
        assert [(one["id"], one["token"]) for one in made["participants"]] == list(made["tokens"].items())
        with joined(gateway, "made", "alice", with_token=made["tokens"]["alice"]) as alice:
            alice.chat("Hi")
            assert alice.refused(kind="mcp/request", payload={})["code"] == "capability_violation"
            more = run(
                "add", "made", "--participant", 'carol=[{"kind": "chat", "to": "alice"}]', "--store", store, "--json"
            )
            with joined(gateway, "made", "carol", with_token=more["tokens"]["carol"]) as carol:
                carol.chat("psst", to=["alice"])
                assert carol.refused(kind="chat", payload={"text": "all"})["code"] == "capability_violation"
        [shown] = run("list", "--store", store, "--json")
        assert (shown["name"], [one["id"] for one in shown["participants"]]) == ("made", ["alice", "bob", "carol"])
        assert shown["settings"]["reasoning"] == "flag"
        assert "pst_" not in json.dumps(shown)

        run("delete", "made", "--participant", "carol", "--store", store)
        assert get(gateway, "/spaces/made", more["tokens"]["carol"]).status == 401
        assert get(gateway, "/spaces/made", made["tokens"]["bob"]).status == 200
        run("delete", "made", "--yes", "--store", store)
        assert get(gateway, "/spaces/made", made["tokens"]["bob"]).status == 401
    assert run("list", "--store", store, "--json") == []


def test_create_prints_the_next_steps(store: str, tmp_path: Path) -> None:
    made = run("create", "next", "--participant", "alice", "--store", store)
    assert "http://127.0.0.1:8080/spaces/next," in made.stderr
    assert "PELLUCID_SPACE_TOKEN=THE_TOKEN pellucid space join --url http://127.0.0.1:8080/spaces/next" in made.stderr
    [line] = made.stdout.splitlines()
    assert line.startswith("alice\tpst_")
    elsewhere = tmp_path / "gateway.toml"
    elsewhere.write_text('[server]\nport = 9001\nhost = "0.0.0.0"')
    more = run("add", "next", "--participant", "bob", "--store", store, "--config", str(elsewhere))
    assert "http://127.0.0.1:9001/spaces/next" in more.stderr
    result = CliRunner().invoke(main, ["space", "create", "quiet", "--json", "--store", store])
    assert not result.stderr


def test_read_commands_create_no_store(store: str, tmp_path: Path) -> None:
    for args in (["list"], ["add", "x", "--participant", "a"], ["delete", "x", "--yes"]):
        result = run(*args, "--store", store, status=2)
        assert "there is no store at" in result.output
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["join", "tail"])
def test_the_number_of_history_envelopes_is_checked(command: str) -> None:
    for number in ("-1", "10001"):
        result = run(command, "--url", "http://127.0.0.1:9/spaces/x", "--token", "t", "-n", number, status=2)
        assert "'-n'" in result.output
        assert "limit" not in result.output


@pytest.mark.parametrize("way", ["option", "variable"])
def test_white_space_around_a_token_and_a_url_is_ignored(gateway: Served, room: str, way: str) -> None:
    written = {"token": f" {token(room, 'agent')}\r\n", "url": f"{gateway.url}/spaces/{room}\n"}
    options = [f"--{name}={value}" for name, value in written.items()] if way == "option" else []
    env = {f"PELLUCID_SPACE_{name.upper()}": value for name, value in written.items()} if way == "variable" else {}
    for args in (["say", "Hi"], ["tail", "--no-follow"]):
        result = CliRunner().invoke(main, ["space", *args, *options], env=env)
        assert (result.exit_code, result.stderr) == (0, ""), result.output


@pytest.mark.parametrize("written", ["pst_a\nb", "pst_a b", "pst_é", " \n"])
def test_what_is_no_token_is_named(written: str) -> None:
    for command in (["say", "Hi"], ["tail"]):
        result = run(*command, "--url", "http://127.0.0.1:9/spaces/x", "--token", written, status=2)
        assert "The token is" in result.stderr


@pytest.mark.parametrize("command", ["tail", "join", "mcp"])
def test_ctrl_c_ends_a_command_without_a_message(gateway: Served, room: str, command: str) -> None:
    with joined(gateway, room, "watcher") as watcher:
        process = subprocess.Popen(
            [*PELLUCID, "space", command, "--url", f"{gateway.url}/spaces/{room}", "--token", token(room, "agent")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Restore ctrl-C: tests that run in the background may inherit that it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        with process:
            watcher.until("system/presence")
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_SECONDS) == 130
            assert process.stderr is not None
            assert process.stderr.read() == b""


def test_an_empty_text_is_not_sent() -> None:
    for text in ("", " \n"):
        for args, written in (([text], None), (["-"], text)):
            options = ["--url", "http://127.0.0.1:9/spaces/x", "--token", "t"]
            result = CliRunner().invoke(main, ["space", "say", *args, *options], input=written)
            assert (result.exit_code, "TEXT is empty" in result.output) == (2, True)


def test_errors_have_a_message_and_an_exit_status(store: str, tmp_path: Path) -> None:
    wrong = tmp_path / "settings.toml"
    wrong.write_text('reasoning = "sloppy"')
    run("create", "twice", "--store", store)
    half = tmp_path / "half.toml"
    half.write_text("[limits]\nchat = { per_second = 5 }")
    for args, message in (
        (["create", "twice"], "already"),
        (["create", "x", "--participant", "two words"], "'two-words' would be valid"),
        (["add", "twice", "--participant", "two words"], "'two-words' would be valid"),
        (["create", "x", "--settings", str(half)], "--settings.limits.chat.burst: it is required: how many"),
        (["create", "a/b"], "name"),
        (["create", "x", "--participant", "system:me"], "system:"),
        (["create", "x", "--participant", "a", "--participant", "a"], "twice"),
        (["create", "x", "--participant", 'a={"knd": 1}'], "kind"),
        (["create", "x", "--participant", "a=[oops"], "JSON"),
        (["create", "x", "--settings", str(wrong)], "reasoning"),
        (["create", "x", "--settings", "/no/file"], "--settings: /no/file: No such file or directory\n"),
        (["create", "x", "--owner", "a b"], "owner"),
        (["add", "twice"], "participant is missing"),
        (["add", "never", "--participant", "a"], "no space"),
        (["delete", "never", "--yes"], "no space"),
        (["delete", "twice"], "--yes"),
        (["delete", "twice", "--participant", "nobody"], "nobody"),
    ):
        result = CliRunner().invoke(main, ["space", *args, "--store", store])
        assert result.exit_code in (1, 2), args
        assert message in result.output, result.output


def test_tokens_are_written_to_stdout_only(store: str) -> None:
    result = run("create", "plain", "--participant", "alice", "--store", store)
    [line] = result.stdout.splitlines()
    assert line.startswith("alice\tpst_")
    assert "pst_" not in result.stderr
