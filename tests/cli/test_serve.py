"""`pellucid serve`: its start, its output, and its end."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from http.client import HTTPException
from pathlib import Path

import pytest

from pellucid.cli.serve import MAX_OPEN_FILES
from pellucid.errors import ConfigError
from pellucid.protocols.openresponses.verify import verify
from pellucid.storage.gateway_lock import gateway_lock
from tests.cli.in_process import ServeThread, ServingThread
from tests.scripted import Call, Gateway, Upstream, delta, say
from tests.scripted.commands import PELLUCID, Run, Serve
from tests.scripted.gateway import events_of
from tests.waiting import LIMIT_SECONDS, eventually, wait_until


def config_for(upstream: Upstream, **server: object) -> str:
    lines = "\n".join(f"{name} = {value}" for name, value in server.items())
    return f'[server]\n{lines}\n[providers.vllm]\nbase_url = "{upstream.url}"'


def is_stopping(gateway: Gateway) -> bool:
    """Whether it has begun to stop. Idle connections are closed then, so a failed request is repeated."""
    try:
        return gateway.request("GET", "/ready").status == 503
    except (ConnectionError, HTTPException):
        return False


def refuses_requests(gateway: Gateway) -> bool:
    """Whether new requests are refused because it stops."""
    try:
        return bool(gateway.ask(None).error["code"] == "stopping")
    except (ConnectionError, HTTPException):
        return False


def test_serve_prints_its_address(serve: ServeThread, upstream: Upstream) -> None:
    model = upstream.plays(say())
    with serve("--provider", "vllm", "--upstream", upstream.url, "--upstream-model", model) as serving:
        gateway = Gateway(serving.port)
        assert gateway.request("GET", "/ready").status == 200
        assert gateway.ask(model).json["status"] == "completed"
        assert gateway.ask(None).json["model"] == model
        startup_output(serving)
        serving.stop()
        status, output = serving.end()
    assert status == 0
    assert "curl -N" in output
    assert f"vllm: {model}" in output


def command_to_try(output: str) -> str:
    """Return the example command in the output."""
    return output.partition("See it think")[2].partition(":\n")[2]


def run_in_shell(command: str, **environ: str) -> str:
    """Run the command in a shell and return its stdout."""
    done = subprocess.run(
        ["sh", "-c", command], env={**os.environ, **environ}, capture_output=True, timeout=LIMIT_SECONDS, check=True
    )
    return done.stdout.decode()


def startup_output(serving: ServingThread) -> str:
    """Return all that it prints before it is stopped."""
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
def test_the_printed_example_command_works(
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
        output = startup_output(serving)
        assert ("Authorization" in command_to_try(output)) == (key is not None)
        assert "response.completed" in run_in_shell(command_to_try(output), **{key: value} if key else {})
        if key:
            assert "missing_credentials" in run_in_shell(
                command_to_try(output).replace(f"Authorization: Bearer ${key}", "X: y")
            )


def test_serve_prints_the_address_of_its_spaces(run: Run, serve: ServeThread, upstream: Upstream) -> None:
    arguments = ("--provider", "vllm", "--upstream", upstream.url, "--upstream-model", "m")
    with serve(*arguments) as serving:
        assert "/spaces" not in startup_output(serving)
    assert run("space", "create", "review", "--participant", "alice").returncode == 0
    with serve(*arguments) as serving:
        assert f"Its spaces: http://127.0.0.1:{serving.port}/spaces\n" in startup_output(serving)


def test_serve_without_a_default_model_says_what_is_missing(serve: ServeThread, upstream: Upstream) -> None:
    with serve("--upstream", upstream.url) as serving:
        output = startup_output(serving)
    assert "See it think, with the name of a model for MODEL:\n" in output
    assert "Use it in a browser (once a model is named: --upstream-model): http://" in output
    assert '"model": "MODEL", ' in output
    assert "needs an API key" not in output  # a local server mostly needs no key


def test_without_the_engine_the_gateway_starts_fetches_nothing_and_says_what_to_do(
    serve: ServeThread, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.local.model_index.find_spec", lambda _: None)
    monkeypatch.setattr("pellucid.local.fetch.fetch", lambda *_, **__: pytest.fail("something is fetched"))
    remedy = "this gateway has no model yet: install the embedded one (pip install 'pellucid[local]') and start again"
    with serve() as serving:
        output = serving.until(b"Use it in a browser")
        gateway = Gateway(serving.port)
        ready = gateway.request("GET", "/ready")
        bodies = {
            "/v1/responses": {"input": "Hello"},
            "/v1/chat/completions": {"model": "local", "messages": [{"role": "user", "content": "Hello"}]},
            "/v1/messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]},
        }
        json_type = {"Content-Type": "application/json"}
        replies = {
            path: gateway.request("POST", path, json.dumps(body).encode(), json_type) for path, body in bodies.items()
        }
        assert gateway.request("GET", "/api/models").json["data"] == []
    assert remedy in output
    assert "See it think" not in output
    assert (ready.status, ready.json["status"]) == (503, "unavailable")
    assert remedy in ready.json["detail"]
    for path, reply in replies.items():
        assert reply.status == 404, path
        assert remedy in reply.json["error"]["message"], path
    done = run("ask", "Hello")
    assert (done.returncode, done.stdout) == (1, b"")
    assert "the embedded engine is not installed: pip install 'pellucid[local]'" in done.stderr.decode()


def test_a_model_that_is_requested_needs_the_engine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.local.model_index.find_spec", lambda _: None)
    monkeypatch.setattr("pellucid.local.fetch.fetch", lambda *_, **__: pytest.fail("something is fetched"))
    done = run("serve", "--port", "0", "--local-model", "smollm2-135m")
    assert done.returncode != 0
    assert "the embedded engine is not installed" in done.stderr.decode()


def test_a_missing_provider_key_is_reported_on_one_line(serve: ServeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with serve("--provider", "anthropic", "--upstream-model", "m") as serving:
        output = startup_output(serving)
    assert (
        "\n  anthropic needs an API key, and the environment has none: set ANTHROPIC_API_KEY, or name the variable "
        "that holds it (--api-key-env, or api_key_env in the configuration)\n"
    ) in output


def test_the_soft_limit_of_open_files_is_raised(serve: ServeThread, upstream: Upstream) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with serve(config=config_for(upstream)):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] in {hard, MAX_OPEN_FILES} - {512}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_without_an_error(serve_process: Serve, upstream: Upstream, number: int) -> None:
    with serve_process(config=config_for(upstream)) as serving:
        serving.stop(number)
        status, output = serving.end()
    assert status == 0
    assert output.startswith("Pellucid listens on ")
    assert not re.search("Traceback|Error|ERROR|Abort", output)


def test_a_stopping_server_finishes_its_responses(serve: ServeThread, upstream: Upstream) -> None:
    may_continue = threading.Event()

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(content="first, "))
        await eventually(may_continue.is_set)
        await call.event(delta("stop", content="last"))
        await call.event(b"[DONE]")
        await call.end()

    with serve(config=config_for(upstream, shutdown_seconds=LIMIT_SECONDS)) as serving:
        gateway = Gateway(serving.port)
        with gateway.open(upstream.plays(script)) as stream:
            stream.until("first, ")
            serving.stop()
            wait_until(lambda: is_stopping(gateway))
            wait_until(lambda: refuses_requests(gateway))
            may_continue.set()
            assert stream.events[-1]["response"]["output"][0]["content"][0]["text"] == "first, last"
        status, output = serving.end()
    assert status == 0
    assert "Traceback" not in output


def test_responses_beyond_the_shutdown_time_end_with_an_error_event(serve: ServeThread, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm."))
        await call.wait_for_disconnect()

    async def never(call: Call) -> None:
        await call.wait_for_disconnect()

    model, silent = upstream.plays(script), upstream.plays(never)
    with serve(config=config_for(upstream, shutdown_seconds=0.2)) as serving:
        gateway = Gateway(serving.port)
        with (
            gateway.open(model) as stream,
            socket.create_connection(("127.0.0.1", serving.port), LIMIT_SECONDS) as whole,
        ):
            stream.until("Hm.")
            body = b'{"model":"%b","input":"x"}' % silent.encode()
            head = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            whole.sendall(head + body)
            upstream.calls(silent, at_least=1)
            serving.stop()
            data = stream.rest()
            assert verify(data) == []
            *_, error, last = events_of(data)
            assert (error["error"]["code"], last["type"]) == ("stopping", "response.failed")
            assert whole.recv(1000).startswith(b"HTTP/1.1 503 ")
        status, output = serving.end()
    assert status == 0
    assert "Traceback" not in output
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(serve_process: Serve, upstream: Upstream, number: int) -> None:
    """Open streams end in the form of their protocol."""

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(content="Hm."))
        await call.wait_for_disconnect()

    config = config_for(upstream, shutdown_seconds=3600)
    with serve_process(config=config) as serving:
        gateway = Gateway(serving.port)
        with gateway.open(upstream.plays(script)) as stream:
            stream.until("Hm.")
            serving.stop(number)
            wait_until(lambda: is_stopping(gateway))
            serving.stop(number)
            data = stream.rest()
            status, output = serving.end()
    assert status == 0
    assert "Traceback" not in output
    assert "stopping at once, after a second signal; ending 1 request" in output
    assert verify(data) == []
    assert events_of(data)[-1]["response"]["error"]["code"] == "stopping"


def handles_signals(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process handles SIGTERM, as the server does from the start of its services on."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_signal_during_the_start_ends_it_and_a_second_one_the_process(tmp_path: Path, upstream: Upstream) -> None:
    """A thread that migrates the tables cannot be cancelled; so a second signal does not wait for it."""
    (tmp_path / "pellucid.toml").write_text(
        config_for(upstream) + f"\n[storage]\nurl = 'sqlite:///{tmp_path}/kept.sqlite'"
    )
    blocking = sqlite3.connect(tmp_path / "kept.sqlite", isolation_level=None)
    blocking.execute("BEGIN EXCLUSIVE")
    process = subprocess.Popen([*PELLUCID, "serve", "--port", "0"], stderr=subprocess.PIPE, cwd=tmp_path, bufsize=0)
    try:
        assert process.stderr is not None
        wait_until(lambda: handles_signals(process))
        process.send_signal(signal.SIGTERM)
        assert b"stopped during the start" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
        blocking.close()


def test_a_process_that_is_blocked_ends_at_its_limit() -> None:
    code = "import threading; from pellucid.cli.http_server import ExitLimit; ExitLimit().set(0.01)"
    blocked = f"{code}; threading.Thread(target=threading.Event().wait).start()"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 1
    assert b"the process did not end within 0.01 s after the signal" in done.stderr


def test_a_second_signal_while_requests_are_served_stops_at_once(serve: ServeThread, upstream: Upstream) -> None:
    """It skips `drain_seconds`, too."""
    with serve(config=config_for(upstream, drain_seconds=3600, shutdown_seconds=3600)) as serving:
        serving.stop()
        serving.until(b"stopping: for 3600 s, /ready answers 503, and requests are served")
        serving.stop()
        status, output = serving.end()
    assert status == 0
    assert "stopping at once, after a second signal; ending nothing" in output
    assert "waiting for" not in output


def test_a_second_gateway_on_one_file_is_refused(
    serve_process: Serve, serve: ServeThread, run: Run, upstream: Upstream, tmp_path: Path
) -> None:
    """The refusal names the process that has the file. Commands work meanwhile, and the lock ends with the process."""
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "kept.sqlite")
    urls = [f"sqlite:///{tmp_path}/{name}.sqlite" for name in ("kept", "link")]
    configs = [config_for(upstream) + f"\n[storage]\nurl = '{url}'" for url in urls]
    with serve_process(config=configs[0]) as serving:
        for config in configs:
            (tmp_path / "second.toml").write_text(config)
            refused = run("serve", "--port", "0", "--config", "second.toml")
            assert refused.returncode == 2
            heading, message = refused.stderr.decode().splitlines()
            assert heading == "Pellucid already runs:"
            process = f"another gateway (process {serving.process.pid})"
            assert f"{process} uses the file {tmp_path}/kept.sqlite: open that one, or end it" in message
        assert run("keys", "list").returncode == 0
        serving.process.kill()
        serving.process.wait()
        with serve(config=configs[0]) as after:
            assert Gateway(after.port).request("GET", "/ready").status == 200


def test_a_gateway_that_runs_is_named_with_its_address(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    running = re.escape(f"another gateway, at http://127.0.0.1:8080 (process {os.getpid()}) uses the file")
    with gateway_lock(url, "http://127.0.0.1:8080"), pytest.raises(ConfigError, match=running), gateway_lock(url):
        pass
    with gateway_lock(url), pytest.raises(ConfigError, match=r"another gateway \(process"), gateway_lock(url):
        pass


def test_an_occupied_port_is_reported(run: Run, upstream: Upstream) -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        done = run("serve", "--port", str(port), "--provider", "vllm", "--upstream", upstream.url)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "The configuration is wrong:",
        f"  server.port: cannot listen on 127.0.0.1:{port}: Address already in use; choose another with --port",
    ]


def test_an_embedded_model_that_does_not_load_is_reported(serve: ServeThread, tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF, but not really")
    with serve("--local-model", "./mine.gguf") as serving:
        serving.until(b"it did not load: ")
        reply = Gateway(serving.port).ask(None)
        assert reply.status == 503
        # Without the engine's package the model does not load either, for another reason.
        assert re.search("could not load|is not installed", reply.error["message"])
        serving.stop()
        status, output = serving.end()
    assert status == 0
    assert "Traceback" not in output
