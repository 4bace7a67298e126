"""Scripts of the models behind the gateway, for the tests of all clients."""

from __future__ import annotations

import threading

from tests.scripted import Call, Script, delta, say
from tests.waiting import eventually

KEY = "a-key-that-nobody-can-guess-0123456789"
ENV = "PELLUCID_TEST_CLIENTS_KEY"
"""The variable that holds it."""

THOUGHT, ANSWER = "Let me see. ", "It is 42. "
thinks = say("Let me see.", "It is 42.")

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def calls(city: str, thought: str = "Ask the weather.", id: str = "call_1") -> Script:
    """A script that thinks and calls `get_weather`."""

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content=thought))
        function = {"name": "get_weather", "arguments": ""}
        await call.event(delta(tool_calls=[{"index": 0, "id": id, "type": "function", "function": function}]))
        for piece in ('{"city"', f': "{city}"}}'):
            await call.event(delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]))
        await call.event(delta("tool_calls"))
        await call.event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
        await call.event(b"[DONE]")
        await call.end()

    return script


def waits(until: threading.Event) -> Script:
    """Return a script that thinks, and answers when the event is set."""

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Let me "))
        await eventually(until.is_set)
        await call.event(delta(reasoning_content="see. "))
        await call.event(delta(content=ANSWER))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    return script


async def thinks_for_ever(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm. "))
    await call.wait_for_disconnect()


async def says_not_now(call: Call) -> None:
    await call.answer(429, b'{"error": {"message": "slow down", "code": "rate_limit"}}', Retry_After="60")
