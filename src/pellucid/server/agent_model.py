"""Agents under a public name of the gateway.

    create_app(config, more=[AgentModel(agent, "support")])

To a client, an agent is a model that calls functions of the server. Its run is the agent's own (`ServableAgent.start`),
with the stages of any other: it is sealed, metered, stored and shown like the run of a model. So conversations of an
agent are stored, and its background runs continue without their clients.

* The client's functions are offered to the agent. A call of one ends the run; its result comes with the next request.
* The agent has instructions, tools, a choice of tools and a form of output of its own. What a request says about them
  is left out, with a warning. `system_messages` accepts the client's instructions, too.
* A call that waits for an approval, or for a result from elsewhere, ends the run as failed: a client of these protocols
  cannot give one. AG-UI has interrupts, where the server holds the thread.
* With `holds_threads`, AG-UI clients get threads that the server holds (`agui_threads`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractAsyncContextManager
from inspect import isawaitable
from typing import Any, NamedTuple

from msgspec.structs import replace
from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..agent import Agent
from ..agent.run_input import RunInput, keep_connected, with_state
from ..errors import ErrorInfo, RequestError
from ..events import DEFERRED, Event, FunctionToolResultEvent, RunEndEvent, SideEvent
from ..interop.servable import servable
from ..models import ChatModel, ModelStream
from ..parts import ModelMessage, ModelRequest, Origin, SystemPromptPart, ToolReturnPart
from ..runs import Batch, DrivenRun, Stage
from ..settings import ModelCall, ModelSettings
from ..tools import DeferredToolResults
from ..unicode import truncate

API = "agent"

MAX_NAME_CHARACTERS = 256
"""Names of models also come from clients. They are compared, stored, and repeated in responses."""


class AgentClient(NamedTuple):
    """What the run of an agent gets of its client, in addition to the call."""

    scope: Scope
    """The ASGI scope of the request."""
    state: Any = None
    """The client's state (see `with_state`)."""
    results: DeferredToolResults | None = None
    """The answers to the interrupts of the run before. None: the client cannot answer any."""


