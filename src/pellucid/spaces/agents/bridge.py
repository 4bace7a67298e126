"""An agent as a participant: `async with AgentInSpace(agent, me)`.

Each question is a run of its own. The thinking of the run appears in the space as reasoning, as it arrives: a start
that correlates to the question, thoughts, a conclusion. The answer is a chat that correlates to the question and to the
start. Tools of other participants are called in the reasoning's context. What this participant may not call it
proposes.

The rules:

* It answers what is addressed to it, and what people write to everyone (`AnswerPolicy`). It acts on nothing that is
  replayed, and on no other participant's reasoning.
* A question with recipients (`to`) is thought about and answered among the same participants.
* A cancel of its reasoning, or of the question (`chat/cancel`), ends the run. Then there is no answer.
* A tool of the agent's own that needs approval (`ApprovalRequired`) becomes a proposal. A participant who requests what
  it proposes approves it and gets the response. A participant who rejects it denies it.

Which envelopes an agent answers:

* A chat that is addressed to it. But not an agent's answer to its own message, because two agents would thank each
  other for ever.
* A chat to everyone in the main conversation, from a participant who is not an agent, unless it answers another
  participant's message.

A participant counts as an agent after it sent reasoning or answered a request, which people do not do. `answers`
overrides this: the ids of the participants who are answered, independent of the others who are present; or a function
that decides alone about all chats of others.

How a run is narrated:

* Each paragraph of its thinking is one thought, sent when it is complete.
* Text before a tool call is a thought, too: the answer is the last text.
* A call of one of the agent's own tools is a thought, and its result an observation. (Calls of other participants'
  tools are envelopes already.)

Text is never cut. Reasoning that cannot be read (sealed, redacted) is not sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import msgspec

from ...agent import Agent, AgentRunResult
from ...envelopes import kinds, mcp, text_of
from ...envelopes.envelope import Envelope
from ...errors import ErrorInfo, PellucidError
from ...events import (
    Event,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseStartEvent,
)
from ...parts import (
    ModelRequest,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from ...settings import ToolDefinition
from ...telemetry import error_location, log
from ...tools import DeferredToolRequests, DeferredToolResults, ToolDenied
from ...tools.execution import decoded_arguments
from ..client.base_participant import reply_recipients
from ..client.errors import Cancelled, SpaceClosed
from ..client.participant import Participant, Thinking
from .remote_tools import RemoteTool, RemoteTools
from .tool_server import ToolsInSpace

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


class NarratedEnvelope(NamedTuple):
    """Kind and payload of an envelope about a run."""

    kind: str
    payload: dict[str, Any]


class Narration:
    """Converts the events of one run to envelopes.

    Args:
        external_tools: Names of tools that are not the agent's own.
    """

    def __init__(self, external_tools: Container[str] = ()) -> None:
        self._external_tools = external_tools
        self._thinking = ""
        self._text = ""

    def feed(self, events: Iterable[Event]) -> Iterator[NarratedEnvelope]:
        """Yield the envelopes for a batch of events."""
        for event in events:
            match event:
                case PartStartEvent(part=ThinkingPart(content=str(text))):
                    self._thinking += text
                case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                    self._thinking += text
                    if "\n" in text:
                        yield from self._paragraphs()
                case PartEndEvent(part=ThinkingPart()):
                    yield from self._paragraphs(flush=True)
                case ResponseStartEvent():
                    self._text = ""
                case PartStartEvent(part=TextPart(content=text)):
                    self._text += text
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    self._text += text
                case PartStartEvent(part=ToolCallPart()):
                    yield from self.flush_text()
                case FunctionToolCallEvent(part=call) if call.tool_name not in self._external_tools:
                    yield _thought(f"Calling {call.tool_name}({_to_text(call.args)})")
                case FunctionToolResultEvent(result=result) if result.tool_name not in self._external_tools:
                    yield NarratedEnvelope(
                        kinds.OBSERVATION, {"content": _to_text(result.content), "tool": result.tool_name}
                    )
                case _:
                    pass

    def _paragraphs(self, flush: bool = False) -> Iterator[NarratedEnvelope]:
        *whole, rest = _PARAGRAPH.split(self._thinking)
        self._thinking = "" if flush else rest
        for text in [*whole, rest] if flush else whole:
            if text.strip():
                yield _thought(text.strip())

    @property
    def text(self) -> str:
        """The last text, which is the answer at the end of the run."""
        return self._text

    def flush_text(self) -> Iterator[NarratedEnvelope]:
        """Yield the last text as a thought, because it was not the answer."""
        text, self._text = self._text.strip(), ""
        if text:
            yield _thought(text)


def first_paragraph(text: str) -> str:
    """Return the first paragraph of a text."""
    return _PARAGRAPH.split(text.strip(), 1)[0]


def _thought(text: str) -> NarratedEnvelope:
    return NarratedEnvelope(kinds.THOUGHT, {"message": text})


def text_or_json(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _to_text(value: Any) -> str:
    return "" if value is None else text_or_json(value)


MAX_REMEMBERED_IDS = 10_000
"""How many ids of the agent's own envelopes are remembered."""


