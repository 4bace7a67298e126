"""Execution of tools: by an agent, and by a server."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ConfigError, RequestError
from pellucid.parts import Image, RetryPromptPart, ToolCallPart, ToolReturnPart
from pellucid.settings import ToolDefinition
from pellucid.tools import (
    AnyTool,
    ExecutionOptions,
    FailureCounter,
    ModelRetry,
    RunContext,
    ServerToolset,
    Tool,
    ToolFailed,
    call_tools,
    load_tools,
    tools_by_name,
)
from pellucid.tools.execution import MAX_RESULT_BYTES
from tests.waiting import LIMIT_SECONDS, loop_turns

pytestmark = pytest.mark.anyio
CONTEXT: RunContext[None] = RunContext(None, None)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def calls(*names: str) -> list[ToolCallPart]:
    return [ToolCallPart(name, {}, str(index)) for index, name in enumerate(names)]


def fine() -> str:
    return "fine"


def breaks() -> None:
    raise ValueError("hunter2")


def asks_again() -> None:
    raise ModelRetry("Name a city.")


def fails() -> None:
    raise ToolFailed({"reason": "closed"})


def exits() -> None:
    sys.exit("hunter2")


def interrupts() -> None:
    raise KeyboardInterrupt("hunter2")


async def cancels() -> None:
    raise asyncio.CancelledError


async def slow() -> None:
    await asyncio.Event().wait()


def hangs() -> None:
    threading.Event().wait(LIMIT_SECONDS)


def odd() -> object:
    return object()


def picture() -> Image:
    return Image(data="AA==", media_type="image/png")


TOOLS: list[Tool | Callable[..., Any]] = [
    *(fine, breaks, asks_again, fails, exits, interrupts, cancels),
    *(Tool(slow, timeout=0.1), Tool(hangs, timeout=0.1), odd, picture),
]
OUTCOMES: dict[str, tuple[str, Any]] = {
    "fine": ("success", "fine"),
    "breaks": ("failed", "The tool failed (ValueError)."),
    "asks_again": ("failed", "Name a city."),
    "fails": ("failed", {"reason": "closed"}),
    "exits": ("failed", "The tool failed (SystemExit)."),
    "interrupts": ("failed", "The tool failed (KeyboardInterrupt)."),
    "cancels": ("failed", "The tool failed (CancelledError)."),
    "slow": ("failed", "It did not return within 0.1 s."),
    "hangs": ("failed", "It did not return within 0.1 s."),
    "odd": ("failed", "The tool failed (TypeError)."),
    "picture": ("success", [Image(data="AA==", media_type="image/png")]),
}


@pytest.mark.parametrize("parallel", [True, False])
async def test_no_tool_of_a_server_ends_a_run(parallel: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tools = ServerToolset(TOOLS, timeout=LIMIT_SECONDS, parallel=parallel)
    assert tools.names == set(OUTCOMES)
    assert [definition.name for definition in tools.definitions] == list(OUTCOMES)
    results = await tools.call(calls(*OUTCOMES), CONTEXT)
    for index, (result, (name, outcome)) in enumerate(zip(results, OUTCOMES.items(), strict=True)):
        assert isinstance(result, ToolReturnPart)
        assert (result.tool_name, result.tool_call_id, (result.outcome, result.content)) == (name, str(index), outcome)
    assert "hunter2" not in caplog.text
    assert f"the tool breaks failed: ValueError at {__name__}:" in caplog.text


async def test_a_result_of_a_server_is_limited() -> None:
    def text(size: int) -> str:
        return "x" * size

    def rows(size: int) -> list[dict[str, str]]:
        return [{"a": "x" * size}]

    def picture(size: int) -> Image:
        return Image(data="A" * size, media_type="image/png")

    tools = ServerToolset([text, rows, picture])
    for name in tools.names:
        for size, outcome in ((MAX_RESULT_BYTES // 2, "success"), (MAX_RESULT_BYTES + 1, "failed")):
            [result] = await tools.call([ToolCallPart(name, {"size": size}, "1")], CONTEXT)
            assert isinstance(result, ToolReturnPart)
            assert result.outcome == outcome
            assert outcome == "success" or "The result is too large" in str(result.content)


async def test_cancelling_the_run_cancels_its_tools() -> None:
    running: list[None] = []

    async def slow() -> None:
        running.append(None)
        await asyncio.Event().wait()

    for count in (1, 2):
        running.clear()
        task = asyncio.create_task(ServerToolset([slow]).call(calls(*["slow"] * count), CONTEXT))
        while len(running) < count:
            await loop_turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_invalid_calls_are_always_reported_to_the_model() -> None:
    def add(a: int) -> int:
        return a

    wrong = [ToolCallPart("add", args, "1") for args in ('{"a": "x"}', "[]", "{", None, {"b": 1})]
    results = await ServerToolset([add]).call([*wrong, ToolCallPart("nothing", {}, "2")], CONTEXT)
    assert all(isinstance(result, RetryPromptPart) for result in results)


@given(st.lists(st.sampled_from(["fine", "alone", "breaks", "nothing"]), max_size=6), st.booleans())
def test_results_are_in_the_order_of_the_calls(names: list[str], parallel: bool) -> None:
    running: list[str] = []

    async def alone() -> None:
        assert running == []
        running.append("alone")
        await asyncio.sleep(0)
        running.remove("alone")

    async def fine() -> None:
        assert "alone" not in running
        running.append("fine")
        assert parallel or running == ["fine"]
        await asyncio.sleep(0)
        running.remove("fine")

    tools = ServerToolset([Tool(alone, sequential=True), fine, breaks], parallel=parallel)
    results = asyncio.run(tools.call(calls(*names), CONTEXT))
    assert [(result.tool_name, result.tool_call_id) for result in results] == [(n, str(i)) for i, n in enumerate(names)]
    assert all(r.outcome == "success" for r in results if isinstance(r, ToolReturnPart) and r.tool_name != "breaks")


async def test_tools_of_an_agent_raise() -> None:
    tools = tools_by_name([breaks, asks_again, fails, Tool(slow, timeout=0.05)])
    options = ExecutionOptions(max_retries=1, timeout=LIMIT_SECONDS)
    attempts = FailureCounter(lambda message, code, reason: RuntimeError(f"{code}: {message}: {reason}"))
    with pytest.raises(ValueError, match="hunter2"):
        await call_tools(tools, options, calls("breaks"), CONTEXT, attempts)
    [failed] = await call_tools(tools, options, calls("fails"), CONTEXT, attempts)
    assert isinstance(failed, ToolReturnPart)
    assert failed.outcome == "failed"
    for name in ("asks_again", "slow"):
        assert isinstance((await call_tools(tools, options, calls(name), CONTEXT, attempts))[0], RetryPromptPart)
        with pytest.raises(RuntimeError, match=r"retries: .* more than 1 times"):
            await call_tools(tools, options, calls(name), CONTEXT, attempts)


async def test_functions_that_hang_do_not_block_others() -> None:
    release = threading.Event()

    def waits() -> None:
        release.wait()

    tools = ServerToolset([Tool(waits, timeout=0.05), fine], timeout=LIMIT_SECONDS)
    try:
        hung = await tools.call(calls(*["waits"] * 50), CONTEXT)
        assert {result.outcome for result in hung if isinstance(result, ToolReturnPart)} == {"failed"}
        [result] = await tools.call(calls("fine"), CONTEXT)
        assert result.content == "fine"
        # The pool that resolves names is free.
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), LIMIT_SECONDS) == 1
    finally:
        release.set()


async def test_anything_with_the_right_members_is_a_tool() -> None:
    class Echo:
        name = "echo"
        definition = ToolDefinition("echo")
        max_retries = None
        timeout = None
        sequential = False

        def validate(self, arguments: dict[str, Any]) -> Any:
            return arguments

        async def call(self, context: RunContext[Any], arguments: Any) -> Any:
            return {"id": context.tool_call_id, **arguments}

    assert isinstance(Echo(), AnyTool)
    assert isinstance(Tool(fine), AnyTool)
    assert not isinstance(fine, AnyTool)
    [result] = await ServerToolset([Echo()]).call([ToolCallPart("echo", {"a": 1}, "7")], CONTEXT)
    assert result.content == {"id": "7", "a": 1}


def test_two_tools_of_one_name() -> None:
    with pytest.raises(RequestError, match="two tools with the name 'fine'"):
        ServerToolset([fine, Tool(breaks, name="fine")])


# --- registered by name ------------------------------------------------------------------------------------------

MODULE = """
from pellucid import Tool
def weather(city: str) -> str:
    "Say the weather."
    return "rain"