class AgentModel:
    """An agent as a model of the gateway.

    Args:
        agent: The agent: a `pellucid.Agent`, a `pydantic_ai.Agent`, or any other `ServableAgent`.
        name: Its public name; by default the agent's own, or `agent`.
        deps: The dependencies of each run, or a function that makes them from the request
            (`starlette.requests.HTTPConnection`).
        system_messages: Whether clients may instruct the model.
        holds_threads: Whether the server holds the threads of AG-UI clients. Otherwise they send all messages.

    Raises:
        TypeError: `agent` is not an agent.
        ValueError: The name is too long.
    """

    def __init__(
        self,
        agent: Any,
        name: str | None = None,
        *,
        deps: Any = None,
        system_messages: bool = False,
        holds_threads: bool = False,
    ) -> None:
        self.name: str = name or getattr(agent, "name", None) or "agent"
        if len(self.name) > MAX_NAME_CHARACTERS:
            raise ValueError(f"the name of a model has at most {MAX_NAME_CHARACTERS} characters; give the agent a name")
        self.origin = Origin(API, API, self.name)
        self._agent = servable(agent)
        self._deps = deps
        self.accepts_instructions = system_messages
        self.holds_threads = holds_threads

    @property
    def has_own_interrupts(self) -> bool:
        """Whether the application answers interrupts of its own: the function that makes its dependencies sees them."""
        return callable(self._deps)

    def keep_connected(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager within which the agent's connections are kept between its runs."""
        return keep_connected(self._agent)

    @property
    def model(self) -> ChatModel | None:
        """The model that the agent calls, if that is known before a run."""
        return self._agent.model if isinstance(self._agent, Agent) else None

    async def open(self, call: ModelCall) -> ModelStream:
        """Refuse a call: an agent is not one turn of a model.

        Raises:
            RequestError: Always.
        """
        raise unsupported("model", "is an agent, and this needs a model", self.name)

    def warnings(self, call: ModelCall) -> list[str]:
        """Return one sentence for each thing in a call that the agent decides itself."""
        left_out = {
            "the choice of tools": call.tool_choice.mode != "auto" or call.tool_choice.names,
            "the form of the output": call.output.kind != "text",
            "tools that a provider runs": call.native_tools,
            "instructions of the client": not self.accepts_instructions and _has_instructions(call.messages),
        }
        warnings = [f"an agent decides this itself: {what}" for what, is_there in left_out.items() if is_there]
        if (model := self.model) is not None:
            warnings += model.warnings(ModelCall(call.model, [], call.settings, assumed_settings=call.assumed_settings))
        return warnings

    @property
    def max_tokens(self) -> int | None:
        """The limit of one answer in tokens that the agent's settings have, if that is known."""
        return self._agent.max_tokens if isinstance(self._agent, Agent) else None

    async def start(
        self,
        call: ModelCall,
        client: AgentClient,
        stages: Sequence[Stage],
        *,
        max_tool_calls: int,
        wrap_model: Callable[[ChatModel], ChatModel],
    ) -> DrivenRun:
        """Return a run of the agent that is not opened yet.

        Args:
            call: The conversation, the client's functions and the settings.
            client: What else comes from the client.
            stages: The stages that every batch passes.
            max_tool_calls: Maximum number of calls of the agent's functions.
            wrap_model: Returns what is called in place of the agent's model.

        Raises:
            RequestError: The agent cannot be run with this input.
        """
        messages = call.messages if self.accepts_instructions else without_instructions(call.messages)
        deps = self._deps(HTTPConnection(client.scope)) if callable(self._deps) else self._deps
        if client.results is None:
            stages = [_NoInterruptsStage(), *stages]
        return await self._agent.start(
            RunInput(
                messages=list(messages),
                tools=call.tools,
                results=client.results or DeferredToolResults(),
                deps=with_state(await deps if isawaitable(deps) else deps, client.state),
                settings=ModelSettings(**call.settings),
                stages=stages,
                max_tool_calls=max_tool_calls,
                wrap_model=wrap_model,
            )
        )


class ServerFunctions(Container[str]):
    """The names of the functions that an agent calls, which are known only within a run: all but the client's."""

    def __init__(self, client_tools: Container[str]) -> None:
        self._client_tools = client_tools

    def __contains__(self, name: object) -> bool:
        return name not in self._client_tools


class _NoInterruptsStage(Stage):
    """Stage for a client that cannot answer interrupts: a run that ends with one ends as failed.

    Its call is denied. Without a result, the client would answer the call itself with the next request.
    """

    wants_deltas = False

    def __init__(self) -> None:
        self._error: ErrorInfo | None = None

    def process(self, batch: Batch) -> Batch:
        return Batch(batch.time_ms, [self._replace(event) for event in batch.events])

    def _replace(self, event: Event) -> Event:
        if isinstance(event, SideEvent) and (event.namespace, event.name) == DEFERRED:
            id, name = event.value["tool_call_id"], event.value["tool_name"]
            awaited = "an approval" if event.value["approval"] else "a result from elsewhere"
            self._error = ErrorInfo(
                "unsupported",
                f"the agent's tool {truncate(name)!r} waits for {awaited}, which a client of this protocol cannot "
                "give; use the agent through AG-UI (pellucid.agui)",
                code="interrupt_not_supported",
            )
            denied = ToolReturnPart(name, f"This call waited for {awaited}, and was not made.", id, "denied")
            return FunctionToolResultEvent(denied, f"fco_{secrets.token_hex(16)}")
        if isinstance(event, RunEndEvent) and self._error is not None:
            return replace(event, status="failed", error=self._error, incomplete_reason=None)
        return event


def unsupported(param: str, problem: str, name: str) -> RequestError:
    """Return the error for something that the agent with this name cannot do."""
    return RequestError(f"{param}: {truncate(name)!r} {problem}", kind="unsupported", param=param)


def without_instructions(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return a conversation without its system prompts and instructions."""
    rest: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            parts = [part for part in message.parts if not isinstance(part, SystemPromptPart)]
            if not parts and message.parts:
                continue
            message = replace(message, parts=parts, instructions=None)
        rest.append(message)
    return rest


def _has_instructions(messages: Sequence[ModelMessage]) -> bool:
    return any(
        message.instructions or any(isinstance(part, SystemPromptPart) for part in message.parts)
        for message in messages
        if isinstance(message, ModelRequest)
    )
