"""Calls from one replica of a gateway to all others, over the relay.

Each replica is a member of a group, and subscribes to one name. A caller publishes its call to that name, with the
members that it expects to answer. Their answers are entries of a log, which the caller reads and then drops. So an idle
replica renews its membership and does nothing else, and no other request causes a call of the relay.

A process that died without a word stays a member until its membership lapses. Callers do not wait for it for longer
than `ANSWER_SECONDS`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from ..background_tasks import start_task
from ..errors import PellucidError
from ..relay import Listener, Relay
from ..telemetry import error_location, log

ANSWER_SECONDS = 3.0
"""How long a caller waits for the answers. A replica first checks whether it is ready (`readiness.CHECK_SECONDS`)."""

RENEWALS = 3
"""How often a membership is renewed before it lapses."""


_GROUP = "replicas"
_CALLS = "replicas:calls"


class _Call(msgspec.Struct):
    """A call, as it is published."""

    log: str
    """The log for the answers."""
    members: list[str]
    """The replicas that answer. A name belongs to one process, so no later one answers an old call."""
    message: msgspec.Raw


class _Answer(msgspec.Struct):
    replica: str
    message: msgspec.Raw


_call_decoder = msgspec.json.Decoder(_Call)
_answer_decoder = msgspec.json.Decoder(_Answer)


class Replicas:
    """This process among the replicas of its gateway.

    Args:
        relay: What the replicas share.
        name: The name of this process, which no other process ever has.
        answer: Returns the answer to a call of another replica. Calls and answers are JSON.
        lapse_seconds: After how much time a process that does not renew its membership is no member any more.
    """

    def __init__(
        self, relay: Relay, name: str, answer: Callable[[bytes], Awaitable[bytes]], lapse_seconds: float
    ) -> None:
        self.name = name
        self._relay = relay
        self._answer = answer
        self._lapse_seconds = lapse_seconds
        self._listener: Listener | None = None
        self._member_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Join the group, and answer calls from now on."""
        self._member_task = asyncio.create_task(self._stay_member())
        self._listen()

    async def aclose(self) -> None:
        """Leave the group."""
        if self._member_task is not None:
            self._member_task.cancel()
        if self._listener is not None:
            self._listener.close()
        with suppress(PellucidError):
            await self._relay.clear_presence(_GROUP, self.name)

    async def call(self, message: bytes) -> dict[str, bytes | None]:
        """Call all other replicas.

        Returns:
            The answer of each by its name; None: it did not answer in time.

        Raises:
            RelayError: The relay does not reply.
        """
        members = [member for member in await self._relay.list_present(_GROUP) if member != self.name]
        answers: dict[str, bytes | None] = dict.fromkeys(members)
        if not members:
            return answers
        name = f"{_CALLS}:{secrets.token_hex(8)}"
        follower = self._relay.follow(name)
        try:
            call = msgspec.json.encode(_Call(name, members, msgspec.Raw(message)))
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._relay.publish(_CALLS, call)
                while None in answers.values():
                    for entry in await follower.read() or ():
                        answer = _answer_decoder.decode(entry)
                        answers[answer.replica] = bytes(answer.message)
        except TimeoutError:
            pass
        finally:
            follower.close()
            with suppress(PellucidError):
                await self._relay.drop(name, 0)
        return answers

    # --- answering ---------------------------------------------------------------------------------------------

    async def _stay_member(self) -> None:
        while True:
            with suppress(PellucidError):  # it is tried again
                await self._relay.set_presence(_GROUP, self.name, self._lapse_seconds)
            await asyncio.sleep(self._lapse_seconds / RENEWALS)

    def _listen(self) -> None:
        self._listener = listener = self._relay.subscribe(_CALLS)
        listener.start(self._on_calls)
        if listener.is_ready:
            self._on_calls()

    def _on_calls(self) -> None:
        listener = self._listener
        assert listener is not None
        for data in listener.take() or ():
            try:
                call = _call_decoder.decode(data)
            except msgspec.DecodeError as error:
                log.error("a call of a replica of another version: %s", error_location(error))
                continue
            if self.name in call.members:
                start_task(self._send_answer(call), "another replica of the gateway got no answer")

    async def _send_answer(self, call: _Call) -> None:
        answer = _Answer(self.name, msgspec.Raw(await self._answer(bytes(call.message))))
        with suppress(PellucidError):  # the caller does not wait any more
            await self._relay.append(call.log, [msgspec.json.encode(answer)], 0)
