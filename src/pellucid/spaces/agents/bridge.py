"""An agent in a space: `async with AgentInSpace(agent, me)`.

What is asked of it is a run of its own. The thinking of that run stands in the space as reasoning, as it comes: a
start that correlates to the question, thoughts, a conclusion; the answer is a chat, correlated to the question and to
the start. Tools that others offer are called there too, in the reasoning's context; what this participant may not call
it proposes.

The rules:

* It answers what is addressed to it, and what people say to everybody (`Concerns`). It acts on nothing that is
  replayed, and on nobody's reasoning.
* What is asked of it aside (with `to`) it thinks about and answers aside, among the same.
* Whoever cancels its reasoning, or the question (`chat/cancel`), ends the run. Nothing is answered then.
* A tool of the agent's own that asks for approval (`ApprovalRequired`) is a proposal: whoever requests what it proposes
  agrees, and gets the response; whoever rejects it denies it.

What concerns an agent in a space: which of the things that are said there it is to answer.

* A chat that is addressed to it. But not an agent's answer to what it said itself: two agents would thank each other
  for ever.
* A chat in the main conversation, to everybody, from somebody who is no agent, unless it answers what somebody else
  said.

An agent is whoever was heard reasoning, or answering a request, which people do not. `answers` says otherwise: the ids
of those who are answered, whoever else is there; or a function, which decides alone about all chats of others.

An agent's run, told as thoughts: its events in, what is to be said of them in the space out.

* Each paragraph of its thinking is one thought, said as soon as it is whole.
* Text before a call of a tool is a thought too: the answer is what comes last.
* A call of one of the agent's own tools is a thought, and what came of it an observation. (Calls of others' tools are
  envelopes of their own.)

Text is never cut. Reasoning that cannot be read (sealed, redacted) is not told.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

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
from ...telemetry import log, place_of
from ...tools import DeferredToolRequests, DeferredToolResults, ToolDenied
from ...tools.calling import arguments_of
from ..client.participant import Participant, Thinking
from ..client.refusals import Cancelled, SpaceClosed
from ..client.voice import among
from .borrowed import Borrowed, Offer
from .offers import ToolsInSpace

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


class Told(NamedTuple):
    kind: str
    payload: dict[str, Any]


class Narration:
    """Of one run. `others`: the tools that are not the agent's own."""

    def __init__(self, others: Container[str] = ()) -> None:
        self._others = others
        self._thinking = ""
        self._text = ""

    def feed(self, events: Iterable[Event]) -> Iterator[Told]:
        for event in events:
            match event:
                case PartStartEvent(part=ThinkingPart(content=str(text))):
                    self._thinking += text
                case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                    self._thinking += text
                    if "\n" in text:
                        yield from self._paragraphs()
                case PartEndEvent(part=ThinkingPart()):
                    yield from self._paragraphs(all=True)
                case ResponseStartEvent():
                    self._text = ""
                case PartStartEvent(part=TextPart(content=text)):
                    self._text += text
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    self._text += text
                case PartStartEvent(part=ToolCallPart()):
                    yield from self._aside()
                case FunctionToolCallEvent(part=call) if call.tool_name not in self._others:
                    yield _thought(f"Calling {call.tool_name}({_written(call.args)})")
                case FunctionToolResultEvent(result=result) if result.tool_name not in self._others:
                    yield Told(kinds.OBSERVATION, {"content": _written(result.content), "tool": result.tool_name})
                case _:
                    pass

    def _paragraphs(self, all: bool = False) -> Iterator[Told]:
        *whole, rest = _PARAGRAPH.split(self._thinking)
        self._thinking = "" if all else rest
        for text in [*whole, rest] if all else whole:
            if text.strip():
                yield _thought(text.strip())

    def _aside(self) -> Iterator[Told]:
        text, self._text = self._text.strip(), ""
        if text:
            yield _thought(text)


def first_words(text: str) -> str:
    """The first paragraph."""
    return _PARAGRAPH.split(text.strip(), 1)[0]


def _thought(text: str) -> Told:
    return Told(kinds.THOUGHT, {"message": text})