def tide() -> int: return 1
many = [tide, Tool(tide, name="tide_2")]
number = 3
def odd(*names: str): ...
class Class:
    @staticmethod
    def inner() -> int: return 1
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_tools.py").write_text(MODULE)
    (tmp_path / "shop_broken.py").write_text("1 / 0")
    (tmp_path / "shop_needs.py").write_text("import no_such_package")
    info = tmp_path / "shop-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[pellucid.tools]\nshop = shop_tools:many\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("shop_tools", "shop_broken", "shop_needs"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("modules")
async def test_tools_are_found_by_name() -> None:
    tools = load_tools(["shop_tools:weather", "shop", "shop_tools:Class.inner"])
    assert [tool.name for tool in tools] == ["weather", "tide", "tide_2", "inner"]
    assert tools[0].definition.description == "Say the weather."
    [result] = await ServerToolset(tools).call([ToolCallPart("weather", {"city": "Lyon"}, "1")], CONTEXT)
    assert result.content == "rain"


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("shop_tools", r"write `package\.module:function`.*there are: .*shop"),
        ("shop_tools:wether", "has no 'wether'; did you mean 'weather'"),
        ("shop_tools:number", "is a int"),
        ("shop_tools:Class", "is a type"),
        ("shop_tools:odd", r"takes \*names"),
        ("shop_broken:x", "cannot be imported .ZeroDivisionError"),
        ("shop_needs:x", "no module 'no_such_package'; install it"),
        ("no_such_module:x", "no module 'no_such_module'"),
        ("shop_tools:", "write `package"),
        (":x", "write `package"),
        ("", "write `package"),
        ("../etc:x", "write `package"),
    ],
)
def test_an_invalid_entry_is_named_with_a_correction(entry: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        load_tools(["shop_tools:tide", entry, "shop_tools:tide"], key="server.tools")
    first, second = raised.value.mistakes
    assert first.startswith(f"server.tools[1]: {entry!r}: ")
    assert second.startswith("server.tools[2]: 'shop_tools:tide': an earlier tool has the name 'tide'")