class AnswerPolicy:
    """Decides which envelopes an agent answers.

    Args:
        answers: Ids of the participants who are answered, or a function that decides. None: the rules above.
    """

    def __init__(self, answers: Callable[[Envelope], bool] | Collection[str] | None = None) -> None:
        self._predicate = answers if callable(answers) else None
        self._answered_senders = frozenset(answers) if answers is not None and not callable(answers) else None
        self._agents: set[str] = set()
        self._own_ids: OrderedDict[str, None] = OrderedDict()
        self._askers: OrderedDict[str, str] = OrderedDict()
        """Questions, with their senders."""

    def should_answer(self, envelope: Envelope, me: str) -> bool:
        """Decide about an envelope. Every envelope has to be passed, in order."""
        if envelope.sender == me:
            _remember(self._own_ids, envelope.id, None)
            return False
        if envelope.family == "reasoning" or envelope.kind == kinds.RESPONSE:
            self._agents.add(envelope.sender)
            return False
        if envelope.replayed or envelope.kind != kinds.CHAT or not self._concerns_me(envelope, me):
            return False
        _remember(self._askers, envelope.id, envelope.sender)
        return True

    def is_agent(self, participant: str) -> bool:
        """Check whether a participant counts as an agent."""
        return participant in self._agents

    def may_cancel(self, envelope: Envelope, question: str) -> bool:
        """Check whether the envelope comes from the sender of the question."""
        return self._askers.get(question) == envelope.sender

    def _concerns_me(self, envelope: Envelope, me: str) -> bool:
        if self._predicate is not None:
            return self._predicate(envelope)
        answers_own = any(id in self._own_ids for id in envelope.correlation_id)
        if self._answered_senders is not None and envelope.sender not in self._answered_senders:
            return False
        is_agent = self._answered_senders is None and envelope.sender in self._agents
        if me in envelope.to:
            return not (is_agent and answers_own)
        if envelope.to or envelope.context is not None or is_agent:
            return False
        return answers_own or not envelope.correlation_id


def _remember(table: OrderedDict[str, str] | OrderedDict[str, None], id: str, value: str | None) -> None:
    table[id] = value  # type: ignore[assignment]
    if len(table) > MAX_REMEMBERED_IDS:
        table.popitem(last=False)


DISCOVERY_SECONDS = 2.0
"""How long a run waits for lists of tools."""

MAX_TURNS = 25
"""How often one run continues after calls of other participants' tools."""

MAX_PENDING_QUESTIONS = 32
"""How many questions may wait. Further ones are not answered."""


