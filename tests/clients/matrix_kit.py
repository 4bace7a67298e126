"""The matrix of clients: its rows, the scripts of the model in each scenario, and the table in `docs/clients.md`.

Each scenario of each client has a model of its own, so that what the model received belongs to one client. The cells of
the table are what was measured; a test compares them with the documented ones. With `PELLUCID_WRITE_CLIENTS=1` in the
environment it writes them instead.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any, NamedTuple

from tests.clients.clients_kit import ANSWER, THOUGHT, calls, says_not_now, thinks
from tests.scripted import Call, Script, Upstream, delta

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
WRITE = "PELLUCID_WRITE_CLIENTS"
SECONDS = 300


class Row(NamedTuple):
    """A client of the matrix."""

    client: str
    """How the table names it."""
    setting: str = "`http://HOST/v1`"
    """What a user sets."""
    scenarios: tuple[str, ...] = ("streamed", "whole", "tools", "next_turn", "error", "cut")


_ROOT = "`http://HOST`"
_AGUI = ("streamed", "tools", "next_turn", "error", "cut")

PYTHON: dict[str, Row] = {
    "openai-python": Row("OpenAI for Python: Responses"),
    "openai-python-chat": Row("OpenAI for Python: Chat Completions"),
    "openai-agents-python": Row("openai-agents for Python"),
    "langchain-responses": Row("LangChain `ChatOpenAI(use_responses_api=True)`"),
    "langchain-chat": Row("LangChain `ChatOpenAI`: Chat Completions"),
    "langchain-anthropic": Row("LangChain `ChatAnthropic`", _ROOT),
    "litellm-responses": Row("litellm `responses`"),
    "litellm-bridge": Row("litellm `completion`, `openai/responses/MODEL`"),
    "litellm-chat": Row("litellm `completion`, `openai/MODEL`"),
    "litellm-messages": Row("litellm `completion`, `anthropic/MODEL`", _ROOT),
    "anthropic-python": Row("Anthropic for Python", _ROOT),
    "pydantic-ai-responses": Row("Pydantic AI `OpenAIResponsesModel`"),
    "pydantic-ai-chat": Row("Pydantic AI `OpenAIChatModel`"),
    "pydantic-ai-messages": Row("Pydantic AI `AnthropicModel`", _ROOT),
}
NODE: dict[str, Row] = {
    "openai-node": Row("OpenAI for Node: Responses"),
    "openai-node-7": Row("OpenAI for Node: Responses"),
    "openai-node-chat": Row("OpenAI for Node: Chat Completions"),
    "openai-agents-node": Row("openai-agents for Node"),
    "langchain-node": Row("LangChain for Node `ChatOpenAI`, `useResponsesApi: true`"),
    "anthropic-node": Row("Anthropic for Node", _ROOT),
    "ai-sdk-6-openai": Row("AI SDK, `@ai-sdk/openai`"),
    "ai-sdk-7-openai": Row("AI SDK, `@ai-sdk/openai`"),
    "ai-sdk-6-open-responses": Row("AI SDK, `@ai-sdk/open-responses`", "`http://HOST/v1/responses`"),
    "ai-sdk-7-open-responses": Row("AI SDK, `@ai-sdk/open-responses`", "`http://HOST/v1/responses`"),
    "ai-sdk-6-openai-compatible": Row("AI SDK, `@ai-sdk/openai-compatible`"),
    "ai-sdk-7-openai-compatible": Row("AI SDK, `@ai-sdk/openai-compatible`"),
    "ai-sdk-6-anthropic": Row("AI SDK, `@ai-sdk/anthropic`"),
    "ai-sdk-7-anthropic": Row("AI SDK, `@ai-sdk/anthropic`"),
    "ag-ui": Row("AG-UI", "`http://HOST/ag-ui`", _AGUI),
    "ag-ui-0.0.45": Row("AG-UI", "`http://HOST/ag-ui`", _AGUI),
    "ag-ui-0.0.39": Row("AG-UI before 0.0.45", "`http://HOST/ag-ui?dialect=thinking`", _AGUI),
}
COPILOTKIT: dict[str, Row] = {
    "copilotkit-1": Row("CopilotKit, runtime of v1", "`http://HOST/ag-ui`", _AGUI),
    "copilotkit-2": Row("CopilotKit, runtime of v2", "`http://HOST/ag-ui`", _AGUI),
}
AGENTS: dict[str, Row] = {
    "codex": Row("Codex CLI"),
    "codex-websocket": Row("Codex CLI, `supports_websockets = true`"),
    "claude-code": Row("Claude Code", _ROOT),
    "qwen-code": Row("Qwen Code"),
    "opencode-openai-compatible": Row("opencode, `@ai-sdk/openai-compatible`"),
    "opencode-openai": Row("opencode, `@ai-sdk/openai`"),
    "opencode-anthropic": Row("opencode, `@ai-sdk/anthropic`"),
}
ROWS: dict[str, Row] = {**PYTHON, **NODE, **COPILOTKIT, **AGENTS}


async def breaks_off(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Let me see. "))
    await call.event(delta(content="It is"))
    call.reset()


SCRIPTS: dict[str, Sequence[Script]] = {
    "streamed": [thinks],
    "whole": [thinks],
    "tools": [calls("Oslo", "First Oslo."), calls("Rome", "Then Rome.", "call_2"), thinks],
    "next_turn": [thinks],
    "error": [says_not_now],
    "cut": [breaks_off],
}


# --- running the clients ----------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """What one client did."""

    versions: dict[str, str]
    values: dict[str, Any]
    """What it showed in each scenario."""


def run_clients(
    command: Sequence[str], models: Mapping[str, Mapping[str, str]], url: str, cwd: Path
) -> dict[str, Measured]:
    """Run clients in one process.

    Args:
        command: The command that runs them, without its argument.
        models: The model of each scenario of each client.
        url: The address of the gateway.
        cwd: The directory in which the command runs.
    """
    # litellm would fetch its prices. The second start is faster than the first one if modules are compiled.
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [*command, json.dumps({"url": url, "models": models})],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    measured: dict[str, Measured] = {}
    for line in done.stdout.splitlines():
        if not line.startswith('{"client"'):
            continue  # a message of a client
        message = json.loads(line)
        if "versions" in message:
            measured[message["client"]] = Measured(message["versions"], {})
        else:
            measured[message["client"]].values[message["scenario"]] = message["value"]
    return measured


def measure(command: Sequence[str], rows: Mapping[str, Row], upstream: Upstream, url: str, cwd: Path) -> dict[str, str]:
    """Run clients in one process; return the line of the table for each.

    Args:
        command: The command that runs them, without its argument.
        rows: The clients.
        upstream: The server of their models.
        url: The gateway's address.
        cwd: The directory in which the command runs.
    """
    models = {
        name: {scenario: upstream.plays(*SCRIPTS[scenario]) for scenario in row.scenarios} for name, row in rows.items()
    }
    measured = run_clients(command, models, url, cwd)
    return {
        name: table_line(row, _cells(measured[name].values, upstream, models[name]), measured[name].versions)
        for name, row in rows.items()
    }


# --- the table --------------------------------------------------------------------------------------------------------

COLUMNS = ("client", "address", "streamed", "whole", "tools", "sent back", "an error", "a cut", "checked with")


def table_line(row: Row, cells: Sequence[str], versions: Mapping[str, str]) -> str:
    """Return the line of a client.

    Args:
        row: The client.
        cells: What it did, by the columns.
        versions: The versions of its packages.
    """
    checked_with = ", ".join(f"{package} {version}" for package, version in versions.items())
    return f"| {' | '.join([row.client, row.setting, *cells, checked_with])} |"


def _cells(values: Mapping[str, Any], upstream: Upstream, models: Mapping[str, str]) -> list[str]:
    return [
        _shown(values.get("streamed")),
        _shown(values.get("whole")),
        _tools(values["tools"], upstream, models["tools"]),
        _sent_back(values, upstream, models),
        _failure(values["error"]),
        _failure(values["cut"]),
    ]


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if value == {"thought": THOUGHT, "text": ANSWER}:
        return "yes"
    return "no" if value == {"thought": "", "text": ANSWER} else f"wrong: {value}"


def messages_of(upstream: Upstream, model: str, role: str) -> list[dict[str, Any]]:
    """Return the messages of this role in the last request that the model received."""
    received = upstream.calls(model)
    return [message for message in received[-1].body["messages"] if message["role"] == role] if received else []


def thoughts_of(upstream: Upstream, model: str) -> list[str | None]:
    """Return the reasoning of each answer in the last request that the model received."""
    answers = messages_of(upstream, model, "assistant")
    return [answer.get("reasoning_content") or answer.get("reasoning") for answer in answers]


def _tools(value: Any, upstream: Upstream, model: str) -> str:
    results = [message["content"] for message in messages_of(upstream, model, "tool")]
    return "yes" if (value, results) == (ANSWER, ["rain in Oslo", "rain in Rome"]) else f"wrong: {value!r}, {results}"


def _sent_back(values: Mapping[str, Any], upstream: Upstream, models: Mapping[str, str]) -> str:
    if values["next_turn"] != ANSWER:
        return f"wrong: {values['next_turn']!r}"
    returned = [thoughts_of(upstream, models[name]) for name in ("tools", "next_turn")]
    if returned == [["First Oslo.", "Then Rome."], [THOUGHT]]:
        return "yes"
    return "no" if not any(any(texts) for texts in returned) else f"wrong: {returned}"


def _failure(value: str) -> str:
    return value if " " in value or value == "nothing" else f"`{value}`"


def documented_lines() -> dict[str, str]:
    """Return the line of each client in the documentation."""
    lines = (line for line in PAGE.read_text().splitlines() if line.startswith("| "))
    _, *table = dropwhile(lambda line: line != f"| {' | '.join(COLUMNS)} |", lines)
    return dict(zip(ROWS, table[: len(ROWS)], strict=True))


def check(lines: Mapping[str, str]) -> None:
    """Compare the lines of these clients with those of the documentation, or write them there."""
    documented = documented_lines()
    if os.environ.get(WRITE):
        text = PAGE.read_text()
        for name, line in lines.items():
            text = text.replace(f"{documented[name]}\n", f"{line}\n", 1)
        PAGE.write_text(text)
    else:
        assert lines == {name: documented[name] for name in lines}
