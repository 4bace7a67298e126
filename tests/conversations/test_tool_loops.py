"""Three turns with tools at every provider of the table, and two more questions in the same conversation.

Every row of the provider table, and every model family in it, is played by a strict upstream (`strict.hosts`): it
streams its turns in its provider's form, refuses what the real one refuses (`strict`), and counts what of its reasoning
comes back. An agent with two tools asks it: it thinks and calls one; thinks and calls two; thinks and answers. Then the
second question, whose answer is typed (where the model refuses a forced call, it must not be forced), and a third.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pellucid import Agent
from pellucid.models import Model
from pellucid.parts import ModelMessage, ModelRequest, ModelResponse, Origin, ThinkingPart, UserPromptPart
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import EFFORTS, ModelCall, ModelSettings, ToolChoice, ToolDefinition
from pellucid.upstream import UpstreamClient
from tests.cases import Cases
from tests.conversations.conversation_kit import TOOLS
from tests.conversations.strict import ANSWER, CALL, INTERLEAVED, TYPED_ANSWER, StrictServer, Upstream
from tests.conversations.strict.hosts import Host, all_hosts

HOSTS = all_hosts()

THINKING: dict[str, tuple[Any, Any]] = {
    "thinks": ("high", "high"),
    "begins to think": (False, True),
    "stops thinking": (True, False),
    "as the model does": (None, None),
}
"""`thinking` in the first question, and in those after it."""


@dataclass
class Place:
    """Where it is."""

    at: str


def look(at: str) -> str:
    """Look there."""
    return f"seen at {at}"


def weigh(at: str) -> float:
    """Weigh it."""
    return 0.5 + len(at)


class Provider:
    """The server of all hosts, with a client."""

    def __init__(self, server: StrictServer, transport: UpstreamClient) -> None:
        self._server, self._transport = server, transport

    async def converse(self, host: Host, before: Any, after: Any) -> Upstream:
        """Ask three questions with these settings of thinking; return the upstream."""
        upstream = host.kind(host.side, host.row, host.model)
        self._server.upstreams[host.side] = upstream
        upstream.functions = ("look", "weigh")
        model = Model(
            host.model,
            builtin_profiles()[host.row],
            self._transport,
            base_url=f"{self._server.url}/{host.side}",
            api_key="key",
        )
        agent = Agent(model, tools=[look, weigh], instructions="Be exact.")
        upstream.script = [CALL, INTERLEAVED, ANSWER]
        first = await agent.run("Where is it?", model_settings=settings_of(before))
        upstream.script = [CALL, TYPED_ANSWER]
        second = await agent.run(
            "And now?",
            message_history=first.all_messages(),
            output_type=Place,
            model_settings=settings_of(after),
        )
        assert isinstance(second.output, Place)
        upstream.script = [ANSWER]
        third = await agent.run("Sure?", message_history=second.all_messages(), model_settings=settings_of(after))
        check_decoded(upstream, third.all_messages())
        return upstream


def settings_of(thinking: Any) -> ModelSettings:
    """Settings which some models refuse, or know by other names, are among them."""
    settings: ModelSettings = {"max_tokens": 30_000, "temperature": 0.5}
    return settings if thinking is None else {**settings, "thinking": thinking}


def check_decoded(upstream: Upstream, messages: list[Any]) -> None:
    """All reasoning that was streamed was read as reasoning."""
    thoughts = [
        part.content
        for message in messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ThinkingPart)
    ]
    sent = [block.text for answer in upstream.answers for block in answer if block.kind == "think"]
    assert not upstream.shows_thought or all(any(text in thought for thought in thoughts) for text in sent)


def check_returned(upstream: Upstream) -> None:
    """What helps the next turn was in each request, complete, and nothing else."""
    for number, (body, received) in enumerate(zip(upstream.requests, upstream.received, strict=True)):
        came = {(canary.number, canary.kind) for canary in received}
        blocks = [block for answer in upstream.answers[:number] for block in answer]
        expected = upstream.required_canaries(blocks, upstream.thinks(body))
        assert expected <= came, f"request {number} lost {expected - came}"
        assert came <= expected, f"request {number} has {came - expected}"


@pytest.fixture(scope="module")
def converse() -> Iterator[Callable[[Host, Any, Any], Upstream]]:
    server, transport = StrictServer({}), UpstreamClient()
    provider = Provider(server, transport)
    with asyncio.Runner() as runner:
        runner.run(server.start())
        yield lambda host, before, after: runner.run(provider.converse(host, before, after))
        runner.run(transport.aclose())
        runner.run(server.stop())


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("row", HOSTS)
def test_no_request_is_refused_and_no_reasoning_is_lost(
    converse: Callable[[Host, Any, Any], Upstream], row: str
) -> None:
    with Cases() as case:
        for host in HOSTS[row]:
            for name, (before, after) in THINKING.items():
                with case(f"{host.model}, {name}"):
                    upstream = converse(host, before, after)
                    check_returned(upstream)


@pytest.mark.parametrize("row", HOSTS)
def test_no_level_of_thinking_is_refused(row: str) -> None:
    """With and without functions, and with a preference to call one."""
    with Cases() as case:
        for host in HOSTS[row]:
            upstream = host.kind(host.side, host.row, host.model)
            for thinking in (None, True, False, *EFFORTS):
                with case(f"{host.model}, {thinking}"):
                    for tools in (TOOLS, ()):
                        body = request_of(host, settings_of(thinking), tools)
                        thinks = upstream.thinks(body)
                        offences = [limit.offence(body, thinks=thinks) for limit in upstream.limits]
                        assert not any(offences), (offences, body)


def request_of(host: Host, settings: ModelSettings, tools: tuple[ToolDefinition, ...]) -> dict[str, Any]:
    profile = builtin_profiles()[host.row].for_model(host.model)
    question: list[ModelMessage] = [ModelRequest([UserPromptPart("Where is it?")])]
    call = ModelCall(host.model, question, settings, tools, ToolChoice("required", is_preference=True))
    return WIRES[profile.wire].encode(call, profile, Origin(host.row, profile.wire, host.model))
