"""`pellucid check`: streams of any server, captured or from a URL, against the rules of a protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pellucid.cli.main import main
from pellucid.protocols.client_protocols import CLIENT_PROTOCOLS
from tests.scripted import Upstream, say
from tests.scripted.gateway import Served
from tests.server.state_kit import serving

RUN = [{"type": "RUN_STARTED", "threadId": "t", "runId": "r"}, {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}]
SNAKE_CASE = {"type": "TEXT_MESSAGE_CONTENT", "message_id": "a", "delta": "the-text"}


def check(*arguments: str, input: bytes = b"", **variables: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments], input=input, env=variables)


def sse(*events: object) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(upstream) as running:
        yield running


@pytest.mark.parametrize(
    ("protocol", "dialect"), [(name, one) for name, row in CLIENT_PROTOCOLS.items() for one in row.dialects or ("",)]
)
def test_every_protocol_of_a_running_gateway(gateway: Served, upstream: Upstream, protocol: str, dialect: str) -> None:
    model = f"vllm:{upstream.plays(say())}"
    path = next(iter(CLIENT_PROTOCOLS[protocol].paths), "/api/chat")
    options = [*(["--dialect", dialect] if dialect else [])]
    if protocol == "agui":
        options += ["--header", f"AG-UI-Dialect: {dialect}"]
    elif dialect:
        options += ["--header", f"OpenResponses-Reasoning-Events: {dialect}"]
    result = check("--protocol", protocol, *options, "--model", model, gateway.url + path)
    assert (result.exit_code, result.output) == (0, "legal\n")


def test_a_request_of_ones_own(gateway: Served, upstream: Upstream, tmp_path: Path) -> None:
    name = upstream.plays(say())
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": f"vllm:{name}", "input": "the-question", "stream": True}))
    result = check("--protocol", "openresponses", "--request", str(request), f"{gateway.url}/v1/responses")
    assert (result.exit_code, result.output) == (0, "legal\n")
    [call] = upstream.calls(name)
    assert call.body["messages"][-1]["content"] == "the-question"


def test_the_gravest_violation_comes_first_and_no_content_is_shown(tmp_path: Path) -> None:
    capture = tmp_path / "capture.sse"
    capture.write_bytes(sse(RUN[0], {**RUN[0], "type": "NOVELTY"}, SNAKE_CASE))
    for result in (
        check("--protocol", "agui", str(capture)),
        check("--protocol", "agui", input=capture.read_bytes()),
    ):
        first, *others, count = result.output.splitlines()
        assert first.startswith("event 2: fields (fatal): TEXT_MESSAGE_CONTENT: ")
        assert "messageId" in first
        assert [other.partition(": ")[2].split(": ")[0] for other in others] == ["type (silent)", "unknown (silent)"]
        assert (count, result.exit_code) == ("3 rules broken", 1)
        assert "the-text" not in result.output


@pytest.mark.parametrize("protocol", CLIENT_PROTOCOLS)
def test_what_is_no_stream_is_not_legal(protocol: str) -> None:
    for data in (b"", b"\x00\xff", b"{}", b"data: {\n\n", b"data: [DONE]\n\n"):
        result = check("--protocol", protocol, input=data)
        assert (result.exit_code, result.output.endswith("broken\n")) == (1, True), data


def test_errors_of_the_server_and_of_options(gateway: Served) -> None:
    url = f"{gateway.url}/ag-ui"
    errors = [
        (["--model", "no-such", url], 1, "answers 404, application/json, not with a stream"),
        ([f"{gateway.url}/health"], 1, "answers 405"),
        (["http://127.0.0.1:9/"], 1, "http://127.0.0.1:9/ does not answer: "),
        (["http://[::1"], 2, "is not a URL"),
        (["--header", "none", url], 2, "--header: 'none' is not of the form"),
        (["--key-env", "NO_KEY_HERE", url], 2, "NO_KEY_HERE is not set"),
        (["--dialect", "9", url], 2, "no dialect '9'"),
        (["/no/such/file"], 2, "/no/such/file: No such file"),
    ]
    for arguments, status, message in errors:
        result = check("--protocol", "agui", *arguments)
        assert (result.exit_code, message in result.output) == (status, True), result.output


def test_the_verifier_of_ag_ui_needs_neither_server_nor_providers() -> None:
    program = "import sys, pellucid.protocols.agui.verify; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "pellucid.protocols.agui.verify" in modules
    heavy = {"server", "providers", "models", "upstream", "runs", "agent", "storage", "sealing"}
    assert not {name for name in modules if name.startswith("pellucid.") and name.split(".")[1] in heavy}
    assert not {"starlette", "uvicorn", "sqlalchemy", "yarl", "cryptography"} & set(modules)
