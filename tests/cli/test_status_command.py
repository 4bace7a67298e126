"""`pellucid status`: the page, JSON, cancel, and the exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pellucid.cli import status as command
from pellucid.cli.main import main
from pellucid.server.access.policy import Policy
from tests.scripted import Call, Upstream, delta
from tests.scripted.gateway import Served, serve
from tests.server.state_kit import Caller, config_of, make_keys, serving, url_of
from tests.waiting import wait_until


async def thinks(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="the-thought"))
    await call.wait_for_disconnect()


async def fails(call: Call) -> None:
    await call.answer(503, b'{"error": {"message": "the-thought", "code": "overloaded_error"}}')


def pellucid(*arguments: str, **variables: str) -> Result:
    environment = {"COLUMNS": "200", "PELLUCID_URL": "", "PELLUCID_KEY": "", **variables}
    return CliRunner().invoke(main, ["status", *arguments], env=environment)


@pytest.fixture
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(upstream) as running:
        yield running


def test_the_page_shows_models_runs_and_failures(upstream: Upstream) -> None:
    thinking, failing = upstream.plays(thinks), upstream.plays(fails)
    models = {"m": {"provider": "vllm", "model": failing}}
    with serve(config_of(upstream, models=models)) as running:
        running.ask("m")
        with running.open(f"vllm:{thinking}") as stream:
            stream.until("the-thought")
            result = pellucid("--url", running.url)
        assert result.exit_code == 0, result.output
        lines = result.output.splitlines()
        assert lines[0].endswith(": ready")
        assert lines[1].startswith("1 live runs")
        [health] = [line.split() for line in lines if "failures: " in line]
        assert health[:5] == ["m", f"vllm/{failing}", "failing", "failures:", "1,"]
        assert health[-2:] == ["503", "overloaded_error"]
        [run] = [line.split() for line in lines if line.startswith("run_")]
        assert [run[1], *run[4:9]] == [
            *("thinking", str(len("the-thought")), f"vllm:{thinking}", f"vllm/{thinking}"),
            *("local", "openresponses"),
        ]
        assert "the-thought" not in result.output


def test_json_is_what_the_gateway_reports(gateway: Served) -> None:
    result = pellucid("--json", PELLUCID_URL=gateway.url)
    reported, other = json.loads(result.output), gateway.request("GET", "/api/status").json
    assert (result.exit_code, reported["object"]) == (0, "gateway.status")
    assert reported == other


def test_the_exit_status_says_whether_the_gateway_is_ready(upstream: Upstream) -> None:
    rows = [{"provider": "vllm", "model": upstream.plays(fails)} for _ in range(2)]
    sections = {"models": {"m": {"deployments": rows}}, "server": {"default_model": "m"}}
    with serve(config_of(upstream, **sections)) as running:
        running.ask("m")
        assert running.request("GET", "/ready").status == 503
        result = pellucid("--url", running.url)
        assert result.exit_code == command.NOT_READY
        assert "not ready" in result.output.splitlines()[0]
        assert "no deployment of the default model is available" in result.output
        assert result.output.count("cooling") == 2


def test_errors_are_sentences() -> None:
    for arguments, exit_code, sentence in (
        (["--url", "http://127.0.0.1:9"], 1, "the gateway at http://127.0.0.1:9 does not answer: "),
        (["--url", "127.0.0.1:8080"], 2, "--url: '127.0.0.1:8080' is not the address of a gateway"),
        (["--url", "http://127.0.0.1:99999"], 2, "--url: 'http://127.0.0.1:99999' is not the address of a gateway"),
        (["--url", "http://[::1"], 2, "--url: 'http://[::1' is not the address of a gateway"),
        (["--key-env", "NOT_SET"], 2, "--key-env: the environment variable NOT_SET is not set"),
        (["--key-env", "TWO_LINES"], 2, "the environment variable TWO_LINES does not hold a key"),
    ):
        result = pellucid(*arguments, TWO_LINES="a\nb")
        assert (result.exit_code, result.stderr[: len("Error: ") + len(sentence)]) == (exit_code, f"Error: {sentence}")


def test_an_operators_key_is_needed_where_keys_are_required(upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    keys = make_keys(url, {"operations": Policy(operator=True), "ann": None})
    with serving(upstream, url, access={"keys": True}) as running:
        model = upstream.plays(thinks)
        for variables, exit_code, text in (
            ({}, 1, "answers 401: "),
            ({"PELLUCID_KEY": keys["ann"]}, 1, "answers 403: this route is for operators"),
            ({"PELLUCID_KEY": keys["operations"]}, 0, ""),
            ({"PELLUCID_KEY": keys["operations"] + "\n"}, 0, ""),
        ):
            result = pellucid("--url", running.url, **variables)
            assert (result.exit_code, text in result.stderr) == (exit_code, True), result.output
        named = ("--url", running.url, "--key-env", "OPERATIONS")
        with ThreadPoolExecutor() as executor:
            response = executor.submit(Caller(running, keys["ann"]).say, model)

            def runs() -> list[dict[str, Any]]:
                listed: list[dict[str, Any]] = json.loads(
                    pellucid(*named, "--json", OPERATIONS=keys["operations"]).output
                )["runs"]
                return listed

            wait_until(lambda: [run["state"] for run in runs()] == ["thinking"], "it is thinking")
            [run] = runs()
            result = pellucid(*named, "cancel", run["id"], OPERATIONS=keys["operations"])
            assert (result.exit_code, result.output) == (0, f"cancelled {run['id']}\n")
            assert response.result().json["error"]["code"] == "cancelled_by_operator"
        again = pellucid(*named, "cancel", run["id"], OPERATIONS=keys["operations"])
        assert (again.exit_code, "there is no run" in again.stderr) == (2, True)


def test_names_cannot_control_the_terminal() -> None:
    evil = "m\x1b[2Jx [red]y"
    shown = command._text(evil).plain
    assert shown == "m[2Jx [red]y"


@pytest.mark.parametrize("form", ["page", "json"])
def test_it_is_shown_again_until_the_user_stops_it(gateway: Served, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("pellucid.cli.status.time.sleep", pause)
    result = pellucid("--url", gateway.url, "--watch", *(["--json"] if form == "json" else []))
    monkeypatch.undo()
    assert result.exit_code == 0
    assert result.output.count("gateway.status" if form == "json" else ": ready") == 3
    assert pauses == [command.WATCH_SECONDS] * 3
