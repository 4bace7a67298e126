"""`pellucid serve`: it starts, says where it is, and ends well."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from pellucid.protocols.openresponses.verify import verify
from scripted import Call, Gateway, Upstream, delta, say
from scripted.commands import Run, Serve
from scripted.gateway import events_of


def where(upstream: Upstream, **server: object) -> str:
    lines = "\n".join(f"{name} = {value}" for name, value in server.items())
    return f'[server]\n{lines}\n[providers.vllm]\nbase_url = "{upstream.url}"'


def test_it_serves_and_says_where(serve: Serve, upstream: Upstream) -> None:
    model = upstream.plays(say())
    with serve("--provider", "vllm", "--upstream", upstream.url, "--upstream-model", model) as serving:
        gateway = Gateway(serving.port)
        assert gateway.request("GET", "/ready").status == 200
        assert gateway.ask(model).json["status"] == "completed"
        assert gateway.ask(None).json["model"] == model
        serving.stop()
        status, said = serving.end()
    assert status == 0
    assert "curl -N" in said
    assert f"vllm: {model}" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_stops_quietly(serve: Serve, upstream: Upstream, number: int) -> None:
    with serve(config=where(upstream)) as serving:
        serving.stop(number)
        status, said = serving.end()
    assert status == 0
    assert said.startswith("Pellucid listens on ")
    assert not re.search("Traceback|Error|ERROR|Abort", said)


def test_told_to_stop_it_finishes_what_it_has_begun(serve: Serve, upstream: Upstream) -> None:
    stopping = False

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(content="first, "))
        while not stopping:  # noqa: ASYNC110 (set from another thread)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        await call.event(delta("stop", content="last"))
        await call.event(b"[DONE]")
        await call.end()

    with serve(config=where(upstream, shutdown_seconds=10)) as serving:
        with Gateway(serving.port).open(upstream.plays(script)) as stream:
            stream.until("first, ")
            serving.stop()
            end = time.monotonic() + 5
            while Gateway(serving.port).ask(None).error["code"] != "stopping":  # nobody new is let in
                assert time.monotonic() < end
                time.sleep(0.02)
            stopping = True
            assert stream.events[-1]["response"]["output"][0]["content"][0]["text"] == "first, last"
        status, said = serving.end()
    assert status == 0
    assert "Traceback" not in said


def test_what_does_not_end_in_time_ends_in_form(serve: Serve, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm."))
        await call.gone()

    async def never(call: Call) -> None:
        await call.gone()

    model, silent = upstream.plays(script), upstream.plays(never)
    with serve(config=where(upstream, shutdown_seconds=0.2)) as serving:
        gateway = Gateway(serving.port)
        with gateway.open(model) as stream, socket.create_connection(("127.0.0.1", serving.port), 10) as whole:
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
    assert upstream.calls(model)[0].connection.closed.wait(1)


def test_a_second_ctrl_c_does_not_wait(serve: Serve, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(content="Hm."))
        await call.gone()

    config = where(upstream, shutdown_seconds=60)
    with serve(config=config) as serving, Gateway(serving.port).open(upstream.plays(script)) as stream:
        stream.until("Hm.")
        serving.stop(signal.SIGINT)
        time.sleep(0.3)
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


def test_an_embedded_model_that_does_not_load_is_told(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF, but not really")
    with serve("--local-model", "./mine.gguf") as serving:
        assert serving.process.stderr is not None
        while b"it did not load: " not in serving.said:
            line = serving.process.stderr.readline()
            assert line, serving.said.decode()
            serving.said += line
        reply = Gateway(serving.port).ask(None)
        assert reply.status == 503
        assert "could not load" in reply.error["message"]
        serving.stop()
        status, said = serving.end()
    assert status == 0
    assert "Traceback" not in said
