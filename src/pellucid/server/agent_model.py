"""Agents under a public name of the gateway.

    create_app(config, more=[AgentModel(agent, "support")])

To a client, an agent is a model that calls functions of the server. Its run is the agent's own (`ServableAgent.start`),
with the stages of any other: it is sealed, metered, stored and shown like the run of a model. So conversations of an
agent are stored, and its background runs continue without their clients.

* The client's functions are offered to the agent. A call of one ends the run; its result comes with the next request.
* The agent has instructions, tools, a choice of tools and a form of output of its own. What a request says about them
  is left out, with a warning. `system_messages` accepts the client's instructions, too.
* A call that waits for an approval ends the run as failed: a client of these protocols cannot give one, and a call
  without a result is one that the client would answer itself. AG-UI has approvals, where the server holds the thread.
* With `holds_threads`, AG-UI clients get threads that the server holds (`agui_threads`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Sequence
from inspect import isawaitable
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import Scope

from ..agent import Agent
from ..agent.run_input import RunInput, with_state
from ..errors import ErrorInfo, RequestError
from ..events import DEFERRED, Event, RunEndEvent, SideEvent
from ..interop.servable import servable
from ..models import ChatModel, ModelStream
from ..parts import ModelMessage, ModelRequest, Origin, SystemPromptPart
from ..runs import Batch, DrivenRun, Stage
from ..settings import ModelCall, ModelSettings
from ..tools import DeferredToolResults
from ..unicode import truncate

API = "agent"


class AgentModel:
    """An agent as a model of the gateway.

    Args:
        agent: The agent: a `pellucid.Agent`, a `pydantic_ai.Agent`, or any other `ServableAgent`.
        name: Its public name; by default the agent's own, or `agent`.
        deps: The dependencies of each run, or a function that makes them from the HTTP request
            (`starlette.requests.Request`).
        system_messages: Whether clients may instruct the model.
        holds_threads: Whether the server holds the threads of AG-UI clients. Otherwise they send all messages.

    Raises:
        TypeError: `agent` is not an agent.
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
        self.origin = Origin(API, API, self.name)
        self._agent = servable(agent)
        self._deps = deps
        self.has_own_interrupts = callable(deps)
        """Whether the application answers interrupts of its own: the function that makes its dependencies sees them."""
        self.accepts_instructions = system_messages
        self.holds_threads = holds_threads
        self._state: Any = None
        self._results: DeferredToolResults | None = None

    async def for_request(self, scope: Scope) -> AgentModel:
        """Return the agent with the dependencies of one request."""
        if not callable(self._deps):
            return self
        made = self._deps(Request(scope))
        model = copy.copy(self)
        model._deps = await made if isawaitable(made) else made
        return model

    def for_thread(self, state: Any, results: DeferredToolResults) -> AgentModel:
        """Return the agent for a run of a client that can answer interrupts.

        Args:
            state: The client's state (see `with_state`).
            results: The answers to the interrupts of the run before.
        """
        model = copy.copy(self)
        model._state, model._results = state, results
        return model

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
        if isinstance(self._agent, Agent) and (model := self._agent.model) is not None:
            warnings += model.warnings(ModelCall(call.model, [], call.settings, assumed_settings=call.assumed_settings))
        return warnings

    async def start(
        self,
        call: ModelCall,
        stages: Sequence[Stage],
        *,
        max_tool_calls: int | None,
        wrap_model: Callable[[ChatModel], ChatModel],
    ) -> DrivenRun:
        """Return a run of the agent that is not opened yet.

        Args:
            call: The conversation, the client's functions and the settings.
            stages: The stages that every batch passes.
            max_tool_calls: Maximum number of calls of the agent's functions.
            wrap_model: Returns what is called in place of the agent's model.

        Raises:
            RequestError: The agent cannot be run with this input.
        """
        messages = call.messages if self.accepts_instructions else without_instructions(call.messages)
        if self._results is None:
            stages = [_NoApprovalStage(), *stages]
        return await self._agent.start(
            RunInput(
                messages=list(messages),
                tools=call.tools,
                results=self._results or DeferredToolResults(),
                deps=with_state(self._deps, self._state),
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


class _NoApprovalStage(Stage):
    """Stage that ends a run as failed if it ends with a call that waits for an approval."""

    wants_deltas = False

    def __init__(self) -> None:
        self._error: ErrorInfo | None = None

    def process(self, batch: Batch) -> Batch:
        return Batch(batch.time_ms, [self._replace(event) for event in batch.events])

    def _replace(self, event: Event) -> Event:
        if isinstance(event, SideEvent) and (event.namespace, event.name) == DEFERRED and event.value["approval"]:
            self._error = ErrorInfo(
                "unsupported",
                f"the agent's tool {truncate(event.value['tool_name'])!r} waits for an approval, which a client of "
                "this protocol cannot give; use the agent through AG-UI (pellucid.agui)",
                code="approval_not_supported",
            )
        elif isinstance(event, RunEndEvent) and self._error is not None:
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
