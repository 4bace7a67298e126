"""An agent of any framework as a participant: `async with FunctionInSpace(function, me)`.

    async def function(turn: SpaceTurn) -> AsyncIterator[Step]:
        yield ThinkingPartDelta(content_delta="Auth changes need careful review.")
        answer = await turn.ask("Is there a rollback plan?")
        yield TextPart(content="Do not deploy.")

To a space, an agent is a function that is called with a question and yields what it thinks and says, as it does. What
the space sees of it, and which questions are answered, is the same as of `AgentInSpace`:

* `ThinkingPartDelta`: more of its thinking. Each paragraph becomes a thought.
* `TextPart`: a text begins. `TextPartDelta`: more of it. The last text is the answer; earlier ones become thoughts.
* `ToolCallPart`, `ToolReturnPart`: it calls a tool of its own (a thought), and has the result (an observation).

While it runs, it can ask people (`SpaceTurn.ask`), have a call approved (`approve`), or have it made by a participant
who may (`propose`). Its frameworks' adapters are only the mapping: `langgraph`, `pydantic_ai`.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from typing import Any, TypeAlias

from ...envelopes import kinds, mcp, text_of
from ...envelopes.envelope import Envelope
from ...events import (
    Event,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
)
from ...parts import TextPart, TextPartDelta, ThinkingPart, ThinkingPartDelta, ToolCallPart, ToolReturnPart
from ..agents.bridge import AnsweringParticipant, Narration
from ..client.errors import CallFailed
from ..client.participant import Participant, Thinking

Step: TypeAlias = ThinkingPartDelta | TextPart | TextPartDelta | ToolCallPart | ToolReturnPart
"""What an agent thinks, says and does, in the order in which it does."""


class SpaceTurn:
    """One question to an agent, and what the agent may do in the space while it answers.

    Attributes:
        prompt: The question, after the latest chats of the space.
        question: Its envelope.
    """

    def __init__(
        self,
        participant: FunctionInSpace,
        prompt: str,
        question: Envelope,
        thought: Thinking | None,
        to: tuple[str, ...],
    ) -> None:
        self.prompt = prompt
        self.question = question
        self._participant = participant
        self._thought = thought
        self._to = to
        self._approvals: list[tuple[str, Envelope]] = []
        """Approved calls without a result: the tool, and the request that approved it."""

    async def ask(self, text: str) -> str:
        """Ask people, and wait for the answer: a chat that correlates to the question.

        Agents' chats do not count, unless the agent asked.
        """
        return await self._participant.ask(text, self.question, self._to)

    async def approve(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Propose an own call, and wait until a participant approves it with a request, or rejects it.

        Who approved it gets the result as the response.

        Returns:
            None if it was approved; why not, otherwise.
        """
        decision = await self._participant.request_approval(tool, arguments, self._thought)
        if not isinstance(decision, Envelope):
            return decision.message
        self._approvals.append((tool, decision))
        return None

    async def propose(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Propose a call, and wait until another participant makes it.

        Returns:
            Its result, or the reason why there is none.
        """
        thought = self._thought
        try:
            return await self._participant.participant.proposed_call(
                tool, arguments, to=self._to, context=thought.path if thought else None
            )
        except CallFailed as error:
            return str(error)

    async def respond(self, result: ToolReturnPart | None) -> None:
        """Send the result of an approved call to who approved it; at the end, that there is none."""
        for approved in list(self._approvals):
            tool, request = approved
            if result is None or tool == result.tool_name:
                self._approvals.remove(approved)
                content = mcp.tool_result(result.content) if result is not None else {"content": []}
                await self._participant.participant.respond(request, content)
                if result is not None:
                    return


AgentFunction: TypeAlias = Callable[[SpaceTurn], AsyncGenerator[Step, None]]
"""An agent, as a space sees it."""


class FunctionInSpace(AnsweringParticipant):
    """An agent of any framework, as one participant. Used as `async with`."""

    def __init__(
        self,
        function: AgentFunction,
        me: Participant,
        *,
        answers: Callable[[Envelope], bool] | Collection[str] | None = None,
        hears: int = 20,
        at_once: int = 1,
    ) -> None:
        """Create the participant of an agent.

        Args:
            function: The agent.
            me: The participant.
            answers: Ids of the participants who are answered, or a function that decides about each envelope. None: see
                `AnswerPolicy`.
            hears: How many of the latest chats are passed to the agent with a question.
            at_once: Maximum number of concurrent runs. Further questions wait.
        """
        super().__init__(me, answers=answers, hears=hears, at_once=at_once)
        self._function = function
        self._open_questions: set[str] = set()
        """Ids of its questions to people that have no answer yet."""

    @property
    def participant(self) -> Participant:
        """The participant."""
        return self._me

    async def _run(self, prompt: str, question: Envelope, thought: Thinking | None, to: tuple[str, ...]) -> str:
        narration, turn, is_thinking = Narration(), SpaceTurn(self, prompt, question, thought, to), False
        async with contextlib.aclosing(self._function(turn)) as steps:
            async for step in steps:
                if is_thinking and not isinstance(step, ThinkingPartDelta):
                    await self._narrate(narration.feed(_END_OF_THINKING), thought)
                is_thinking = isinstance(step, ThinkingPartDelta)
                if isinstance(step, TextPart):
                    await self._narrate(narration.flush_text(), thought)
                await self._narrate(narration.feed(_events_of(step)), thought)
                if isinstance(step, ToolReturnPart):
                    await turn.respond(step)
        await self._narrate(narration.feed(_END_OF_THINKING), thought)
        await turn.respond(None)
        return narration.text.strip()

    # --- asking people

    def _on_envelope(self, envelope: Envelope) -> None:
        # An answer to the agent's own question is not a question to the agent.
        if envelope.kind == kinds.CHAT and not self._open_questions.isdisjoint(envelope.correlation_id):
            self._answer_policy.should_answer(envelope, self._me.id)
            return
        super()._on_envelope(envelope)

    async def ask(self, text: str, question: Envelope, to: tuple[str, ...]) -> str:
        """Ask people about a question that is being answered (see `SpaceTurn.ask`)."""
        id = uuid.uuid4().hex

        def is_answer(envelope: Envelope) -> bool:
            if envelope.kind != kinds.CHAT or envelope.sender == self._me.id or id not in envelope.correlation_id:
                return False
            return not self._answer_policy.is_agent(envelope.sender) or envelope.sender == question.sender

        async with self._me.awaiting(is_answer) as answer:
            self._open_questions.add(id)
            try:
                await self._me.send(kinds.CHAT, {"text": text}, to=to, answers=question, id=id)
                return text_of(await answer)
            finally:
                # Discarded in the next iteration of the loop: `_on_envelope` receives the answer in this one.
                asyncio.get_running_loop().call_soon(self._open_questions.discard, id)


_END_OF_THINKING = (PartEndEvent(index=0, part=ThinkingPart(content="")),)


def _events_of(step: Step) -> tuple[Event, ...]:
    """Return a step as the events of a run."""
    match step:
        case ThinkingPartDelta() | TextPartDelta():
            return (PartDeltaEvent(index=0, delta=step),)
        case TextPart():
            return (PartStartEvent(index=0, part=step),)
        case ToolCallPart():
            return (PartStartEvent(index=0, part=step), FunctionToolCallEvent(part=step))
        case ToolReturnPart():
            return (FunctionToolResultEvent(result=step),)