def _written(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


REMEMBERED = 10_000
"""So many ids of one's own envelopes are known again."""


class Concerns:
    def __init__(self, answers: Callable[[Envelope], bool] | Collection[str] | None = None) -> None:
        self._decides = answers if callable(answers) else None
        self._people = frozenset(answers) if answers is not None and not callable(answers) else None
        self._agents: set[str] = set()
        self._mine: OrderedDict[str, None] = OrderedDict()
        self._asked: OrderedDict[str, str] = OrderedDict()
        """Questions, and who asked."""

    def hear(self, envelope: Envelope, me: str) -> bool:
        """Whether it is to be answered. Is to be given every envelope, in order."""
        if envelope.sender == me:
            _remember(self._mine, envelope.id, None)
            return False
        if envelope.family == "reasoning" or envelope.kind == kinds.RESPONSE:
            self._agents.add(envelope.sender)
            return False
        if envelope.replayed or envelope.kind != kinds.CHAT or not self._is_for(envelope, me):
            return False
        _remember(self._asked, envelope.id, envelope.sender)
        return True

    def may_cancel(self, envelope: Envelope, question: str) -> bool:
        """Whoever asked may take it back."""
        return self._asked.get(question) == envelope.sender

    def _is_for(self, envelope: Envelope, me: str) -> bool:
        if self._decides is not None:
            return self._decides(envelope)
        to_mine = any(id in self._mine for id in envelope.correlation_id)
        if self._people is not None and envelope.sender not in self._people:
            return False
        is_agent = self._people is None and envelope.sender in self._agents
        if me in envelope.to:
            return not (is_agent and to_mine)
        if envelope.to or envelope.context is not None or is_agent:
            return False
        return to_mine or not envelope.correlation_id


def _remember(table: OrderedDict[str, str] | OrderedDict[str, None], id: str, value: str | None) -> None:
    table[id] = value  # type: ignore[assignment]
    if len(table) > REMEMBERED:
        table.popitem(last=False)


DISCOVERY_SECONDS = 2.0
"""How long a run waits for those who were asked for their tools."""

MOST_TURNS = 25
"""How often one run goes on after calls of others' tools."""

MOST_WAITING = 32
"""How many questions may wait. One more is not answered."""


class AgentInSpace:
    """One agent, as one participant."""

    def __init__(
        self,
        agent: Agent[Any],
        me: Participant,
        *,
        answers: Callable[[Envelope], bool] | Collection[str] | None = None,
        tools: bool | Mapping[str, Collection[ToolDefinition]] = True,
        hears: int = 20,
        at_once: int = 1,
        **options: Any,
    ) -> None:
        """`answers`: to whom, or to which envelopes; None: see `Concerns`. `tools`: whether it may use those of others,
        or the ones that it knows of, by participant. `hears`: how many of the last chats it is told with a question.
        `at_once`: how many runs go on together; others wait. `options` are those of `Agent.iter`."""
        self._agent = agent
        self._me = me
        self._concerns = Concerns(answers)
        self._borrowed = Borrowed(me, tools if isinstance(tools, Mapping) else None) if tools is not False else None
        self._said: deque[tuple[str, str]] = deque(maxlen=hears)
        self._some = asyncio.Semaphore(at_once)
        self._options = options
        self._offers = ToolsInSpace(me, but=self._is_agreement)
        """It has no tools for others, and says so when it is asked."""
        self._proposed: set[str] = set()
        """Calls of its own that wait for somebody's word."""
        self._stack = contextlib.AsyncExitStack()
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._aside: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> AgentInSpace:
        self._stack.enter_context(self._me.told(self._hear))
        await self._stack.enter_async_context(self._offers)
        if self._borrowed is not None:
            await self._borrowed.ask()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        tasks = [*self._runs.values(), *self._aside]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until nothing is asked of it any more."""
        while self._runs:
            await asyncio.wait(self._runs.values())

    # --- hearing -------------------------------------------------------------------------------------------------

    def _hear(self, envelope: Envelope) -> None:
        if self._borrowed is not None and (who := self._borrowed.hear(envelope)):
            self._soon(self._borrowed.ask(who))
        if envelope.kind == kinds.CHAT_CANCEL:
            for id in envelope.correlation_id:
                if (run := self._runs.get(id)) is not None and self._concerns.may_cancel(envelope, id):
                    run.cancel()
            return
        if self._concerns.hear(envelope, self._me.id) and len(self._runs) < MOST_WAITING:
            before = tuple(self._said)
            self._runs[envelope.id] = task = asyncio.create_task(self._answer(envelope, before))
            task.add_done_callback(lambda _: self._runs.pop(envelope.id, None))
        if envelope.kind == kinds.CHAT and envelope.context is None and not envelope.to:
            self._said.append((envelope.sender, text_of(envelope)))

    def _soon(self, doing: Any) -> None:
        task = asyncio.ensure_future(_quietly(doing))
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    # --- answering -----------------------------------------------------------------------------------------------

    async def _answer(self, question: Envelope, before: tuple[tuple[str, str], ...]) -> None:
        to = among(question, self._me.id)
        try:
            async with self._some:
                answer, start = await self._think(question, before, to)
            await self._me.say(answer, to=to, answers=[question, start] if start else [question])
        except (Cancelled, SpaceClosed):
            pass
        except PellucidError as error:
            log.warning("an agent in a space could not answer: %s", error.info.code or error.info.kind)
            await self._sorry(question, to, error.info.message)
        except Exception as error:
            log.error("an agent in a space failed: %s", place_of(error))
            await self._sorry(question, to, f"something failed ({type(error).__name__})")

    async def _sorry(self, question: Envelope, to: tuple[str, ...], why: str) -> None:
        with contextlib.suppress(PellucidError):
            await self._me.say(f"I could not answer: {why}", to=to, answers=question)

    async def _think(
        self, question: Envelope, before: tuple[tuple[str, str], ...], to: tuple[str, ...]
    ) -> tuple[str, Envelope | None]:
        """The answer, and the start of what was thought."""
        text = text_of(question)
        prompt = _prompt(self._me.id, question.sender, text, before)
        if not self._me.may(kinds.START, {}, to=to):
            return _text_of((await self._run(prompt, None)).output), None
        goal = first_words(text)
        async with self._me.reasoning(goal=goal or None, triggered_by=question.id, answers=question, to=to) as thought:
            answer = _text_of((await self._run(prompt, thought)).output)
            await thought.conclude(first_words(answer))
        return answer, thought.start

    async def _run(self, prompt: str, thought: Thinking | None) -> AgentRunResult[Any]:
        """The agent's run, over as many turns as others' tools take."""
        tools: dict[str, Offer] = {}
        if self._borrowed is not None:
            await self._borrowed.settle(DISCOVERY_SECONDS)
            tools = self._borrowed.tools(self._agent.tool_names)
        narration = Narration(tools)
        asked: str | None = prompt
        history, results = None, None
        agreed: dict[str, Envelope] = {}
        for _ in range(MOST_TURNS):
            async with self._agent.iter(
                asked,
                message_history=history,
                deferred_tool_results=results,
                external_tools=[offer.definition for offer in tools.values()],
                **self._options,
            ) as run:
                while (batch := await run.read()) is not None:
                    for kind, payload in narration.feed(batch):
                        if thought is not None and self._me.may(kind, payload):
                            await thought.add(kind, payload)
                result = run.result
            await self._respond(agreed, result)
            if not isinstance(result.output, DeferredToolRequests):
                return result
            waits = result.output
            async with asyncio.TaskGroup() as group:
                calls = {c.tool_call_id: group.create_task(self._call(c, tools, thought)) for c in waits.calls}
                words = {c.tool_call_id: group.create_task(self._agree(c, thought)) for c in waits.approvals}
            agreed = {id: word for id, task in words.items() if isinstance(word := task.result(), Envelope)}
            results = DeferredToolResults(
                calls={id: task.result() for id, task in calls.items()},
                approvals={
                    id: word if isinstance(word := task.result(), ToolDenied) else True for id, task in words.items()
                },
            )
            asked, history = None, result.all_messages()
        raise _endless()

    async def _call(self, call: ToolCallPart, tools: Mapping[str, Offer], thought: Thinking | None) -> Any:
        assert self._borrowed is not None
        where, to = (thought.path, thought.to) if thought else (None, ())
        return await self._borrowed.call(tools[call.tool_name], call, where, to)

    async def _agree(self, call: ToolCallPart, thought: Thinking | None) -> Envelope | ToolDenied:
        """Somebody's word about a call of the agent's own: the request that agrees to it, or why not."""
        id = uuid.uuid4().hex

        def is_it(envelope: Envelope) -> bool:
            return envelope.kind in (kinds.REQUEST, kinds.REJECT) and id in envelope.correlation_id

        params = mcp.calling(call.tool_name, arguments_of(call))
        where, to = (thought.path, thought.to) if thought else (None, ())
        async with self._me.awaiting(is_it) as word:
            self._proposed.add(id)
            try:
                await self._me.propose(mcp.CALL, params, to=to, context=where, id=id)
                said = await word
            finally:
                # Whoever else hears of the word hears it in the same breath.
                asyncio.get_running_loop().call_soon(self._proposed.discard, id)
        if said.kind == kinds.REQUEST:
            return said
        reason = said.payload.get("reason")
        return ToolDenied(f"{said.sender} said no{f': {reason}' if isinstance(reason, str) else ''}.")

    def _is_agreement(self, envelope: Envelope) -> bool:
        return not self._proposed.isdisjoint(envelope.correlation_id)

    async def _respond(self, agreed: Mapping[str, Envelope], result: AgentRunResult[Any]) -> None:
        """To those who agreed to calls: what came of them."""
        for message in result.all_messages() if agreed else ():
            for part in message.parts if isinstance(message, ModelRequest) else ():
                if isinstance(part, ToolReturnPart) and (request := agreed.get(part.tool_call_id)) is not None:
                    text = part.content if isinstance(part.content, str) else msgspec.json.encode(part.content).decode()
                    await self._me.respond(request, {"content": [{"type": "text", "text": text}]})


def _prompt(me: str, sender: str, text: str, before: tuple[tuple[str, str], ...]) -> str:
    """The question, with what was said before it."""
    if not before:
        return f"{sender}: {text}"
    lines = "\n".join(f"{name if name != me else f'{name} (you)'}: {words}" for name, words in before)
    return f"Said in the space so far:\n{lines}\n\nNow {sender} says:\n{text}"


def _text_of(output: Any) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output, enc_hook=str).decode()


def _endless() -> PellucidError:
    why = f"it called the tools of others more than {MOST_TURNS} times in a row"
    return PellucidError(ErrorInfo("too_large", why, code="too_many_turns"))


async def _quietly(doing: Any) -> None:
    try:
        await doing
    except PellucidError as error:
        log.debug("nobody could be asked for tools: %s", error.info.code)
