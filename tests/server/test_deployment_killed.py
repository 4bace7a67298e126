"""One of two deployments is killed while a hundred streams are at it: what each client sees."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pellucid.protocols.openresponses.verify import verify
from tests.scripted import Reply, Upstream, say
from tests.scripted.gateway import Served, serve
from tests.server.loop_kit import legal_events
from tests.waiting import LIMIT_SECONDS, wait_until

BEHAVIOURS = ("silent", "thinks", "speaks")
STREAMS = 100
PROJECT = Path(__file__).parents[2]

KINDS: dict[str, dict[str, Any]] = {
    "attached": {"store": False},
    "stored": {"store": True},
    "background": {"background": True, "store": True},
}


class PacedUpstream:
    """`paced_upstream`, as a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process, self._lines = process, process.stdout
        self.url, self.model = self._lines.readline().split()

    def wait_for_calls(self, count: int) -> None:
        for _ in range(count):
            assert self._lines.readline() == "called\n"

    def kill(self) -> None:
        """End it with SIGKILL: the kernel resets its connections."""
        self._process.kill()
        self._process.wait(LIMIT_SECONDS)


@pytest.fixture
def doomed() -> Iterator[PacedUpstream]:
    command = [sys.executable, "-m", "tests.server.paced_upstream"]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield PacedUpstream(process)
        finally:
            process.kill()


@contextmanager
def gateway_of(doomed: PacedUpstream, other: Upstream, model: str, *, retry_thoughts: bool) -> Iterator[Served]:
    """A gateway with two deployments, whose first one is doomed."""
    rows = [{"provider": "doomed", "model": doomed.model}, {"provider": "vllm", "model": model, "order": 2}]
    config = {
        "providers": {
            "doomed": {"profile": "vllm", "base_url": doomed.url},
            "vllm": {"base_url": other.url, "models": [model]},
        },
        "limits": {"retries": 0},
        "models": {"m": {"deployments": rows, "retry_thoughts": retry_thoughts}},
    }
    with serve(config) as gateway:
        yield gateway


@pytest.mark.parametrize("retry_thoughts", [False, True], ids=["", "retry_thoughts"])
@pytest.mark.parametrize(
    "kind", ["attached", *(pytest.param(kind, marks=pytest.mark.needs("long")) for kind in ("stored", "background"))]
)
def test_only_streams_that_have_begun_to_speak_fail(
    doomed: PacedUpstream, upstream: Upstream, kind: str, retry_thoughts: bool
) -> None:
    model = upstream.plays(say("Let me see.", "It is 42."))
    with (
        gateway_of(doomed, upstream, model, retry_thoughts=retry_thoughts) as gateway,
        ThreadPoolExecutor(STREAMS) as pool,
    ):

        def ask(number: int) -> Reply:
            return gateway.ask("m", stream=True, input=BEHAVIOURS[number % 3], **KINDS[kind])

        asking = [pool.submit(ask, number) for number in range(STREAMS)]
        doomed.wait_for_calls(STREAMS)
        if kind == "background":  # each has a client that reads its log
            wait_until(lambda: gateway.busy == STREAMS, "all streams are open")
        doomed.kill()
        replies = [future.result(LIMIT_SECONDS) for future in asking]

    ends: Counter[tuple[str, str]] = Counter()
    for number, reply in enumerate(replies):
        assert reply.status == 200, reply.body
        assert verify(reply.body) == []
        *_, last = reply.events
        ends[BEHAVIOURS[number % 3], last["response"]["status"]] += 1
        items = last["response"]["output"]
        text = "".join(item["content"][0]["text"] for item in items if item["type"] == "message")
        thought = "".join(item["content"][0]["text"] for item in items if item["type"] == "reasoning")
        if last["response"]["status"] == "completed":
            assert last["response"]["deployment"]["name"] == f"vllm/{model}"
            assert text == "It is 42. "
            assert thought.endswith("Let me see. ")
        else:
            assert last["type"] == "response.failed"
            assert text.startswith("So. ") or (thought.startswith("Hm. ") and not retry_thoughts)
    for reply in replies[:3]:
        legal_events(reply)
    # What a stream had shown decides, and not what the deployment had sent: a slow gateway may not have read it.
    assert ends["silent", "failed"] == 0
    assert ends["silent", "completed"] == 34
    assert ends["thinks", "failed"] == 0 or not retry_thoughts
    assert ends["speaks", "failed"] > 0
    assert len(upstream.calls(model)) == sum(count for (_, status), count in ends.items() if status == "completed")
