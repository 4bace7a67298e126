"""What each command prints, to which stream, and its exit status."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pellucid import __version__
from pellucid.cli.main import main
from pellucid.data_directory import create_secret
from pellucid.upstream import UpstreamClient
from tests.cases import Cases
from tests.scripted import Call, Upstream, delta, event, say
from tests.scripted.commands import PELLUCID, Run
from tests.waiting import LIMIT_SECONDS

ANSWER = (
    event(delta(reasoning_content="Hm. "))
    + event(delta(reasoning_content="Yes."))
    + event(delta(content="42"))
    + event(delta("stop"))
    + event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
    + event(b"[DONE]")
)

FAILED_ANSWER = (
    event(delta(reasoning_content="Hm. ")) + event({"error": {"message": "out of memory"}}) + event(b"[DONE]")
)


def error_message(result: subprocess.CompletedProcess[bytes], status: int = 2) -> str:
    """Assert that a command failed with this status and an empty stdout, and return stderr."""
    assert (result.returncode, result.stdout) == (status, b"")
    return result.stderr.decode()


# --- decode, translate -------------------------------------------------------------------------------------------


def test_decode_prints_the_parts(run: Run) -> None:
    result = run("decode", "--from", "vllm", input=ANSWER)
    value = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (0, b"")
    assert [(part["part_kind"], part["content"]) for part in value["parts"]] == [
        ("thinking", "Hm. Yes."),
        ("text", "42"),
    ]
    assert value["finish_reason"] == "stop"
    assert value["usage"]["output_tokens"] == 5
    assert "error" not in value


def test_decode_lists_the_fields_that_nothing_reads(run: Run) -> None:
    answer = event(delta(my_thoughts="Hm. ")) + event(delta(my_thoughts="Yes.", note="n")) + ANSWER
    result = run("decode", "--from", "vllm", "--unread", input=answer)
    assert result.stdout.decode().splitlines() == [
        "      2 choices[].delta.my_thoughts",
        "      1 choices[].delta.note",
    ]
    assert run("decode", "--from", "vllm", "--unread", input=ANSWER).stdout == b""


def test_decode_reads_a_file_and_a_whole_body(run: Run, tmp_path: Path) -> None:
    message = {"role": "assistant", "reasoning_content": "Hm.", "content": "42"}
    file = tmp_path / "body.json"
    file.write_text(json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}))
    parts = json.loads(run("decode", "--from", "deepseek", str(file)).stdout)["parts"]
    assert [part["part_kind"] for part in parts] == ["thinking", "text"]


@pytest.mark.parametrize("data", [b"", b"\x00\xff" * 100, b"<html>", ANSWER[:70]])
def test_decode_reports_invalid_input(run: Run, data: bytes) -> None:
    result = run("decode", "--from", "vllm", input=data)
    assert result.returncode == 1
    error = json.loads(result.stdout)["error"]
    assert result.stderr.decode().startswith(f"Error: {error['message']}")


def test_decode_prints_the_parts_before_an_error(run: Run) -> None:
    result = run("decode", "--from", "vllm", input=FAILED_ANSWER)
    value = json.loads(result.stdout)
    assert [part["content"] for part in value["parts"]] == ["Hm. "]
    assert (value["error"]["said"], value["finish_reason"]) == ("out of memory", "error")
    assert (result.returncode, result.stderr) == (1, b"Error: the provider reported an error: out of memory\n")


@pytest.mark.parametrize("command", [["decode"], ["translate", "--to", "openresponses"]])
def test_an_unknown_provider_is_reported_with_the_known_ones(run: Run, command: list[str]) -> None:
    message = error_message(run(*command, "--from", "qqqqqq", input=ANSWER))
    assert message.startswith("Error: --from: no provider 'qqqqqq'; there are: ")
    assert "vllm" in message


@pytest.mark.parametrize(
    ("dialect", "name"), [("openresponses", b"response.reasoning."), ("openai", b"response.reasoning_text.")]
)
def test_translate_prints_what_a_client_gets(run: Run, dialect: str, name: bytes) -> None:
    args = ("--to", "openresponses", "--dialect", dialect)
    result = run("translate", "--from", "vllm", *args, "--check", input=ANSWER)
    assert (result.returncode, result.stderr) == (0, b"legal\n")
    assert b"event: " + name + b"delta\n" in result.stdout
    assert result.stdout.endswith(b"data: [DONE]\n\n")


def test_translate_prints_the_whole_response_with_no_stream(run: Run) -> None:
    result = run("translate", "--from", "vllm", "--to", "openresponses", "--no-stream", "--check", input=ANSWER)
    response = json.loads(result.stdout)
    assert (result.returncode, response["status"]) == (0, "completed")
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]


def test_a_checked_translation_of_an_error_is_legal_and_fails(run: Run) -> None:
    args = ("translate", "--from", "vllm", "--to", "openresponses")
    checked, unchecked = run(*args, "--check", input=FAILED_ANSWER), run(*args, input=FAILED_ANSWER)
    assert checked.stdout == unchecked.stdout
    assert b"event: response.failed\n" in checked.stdout
    assert checked.returncode == 1
    assert checked.stderr == b"legal\nError: the provider reported an error: out of memory\n"
    assert (unchecked.returncode, unchecked.stderr) == (0, b"")
    cut_off = ANSWER.partition(b"42")[0]
    assert run(*args, "--check", input=cut_off).returncode == 1


def test_translate_is_deterministic(run: Run) -> None:
    first, second = (run("translate", "--from", "vllm", "--to", "openresponses", input=ANSWER) for _ in range(2))
    assert first.stdout == second.stdout


# --- models, openapi, config -------------------------------------------------------------------------------------


def test_the_models_command(run: Run) -> None:
    result = run("models", "list")
    assert result.returncode == 0
    assert "smollm2-135m" in result.stdout.decode()
    listed = json.loads(run("models", "list", "--json").stdout)
    assert [(model["name"], model["is_default"]) for model in listed] == [
        ("qwen2.5-coder-1.5b", True),
        ("smollm2-135m", False),
        ("qwen3-1.7b", False),
    ]
    assert all(model["bytes"] > 0 and model["memory"] > model["bytes"] and model["note"] for model in listed)
    assert "there is no embedded model 'nobody'" in error_message(run("models", "pull", "nobody"))


def test_openapi_prints_the_document_of_the_server(run: Run) -> None:
    document = json.loads(run("openapi").stdout)
    assert "/v1/responses" in document["paths"]


def test_config_check_accepts_a_valid_configuration(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pellucid.toml").write_text('[providers.vllm]\nbase_url = "http://127.0.0.1:8000/v1"')
    result = run("config", "check")
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout == b"pellucid.toml: valid. Providers: vllm. The embedded model: off.\n"


def test_config_check_lists_connections_and_which_of_two_names_wins(run: Run, tmp_path: Path) -> None:
    home, file = {"XDG_DATA_HOME": str(tmp_path / "data")}, tmp_path / "data" / "pellucid" / "connections.toml"
    key = "sk-canary-0123456789"
    (tmp_path / "pellucid.toml").write_text('[providers.vllm]\nmodels = ["m"]\n')
    create_secret(
        file,
        f'[connections.vllm]\nprofile = "ollama"\nmodels = ["m"]\napi_key = "{key}"\n'
        '[connections.mine]\nprofile = "ollama"\nmodels = ["m", "n"]\n'
        '[connections.bad]\nprofile = "nobody"\nmodels = []\n'.encode(),
    )
    result = run("config", "check", env=home)
    assert result.returncode == 0
    assert f"{file}: connected in the page: vllm (m); mine (m, n).\n" in result.stdout.decode()
    warnings = result.stderr.decode()
    assert f"warning: {file}: connections.vllm: not used, as providers.vllm in the configuration file is" in warnings
    assert f"warning: {file}: connections.mine: another model is served as 'm'; this one is mine:m" in warnings
    assert "connections.bad.profile: there is no provider 'nobody'" in warnings
    assert key not in result.stdout.decode() + warnings


def test_config_check_closes_its_clients(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[UpstreamClient] = []
    create = UpstreamClient.__init__

    def record(self: UpstreamClient, *args: Any, **kwargs: Any) -> None:
        clients.append(self)
        create(self, *args, **kwargs)

    monkeypatch.setattr(UpstreamClient, "__init__", record)
    text = '[connections.mine]\nprofile = "ollama"\nmodels = ["m"]\n'
    create_secret(tmp_path / "data" / "pellucid" / "connections.toml", text.encode())
    (tmp_path / "pellucid.toml").write_text('[providers.vllm]\nmodels = ["m"]\n')
    assert run("config", "check", env={"XDG_DATA_HOME": str(tmp_path / "data")}).returncode == 0
    assert len(clients) == 2
    (tmp_path / "pellucid.toml").write_text('[summaries]\nmodel = "nobody"\n')
    assert run("config", "check").returncode == 2
    assert len(clients) > 2
    assert all(client.is_closed for client in clients)


def test_config_check_reports_every_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[server]\nprot = 1\nhost = "0.0.0.0"\n[providers.openai]\nmodel = ["x"]')
    message = error_message(run("config", "check", "mine.toml"))
    first, *lines = message.splitlines()
    assert first == "The configuration is wrong:"
    assert lines[0] == "  server.prot: no such key; did you mean 'port'?"
    assert lines[1] == "  providers.openai.model: no such key; did you mean 'models'?"
    assert lines[2].startswith("  server.host: '0.0.0.0' can be reached from other machines")
    assert len(lines) == 3


def test_config_check_verifies_references_and_creates_nothing(run: Run, tmp_path: Path) -> None:
    home = {"XDG_DATA_HOME": str(tmp_path / "data")}
    model = '[providers.vllm]\nmodels = ["m"]\n'  # so that no engine needs to be installed
    text = (
        model
        + '[tools]\nfunctions = ["shop"]\n[summaries]\nmodel = "nobody"\n[server]\nhost = "no.such.host.invalid"\n'
    )
    (tmp_path / "pellucid.toml").write_text(text + "allow_unauthenticated = true\n")
    first, *lines = error_message(run("config", "check", env=home)).splitlines()
    assert first == "The configuration is wrong:"
    assert [line.split(": ")[0].strip() for line in lines] == ["server.host", "summaries.model", "tools.functions[0]"]
    (tmp_path / "pellucid.toml").write_text("access.keys = true\n" + model)
    assert run("config", "check", env=home).returncode == 0
    assert not (tmp_path / "data").exists()


def test_config_check_without_a_configuration(run: Run, tmp_path: Path) -> None:
    home, file = {"XDG_DATA_HOME": str(tmp_path / "data")}, tmp_path / "data" / "pellucid" / "connections.toml"
    create_secret(file, b'[connections.mine]\nprofile = "ollama"\nmodels = ["n"]\n')
    result = run("config", "check", env=home)
    assert result.returncode == 0
    first, second = result.stdout.decode().splitlines()
    assert first.startswith("pellucid.toml: there is none in ")
    assert second == f"{file}: connected in the page: mine (n)."
    assert "pellucid.toml: No such file or directory" in error_message(run("config", "check", "pellucid.toml"))


# --- ask ---------------------------------------------------------------------------------------------------------


def ask_arguments(upstream: Upstream, model: str, *more: str) -> tuple[str, ...]:
    return ("ask", "Why?", "--provider", "vllm", "--upstream", upstream.url, "--upstream-model", model, *more)


def test_ask_writes_only_the_answer_to_a_pipe(run: Run, upstream: Upstream) -> None:
    model = upstream.plays(say("Let me :smile: [b]see[/b].", "It is [red]42[/red] :smile: a:b:c"))
    result = run(*ask_arguments(upstream, model))
    assert (result.returncode, result.stdout.decode()) == (0, "It is [red]42[/red] :smile: a:b:c \n")
    assert result.stderr.decode().strip() == "Let me :smile: [b]see[/b]."
    assert upstream.calls(model)[0].body["messages"][0]["content"] == "Why?"


def test_ask_prints_the_events_as_json(run: Run, upstream: Upstream) -> None:
    result = run(*ask_arguments(upstream, upstream.plays(say()), "--json"))
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.returncode, result.stderr) == (0, b"")
    assert events[0]["event_kind"] == "response_start"
    assert (events[-1]["event_kind"], events[-1]["status"]) == ("run_end", "completed")
    assert [x["kind"] for x in events if x["event_kind"] == "item_start"] == ["reasoning", "message"]


def test_ask_reads_the_question_from_a_pipe(run: Run, upstream: Upstream) -> None:
    model = upstream.plays(say())
    args = list(ask_arguments(upstream, model))
    args[1] = "-"
    assert run(*args, "--effort", "low", input="Warum grün?".encode()).returncode == 0
    [call] = upstream.calls(model)
    assert call.body["messages"][0]["content"] == "Warum grün?"
    assert call.body["reasoning_effort"] == "low"


async def stops_at_the_length_limit(call: Call) -> None:
    await call.head()
    await call.event(delta(content="It is"))
    await call.event(delta("length"))
    await call.event(b"[DONE]")
    await call.end()


async def fails_midway(call: Call) -> None:
    await call.head()
    await call.event(delta(content="It is"))
    await call.event({"error": {"message": "out of memory"}})
    await call.wait_for_disconnect()


async def refuses_the_key(call: Call) -> None:
    await call.answer(401, b'{"error": {"message": "bad key"}}')


def test_the_exit_status_of_ask_follows_the_turn(run: Run, upstream: Upstream) -> None:
    cut = run(*ask_arguments(upstream, upstream.plays(stops_at_the_length_limit)))
    assert (cut.returncode, cut.stdout) == (1, b"It is\n")
    assert b"(cut off: max_output_tokens)" in cut.stderr
    failed = run(*ask_arguments(upstream, upstream.plays(fails_midway)))
    assert (failed.returncode, failed.stdout) == (1, b"It is\n")
    assert failed.stderr == b"Error: the provider reported an error: out of memory\n"
    refused = run(*ask_arguments(upstream, upstream.plays(refuses_the_key)))
    assert error_message(refused, 1) == "Error: the provider refused the credentials (status 401): bad key\n"


def test_ask_reports_an_unreachable_provider(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pellucid.toml").write_text(
        '[limits]\nretries = 0\n[providers.vllm]\nbase_url = "http://127.0.0.1:1/v1"\nmodels = ["m"]'
    )
    message = "Error: the model's provider cannot be reached: Connection refused (at http://127.0.0.1:1)\n"
    assert error_message(run("ask", "Why?"), 1) == message


# --- invalid commands ------------------------------------------------------------------------------------------------


INVALID_COMMANDS: list[tuple[list[str], str]] = [
    (["--nonsense"], "No such option"),
    (["nonsense"], "No such command 'nonsense'"),
    (["decode"], "Missing option '--from'"),
    (["decode", "--from", "vllm", "nowhere"], "No such file or directory"),
    (["translate", "--from", "vllm", "--to", "klingon"], "'klingon' is not one of"),
    (["ask"], "Missing argument 'QUESTION'"),
    (["ask", "x", "--effort", "huge"], "'huge' is not one of"),
    (["ask", "x", "--provider", "qqqqqq"], "--provider: no profile 'qqqqqq'; there are: alibaba, "),
    (["serve", "--provider", "antropic"], "--provider: no profile 'antropic'; did you mean 'anthropic'?"),
    (["decode", "--from", "antropic"], "--from: no provider 'antropic'; did you mean 'anthropic'?"),
    (["ask", "x", "--upstream", "localhost:8000"], "is not an http:// or https:// address"),
    (["ask", "x", "--upstream-model", "m"], "--upstream-model: it needs an upstream"),
    (
        ["ask", "x", "--provider", "vllm", "--upstream", "http://127.0.0.1:1/v1", "--api-key-env", "NO_SUCH"],
        "has no NO_SUCH",
    ),
    (["ask", "x", "--config", "nowhere.toml"], "nowhere.toml: No such file"),
    (["ask", "x", "--local-model", "nobody"], "no model 'nobody'"),
    (["ask", "x", "--local-model", "./nowhere.gguf"], "there is no file './nowhere.gguf'"),
    (["serve", "--port", "x"], "'x' is not a valid integer"),
    (["serve", "--port", "99999"], "server.port: expected `int` <= 65535"),
    (["serve", "--host", "0.0.0.0"], "can be reached from other machines"),
    (
        ["serve", "--workers", "2"],
        "relay.url: for server.workers = 2, live responses must be",
    ),
]


def test_an_invalid_command_is_explained(run: Run) -> None:
    with Cases() as case:
        for args, says in INVALID_COMMANDS:
            with case(" ".join(args)):
                assert says in error_message(run(*args))


def test_help_and_version(run: Run) -> None:
    assert run("--version").stdout.decode().strip() == f"pellucid, version {__version__}"
    for command in ([], ["serve"], ["ask"], ["decode"], ["translate"], ["models"], ["config"], ["openapi"]):
        assert run(*command, "--help").stdout.startswith(b"Usage: ")


# --- closed pipes ----------------------------------------------------------------------------------------------------


async def answers_at_length(call: Call) -> None:
    await call.head()
    for _ in range(3000):
        await call.event(delta(content="a line of the answer, and another\n" * 9))
    await call.event(delta("stop"))
    await call.event(b"[DONE]")
    await call.end()


@contextmanager
def pipe_closed_after_one_byte() -> Iterator[int]:
    """Yield the write end of a pipe whose reader closes it after one byte."""
    reading, writing = os.pipe()

    def read() -> None:
        os.read(reading, 1)
        os.close(reading)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield writing
    finally:
        os.close(writing)
        reader.join(LIMIT_SECONDS)


def long_outputs(upstream: Upstream, model: str, folder: Path) -> dict[str, tuple[str, ...]]:
    """Return commands that print more than a pipe can buffer."""
    file = folder / "answer"
    file.write_bytes(event(delta(content="x\n" * 100)) * 5000 + ANSWER)
    return {
        "openapi": ("openapi",),
        "decode": ("decode", "--from", "vllm", str(file)),
        "translate": ("translate", "--from", "vllm", "--to", "openresponses", str(file)),
        "ask": ask_arguments(upstream, model),
        "ask --json": ask_arguments(upstream, model, "--json"),
    }


@pytest.mark.parametrize("command", ["openapi", "decode", "translate", "ask", "ask --json"])
def test_a_closed_pipe_ends_a_command_without_an_error(
    process_state: pytest.MonkeyPatch, tmp_path: Path, upstream: Upstream, command: str
) -> None:
    model, errors = upstream.plays(answers_at_length), io.StringIO()
    args = long_outputs(upstream, model, tmp_path)[command]
    with pipe_closed_after_one_byte() as pipe, process_state.context() as streams:
        # Closing the file writes what its buffer still contains.
        with open(pipe, "w", closefd=False) as output:
            streams.setattr(sys, "stdout", output)
            streams.setattr(sys, "stderr", errors)
            with pytest.raises(SystemExit) as ended:
                main.main(args, prog_name="pellucid")
        assert (ended.value.code, errors.getvalue()) in ((0, ""), (1, ""))
    if command.startswith("ask"):
        assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)


def test_a_closed_pipe_ends_a_process_without_an_error(tmp_path: Path, upstream: Upstream) -> None:
    model = upstream.plays(answers_at_length)
    writer = subprocess.Popen(
        [*PELLUCID, *long_outputs(upstream, model, tmp_path)["ask"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.read(1)
    writer.stdout.close()
    with writer.stderr as errors:
        assert errors.read() == b""
    assert writer.wait(LIMIT_SECONDS) in (0, 1)
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)
