"""`pellucid serve`: it starts, says where it is, and ends well."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from http.client import HTTPException
from pathlib import Path

import pytest

from pellucid.protocols.openresponses.verify import verify
from tests.cli.in_process import ServeThread, ServingThread
from tests.scripted import Call, Gateway, Upstream, delta, say
from tests.scripted.commands import Run, Serve
from tests.scripted.gateway import events_of
from tests.waiting import LIMIT_SECONDS, eventually, wait_until


def where(upstream: Upstream, **server: object) -> str:
    lines = "\n".join(f"{name} = {value}" for name, value in server.items())
    return f'[server]\n{lines}\n[providers.vllm]\nbase_url = "{upstream.url}"'


def is_stopping(gateway: Gateway) -> bool:
    """Whether it has begun to stop. A connection that has asked nothing by then is closed: it is asked again."""
    try:
        return gateway.request("GET", "/ready").status == 503
    except (ConnectionError, HTTPException):
        return False


def refuses(gateway: Gateway) -> bool:
    """Whether whoever comes now is refused because it stops."""
    try:
        return bool(gateway.ask(None).error["code"] == "stopping")
    except (ConnectionError, HTTPException):
        return False


def test_it_serves_and_says_where(serve: ServeThread, upstream: Upstream) -> None:
    model = upstream.plays(say())
    with serve("--provider", "vllm", "--upstream", upstream.url, "--upstream-model", model) as serving:
        gateway = Gateway(serving.port)
        assert gateway.request("GET", "/ready").status == 200
        assert gateway.ask(model).json["status"] == "completed"
        assert gateway.ask(None).json["model"] == model
        spoken(serving)
        serving.stop()
        status, said = serving.end()
    assert status == 0
    assert "curl -N" in said
    assert f"vllm: {model}" in said


def shown(said: str) -> str:
    """The command that it says to try."""
    return said.partition("See it think")[2].partition(":\n")[2]


def tried(command: str, **environ: str) -> str:
    """What the command prints in a shell."""
    done = subprocess.run(
        ["sh", "-c", command], env={**os.environ, **environ}, capture_output=True, timeout=LIMIT_SECONDS, check=True
    )
    return done.stdout.decode()


def spoken(serving: ServingThread) -> str:
    """All that it says before it is told to stop."""
    return serving.until(b'"stream"')


@pytest.mark.needs("curl")
@pytest.mark.parametrize(
    ("access", "key"),
    [
        ("", None),
        ("access.keys = true\n", "KEY"),
        ("access.key_env = 'HOUSE'\n", "HOUSE"),
        ("server.host = '0.0.0.0'\naccess.key_env = 'HOUSE'\n", "HOUSE"),
        ("made", "KEY"),
    ],
)
def test_the_command_that_it_shows_works(
    serve: ServeThread,
    run: Run,
    upstream: Upstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    access: str,
    key: str | None,
) -> None:
    monkeypatch.setenv("HOUSE", value := "0123456789abcdef01234567")
    provider = f'[providers.vllm]\nbase_url = "{upstream.url}"\nmodels = ["{upstream.plays(say())}"]'
    config = f"storage.url = 'sqlite:///{tmp_path}/kept'\naccess.pepper_file = '{tmp_path}/pepper'\n"
    config += (access if access != "made" else "") + provider
    (tmp_path / "pellucid.toml").write_text(config)
    if key == "KEY":
        value = run("keys", "create", "--owner", "me").stdout.decode().strip()
    with serve() as serving:
        said = spoken(serving)
        assert ("Authorization" in shown(said)) == (key is not None)
        assert "response.completed" in tried(shown(said), **{key: value} if key else {})
        if key:
            assert "missing_credentials" in tried(shown(said).replace(f"Authorization: Bearer ${key}", "X: y"))


def test_who_has_spaces_is_told_where_they_are(run: Run, serve: ServeThread, upstream: Upstream) -> None:
    given = ("--provider", "vllm", "--upstream", upstream.url, "--upstream-model", "m")
    with serve(*given) as serving:
        assert "/spaces" not in spoken(serving)
    assert run("space", "create", "review", "--participant", "alice").returncode == 0
    with serve(*given) as serving:
        assert f"Its spaces: http://127.0.0.1:{serving.port}/spaces\n" in spoken(serving)


def test_without_a_default_model_it_says_what_is_missing(serve: ServeThread, upstream: Upstream) -> None:
    with serve("--upstream", upstream.url) as serving:
        said = spoken(serving)
    assert "See it think, with the name of a model for MODEL:\n" in said
    assert "Use it in a browser (once a model is named: --upstream-model): http://" in said
    assert '"model": "MODEL", ' in said
    assert "needs an API key" not in said  # a server of one's own mostly has none


def test_each_line_is_whole_and_says_how_to_give_a_key(serve: ServeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with serve("--provider", "anthropic", "--upstream-model", "m") as serving:
        said = spoken(serving)
    assert (
        "\n  anthropic needs an API key, and the environment has none: set ANTHROPIC_API_KEY, or name the variable "
        "that holds it (--api-key-env, or api_key_env in the configuration)\n"
    ) in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_stops_quietly(serve_process: Serve, upstream: Upstream, number: int) -> None:
    with serve_process(config=where(upstream)) as serving:
        serving.stop(number)
        status, said = serving.end()
    assert status == 0
    assert said.startswith("Pellucid listens on ")
    assert not re.search("Traceback|Error|ERROR|Abort", said)


def test_told_to_stop_it_finishes_what_it_has_begun(serve: ServeThread, upstream: Upstream) -> None:
    goes_on = threading.Event()

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(content="first, "))
        await eventually(goes_on.is_set)
        await call.event(delta("stop", content="last"))
        await call.event(b"[DONE]")
        await call.end()

    with serve(config=where(upstream, shutdown_seconds=LIMIT_SECONDS)) as serving:
        gateway = Gateway(serving.port)
        with gateway.open(upstream.plays(script)) as stream:
            stream.until("first, ")
            serving.stop()
            wait_until(lambda: is_stopping(gateway))
            wait_until(lambda: refuses(gateway))
            goes_on.set()
            assert stream.events[-1]["response"]["output"][0]["content"][0]["text"] == "first, last"
        status, said = serving.end()
    assert status == 0
    assert "Traceback" not in said


def test_what_does_not_end_in_time_ends_in_form(serve: ServeThread, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm."))
        await call.gone()

    async def never(call: Call) -> None:
        await call.gone()

    model, silent = upstream.plays(script), upstream.plays(never)
    with serve(config=where(upstream, shutdown_seconds=0.2)) as serving:
        gateway = Gateway(serving.port)
        with (
            gateway.open(model) as stream,
            socket.create_connection(("127.0.0.1", serving.port), LIMIT_SECONDS) as whole,
        ):
            stream.until("Hm.")
            body = b'{"model":"%b","input":"x"}' % silent.encode()
            whole.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            upstream.calls(silent, at_least=1)
            serving.stop()
            data = stream.rest()
            assert verify(data) == []
            *_, error, last = events_of(data)
            assert (error["error"]["code"], last["type"]) == ("stopping", "response.failed")
            assert whole.recv(1000).startswith(b"HTTP/1.1 503 ")
        status, said = serving.end()
    assert status == 0
    assert "Traceback" not in said
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)


def test_a_second_ctrl_c_does_not_wait(serve_process: Serve, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(content="Hm."))
        await call.gone()

    config = where(upstream, shutdown_seconds=3600)
    with serve_process(config=config) as serving:
        gateway = Gateway(serving.port)
        with gateway.open(upstream.plays(script)) as stream:
            stream.until("Hm.")
            serving.stop(signal.SIGINT)
            wait_until(lambda: is_stopping(gateway))
            serving.stop(signal.SIGINT)
            _, said = serving.end()
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_named(run: Run, upstream: Upstream) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port), "--provider", "vllm", "--upstream", upstream.url)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "The configuration is wrong:",
        f"  server.port: cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --port",
    ]


def test_an_embedded_model_that_does_not_load_is_told(serve: ServeThread, tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF, but not really")
    with serve("--local-model", "./mine.gguf") as serving:
        serving.until(b"it did not load: ")
        reply = Gateway(serving.port).ask(None)
        assert reply.status == 503
        # Without the engine's package no model loads, for another reason.
        assert re.search("could not load|is not installed", reply.error["message"])
        serving.stop()
        status, said = serving.end()
    assert status == 0
    assert "Traceback" not in said