class AnsweringParticipant(ABC):
    """A participant that answers: each question is a run, in a context of its own. Used as `async with`.

    What runs is `_run` of a subclass: an `Agent` (`AgentInSpace`), or an agent of another framework (`adapters`).

    Args:
        me: The participant.
        answers: Ids of the participants who are answered, or a function that decides about each envelope. None: see
            `AnswerPolicy`.
        hears: How many of the latest chats are passed to the agent with a question.
        at_once: Maximum number of concurrent runs. Further questions wait.
    """

    def __init__(
        self,
        me: Participant,
        *,
        answers: Callable[[Envelope], bool] | Collection[str] | None = None,
        hears: int = 20,
        at_once: int = 1,
    ) -> None:
        self._me = me
        self._answer_policy = AnswerPolicy(answers)
        self._recent_chats: deque[tuple[str, str]] = deque(maxlen=hears)
        self._run_slots = asyncio.Semaphore(at_once)
        self._tool_server = ToolsInSpace(me, ignore=self._is_approval)
        """Offers no tools, and answers requests for lists with an empty list."""
        self._pending_approvals: set[str] = set()
        """Ids of proposals for its own calls that wait for an approval."""
        self._stack = contextlib.AsyncExitStack()
        self._runs: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        self._stack.enter_context(self._me.subscribe(self._on_envelope))
        await self._stack.enter_async_context(self._tool_server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        tasks = [*self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until no question is being answered."""
        while self._runs:
            await asyncio.wait(self._runs.values())

    @abstractmethod
    async def _run(self, prompt: str, question: Envelope, thought: Thinking | None, to: tuple[str, ...]) -> str:
        """Answer a question.

        Args:
            prompt: The question, after the latest chats.
            question: Its envelope.
            thought: The context of the run. None: this participant may not reason.
            to: The recipients of what is said about it. Empty: everyone.
        """

    # --- receiving -----------------------------------------------------------------------------------------------

    def _on_envelope(self, envelope: Envelope) -> None:
        if envelope.kind == kinds.CHAT_CANCEL:
            for id in envelope.correlation_id:
                if (run := self._runs.get(id)) is not None and self._answer_policy.may_cancel(envelope, id):
                    run.cancel()
            return
        if self._answer_policy.should_answer(envelope, self._me.id) and len(self._runs) < MAX_PENDING_QUESTIONS:
            before = tuple(self._recent_chats)
            self._runs[envelope.id] = task = asyncio.create_task(self._answer(envelope, before))
            task.add_done_callback(lambda _: self._runs.pop(envelope.id, None))
        if envelope.kind == kinds.CHAT and envelope.context is None and not envelope.to:
            self._recent_chats.append((envelope.sender, text_of(envelope)))

    # --- answering -----------------------------------------------------------------------------------------------

    async def _answer(self, question: Envelope, before: tuple[tuple[str, str], ...]) -> None:
        to = reply_recipients(question, self._me.id)
        try:
            async with self._run_slots:
                answer, start = await self._think(question, before, to)
            await self._me.say(answer, to=to, answers=[question, start] if start else [question])
        except (Cancelled, SpaceClosed):
            pass
        except PellucidError as error:
            log.warning("an agent in a space could not answer: %s", error.info.code or error.info.kind)
            await self._send_failure(question, to, error.info.message)
        except Exception as error:
            log.error("an agent in a space failed: %s", error_location(error))
            await self._send_failure(question, to, f"something failed ({type(error).__name__})")

    async def _send_failure(self, question: Envelope, to: tuple[str, ...], reason: str) -> None:
        with contextlib.suppress(PellucidError):
            await self._me.say(f"I could not answer: {reason}", to=to, answers=question)

    async def _think(
        self, question: Envelope, before: tuple[tuple[str, str], ...], to: tuple[str, ...]
    ) -> tuple[str, Envelope | None]:
        """Run the agent for a question.

        Returns:
            The answer, and the start of the reasoning.
        """
        text = text_of(question)
        prompt = _prompt(self._me.id, question.sender, text, before)
        if not self._me.may(kinds.START, {}, to=to):
            return await self._run(prompt, question, None, to), None
        goal = first_paragraph(text)
        async with self._me.reasoning(goal=goal or None, triggered_by=question.id, answers=question, to=to) as thought:
            answer = await self._run(prompt, question, thought, to)
            await thought.conclude(first_paragraph(answer))
        return answer, thought.start

    async def _narrate(self, envelopes: Iterable[NarratedEnvelope], thought: Thinking | None) -> None:
        for kind, payload in envelopes:
            if thought is not None and self._me.may(kind, payload):
                await thought.add(kind, payload)

    async def request_approval(
        self, tool: str, arguments: Mapping[str, Any], thought: Thinking | None
    ) -> Envelope | ToolDenied:
        """Propose a call of an own tool and wait for the decision.

        Returns:
            The request that approves it, or why it was denied.
        """
        id = uuid.uuid4().hex

        def is_it(envelope: Envelope) -> bool:
            return envelope.kind in (kinds.REQUEST, kinds.REJECT) and id in envelope.correlation_id

        params = mcp.call_params(tool, arguments)
        context, to = (thought.path, thought.to) if thought else (None, ())
        async with self._me.awaiting(is_it) as pending:
            self._pending_approvals.add(id)
            try:
                await self._me.propose(mcp.CALL_TOOL, params, to=to, context=context, id=id)
                decision = await pending
            finally:
                # Discarded in the next iteration of the loop: other callbacks receive the decision in this one.
                asyncio.get_running_loop().call_soon(self._pending_approvals.discard, id)
        if decision.kind == kinds.REQUEST:
            return decision
        reason = decision.payload.get("reason")
        return ToolDenied(f"{decision.sender} rejected the call{f': {reason}' if isinstance(reason, str) else ''}.")

    def _is_approval(self, envelope: Envelope) -> bool:
        return not self._pending_approvals.isdisjoint(envelope.correlation_id)


class AgentInSpace(AnsweringParticipant):
    """One agent, as one participant. Used as `async with`."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        me: Participant,
        *,
        answers: Callable[[Envelope], bool] | Collection[str] | None = None,
        tools: bool | Mapping[str, Collection[ToolDefinition]] = True,
        hears: int = 20,
        at_once: int = 1,
        **options: Any,
    ) -> None:
        """Create the participant of an agent.

        Args:
            agent: The agent.
            me: The participant.
            answers: Ids of the participants who are answered, or a function that decides about each envelope. None: see
                `AnswerPolicy`.
            tools: Whether the agent may use the tools of others; or definitions that do not have to be requested, by
                participant.
            hears: How many of the latest chats are passed to the agent with a question.
            at_once: Maximum number of concurrent runs. Further questions wait.
            options: Options of `Agent.iter`.
        """
        super().__init__(me, answers=answers, hears=hears, at_once=at_once)
        self._agent = agent
        self._remote_tools = (
            RemoteTools(me, tools if isinstance(tools, Mapping) else None) if tools is not False else None
        )
        self._options = options
        self._list_requests: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self._remote_tools is not None:
            await self._remote_tools.request_lists()
        return self

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        for task in self._list_requests:
            task.cancel()
        await asyncio.gather(*self._list_requests, return_exceptions=True)

    def _on_envelope(self, envelope: Envelope) -> None:
        if self._remote_tools is not None and (participants := self._remote_tools.on_envelope(envelope)):
            request = asyncio.create_task(_request_lists(self._remote_tools, participants))
            self._list_requests.add(request)
            request.add_done_callback(self._list_requests.discard)
        super()._on_envelope(envelope)

    async def _run(self, prompt: str, question: Envelope, thought: Thinking | None, to: tuple[str, ...]) -> str:
        return text_or_json((await self._run_agent(prompt, thought)).output)

    async def _run_agent(self, prompt: str, thought: Thinking | None) -> AgentRunResult[Any]:
        """Run the agent, over as many turns as calls of other participants' tools need."""
        tools: dict[str, RemoteTool] = {}
        if self._remote_tools is not None:
            await self._remote_tools.wait_for_lists(DISCOVERY_SECONDS)
            tools = self._remote_tools.tools(self._agent.tool_names)
        narration = Narration(tools)
        next_prompt: str | None = prompt
        history, results = None, None
        approval_requests: dict[str, Envelope] = {}
        for _ in range(MAX_TURNS):
            async with self._agent.iter(
                next_prompt,
                message_history=history,
                deferred_tool_results=results,
                external_tools=[offer.definition for offer in tools.values()],
                **self._options,
            ) as run:
                while (batch := await run.read()) is not None:
                    await self._narrate(narration.feed(batch), thought)
                result = run.result
            await self._respond_to_approvals(approval_requests, result)
            if not isinstance(result.output, DeferredToolRequests):
                return result
            deferred = result.output
            async with asyncio.TaskGroup() as group:
                calls = {
                    c.tool_call_id: group.create_task(self._call_remote(c, tools, thought)) for c in deferred.calls
                }
                approvals = {
                    c.tool_call_id: group.create_task(self.request_approval(c.tool_name, decoded_arguments(c), thought))
                    for c in deferred.approvals
                }
            approval_requests = {
                id: decision for id, task in approvals.items() if isinstance(decision := task.result(), Envelope)
            }
            results = DeferredToolResults(
                calls={id: task.result() for id, task in calls.items()},
                approvals={
                    id: decision if isinstance(decision := task.result(), ToolDenied) else True
                    for id, task in approvals.items()
                },
            )
            next_prompt, history = None, result.all_messages()
        raise _too_many_turns()

    async def _call_remote(self, call: ToolCallPart, tools: Mapping[str, RemoteTool], thought: Thinking | None) -> Any:
        assert self._remote_tools is not None
        context, to = (thought.path, thought.to) if thought else (None, ())
        return await self._remote_tools.call(tools[call.tool_name], call, context, to)

    async def _respond_to_approvals(
        self, approval_requests: Mapping[str, Envelope], result: AgentRunResult[Any]
    ) -> None:
        """Send the results of approved calls to those who approved them."""
        for message in result.all_messages() if approval_requests else ():
            for part in message.parts if isinstance(message, ModelRequest) else ():
                if (
                    isinstance(part, ToolReturnPart)
                    and (request := approval_requests.get(part.tool_call_id)) is not None
                ):
                    await self._me.respond(request, mcp.tool_result(part.content))


def _prompt(me: str, sender: str, text: str, before: tuple[tuple[str, str], ...]) -> str:
    """Build the prompt: the question, after the latest chats."""
    if not before:
        return f"{sender}: {text}"
    lines = "\n".join(f"{name if name != me else f'{name} (you)'}: {words}" for name, words in before)
    return f"Said in the space so far:\n{lines}\n\nNow {sender} says:\n{text}"


def _too_many_turns() -> PellucidError:
    message = f"it called the tools of others more than {MAX_TURNS} times in a row"
    return PellucidError(ErrorInfo("too_large", message, code="too_many_turns"))


async def _request_lists(remote_tools: RemoteTools, participants: Collection[str]) -> None:
    try:
        await remote_tools.request_lists(participants)
    except PellucidError as error:
        log.debug("lists of tools could not be requested: %s", error.info.code)
