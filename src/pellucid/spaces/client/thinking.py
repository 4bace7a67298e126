"""A context of reasoning, as the one who reasons holds it.

    async with me.reasoning("Checking security …", answers=question) as thought:
        await thought("Auth changes need careful review.")
        found = await thought.call("security_scan", {"path": "auth/"})
        await thought.observation("Tokens may not expire", severity="high")
        async with thought.reasoning("A closer look at the tokens") as closer:
            …
        await thought.conclude("The risk is too high", confidence=0.9)

It opens with the block and ends with it: concluded, with or without words; cancelled, if the block raises. When
somebody else ends it, `Cancelled` is raised inside, wherever the block waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...envelopes import context as paths
from ...envelopes import kinds
from ...envelopes.envelope import Envelope
from .refusals import Cancelled

if TYPE_CHECKING:
    from .participant import Participant
    from .whom import Answers, To

LAST_WORD_SECONDS = 5.0
"""How long a block that raised waits for its cancel to be stored."""


class Thinking:
    """One context. Made by `Participant.reasoning`, or `reasoning` of another one, which nests it."""

    def __init__(
        self, me: Participant, payload: dict[str, Any], *, answers: Answers, to: tuple[str, ...], parent: str | None
    ) -> None:
        self._me = me
        self._payload = payload
        self._answers = answers
        self._to = to
        self._parent = parent
        self._start: Envelope | None = None
        self._ended = False
        """By us."""
        self._cancelled: Cancelled | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._stack = contextlib.ExitStack()

    @property
    def start(self) -> Envelope:
        """What opened it: answers correlate to it."""
        if self._start is None:
            raise RuntimeError("this reasoning has not begun: use it in `async with`")
        return self._start

    @property
    def path(self) -> str:
        """The context in which everything of it stands."""
        return paths.child(self._parent, self.start.id)

    # --- its life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Thinking:
        self._start = await self._me.send(
            kinds.START, self._payload, to=self._to, answers=self._answers, context=self._parent
        )
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._stack.enter_context(self._me.told(self._hear))
        return self

    async def __aexit__(
        self, type_: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._cancelled is not None:
            assert self._task is not None
            left = self._task.uncancel()
            if left <= self._cancelling and (error is None or isinstance(error, asyncio.CancelledError)):
                raise self._cancelled from error
            return
        if self._ended:
            return
        if error is None:
            await self._say(kinds.CONCLUSION, {})
            return
        why = "stopped" if isinstance(error, asyncio.CancelledError) else f"failed ({type(error).__name__})"
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await self._say(kinds.CANCEL, {"reason": why})

    def _hear(self, envelope: Envelope) -> None:
        """Whether somebody ends it."""
        if envelope.kind not in (kinds.CANCEL, kinds.CONCLUSION) or self._cancelled or self._ended:
            return
        if envelope.sender == self._me.id or not self._is_meant(envelope.context):
            return
        reason = envelope.payload.get("reason")
        self._cancelled = Cancelled(self.path, envelope.sender, reason if isinstance(reason, str) else None)
        assert self._task is not None
        self._task.cancel()

    def _is_meant(self, context: str | None) -> bool:
        """It, or one around it: by its path, or by the id of its start."""
        if context is None:
            return False
        return paths.is_within(self.path, context) or context in paths.segments(self.path)

    # --- thinking ------------------------------------------------------------------------------------------------

    async def __call__(self, message: str, *, answers: Answers = (), **more: Any) -> Envelope:
        """A thought. `more`: `confidence`, `uncertainty`, `step` (of a template), `metadata` …"""
        return await self._say(kinds.THOUGHT, {"message": message, **more}, answers)

    async def observation(self, content: str, *, severity: str | None = None, **more: Any) -> Envelope:
        """What was seen. `more`: `components`, `details` …"""
        return await self._say(kinds.OBSERVATION, {"content": content, "severity": severity, **more})

    async def hypothesis(
        self, hypothesis: str, *, confidence: float | None = None, evidence: Any = None, **more: Any
    ) -> Envelope:
        return await self._say(
            kinds.HYPOTHESIS, {"hypothesis": hypothesis, "confidence": confidence, "evidence": evidence, **more}
        )

    async def question(self, *questions: str, **more: Any) -> Envelope:
        return await self._say(kinds.QUESTION, {"questions": list(questions), **more})

    async def conclude(
        self,
        message: str | None = None,
        *,
        decision: str | None = None,
        confidence: float | None = None,
        key_factors: Sequence[str] | None = None,
        recommendation: str | None = None,
        **more: Any,
    ) -> Envelope:
        """End it, with these words. Nothing can be thought in it afterwards."""
        said = {
            "message": message,
            "decision": decision,
            "confidence": confidence,
            "key_factors": list(key_factors) if key_factors is not None else None,
            "recommendation": recommendation,
            **more,
        }
        self._ended = True
        return await self._say(kinds.CONCLUSION, said)

    def reasoning(self, message: str | None = None, *, answers: Answers = (), **more: Any) -> Thinking:
        """One inside this one."""
        return self._me.reasoning(message, answers=answers, to=self._to, context=self.path, **more)

    @property
    def to(self) -> tuple[str, ...]:
        """Among whom it is. Empty: everybody."""
        return self._to

    # --- acting, in this context ---------------------------------------------------------------------------------

    async def say(self, text: str, *, answers: Answers = ()) -> Envelope:
        """A word about it that is no thought."""
        return await self._me.say(text, to=self._to, answers=answers, context=self.path)

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, to: To = (), **more: Any
    ) -> Envelope:
        """`Participant.request`."""
        return await self._me.request(method, params, to=to, context=self.path, **more)

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, *, to: To = (), **more: Any) -> Any:
        """`Participant.call`."""
        return await self._me.call(tool, arguments, to=to, context=self.path, **more)

    async def propose(self, tool: str, arguments: Mapping[str, Any] | None = None, *, to: To = ()) -> Any:
        """`Participant.proposed_call`."""
        return await self._me.proposed_call(tool, arguments, to=to, context=self.path)

    async def add(self, kind: str, payload: Mapping[str, Any], *, answers: Answers = ()) -> Envelope:
        """Anything else that stands in it."""
        return await self._say(kind, payload, answers)

    async def _say(self, kind: str, payload: Mapping[str, Any], answers: Answers = ()) -> Envelope:
        said = {name: value for name, value in payload.items() if value is not None}
        return await self._me.send(kind, said, to=self._to, answers=answers, context=self.path)
