"""Coding agents, as their users run them: each does a task with two commands of the shell, and continues it.

The scripted model thinks before each command and before its answer. Two other models first refuse a request, or break
off in mid-answer: an agent tries again, or says so. `docs/clients.md` has the result (see `matrix_kit`).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.clients.matrix_kit import AGENTS, breaks_off, check, messages_of, table_line, thoughts_of
from tests.node_packages import installed
from tests.scripted import Call, Script, Upstream, delta
from tests.scripted.gateway import Served

SECONDS = 120
pytestmark = [pytest.mark.timeout(4 * SECONDS), pytest.mark.needs("node", "long")]

THOUGHTS = ["First the one. ", "Then the other. ", "Both are done. "]
DONE = "The task is done."
SHELLS = ("Bash", "bash", "exec_command", "run_shell_command")
"""The names of the tool that runs commands."""


async def refuses(call: Call) -> None:
    await call.answer(429, b'{"error": {"message": "slow down", "code": "rate_limit"}}')


def works(first: Script | None = None) -> Script:
    """Return a script that does the task, after another script. Calls without tools ask for a title."""
    pending = [first] if first is not None else []

    async def script(call: Call) -> None:
        tools = {tool["function"]["name"]: tool["function"] for tool in call.body.get("tools", [])}
        shell = next((name for name in SHELLS if name in tools), None)
        if shell is not None and pending:
            await pending.pop()(call)
            return
        step = sum(message["role"] == "tool" for message in call.body["messages"])
        await call.head()
        if shell is None:
            await call.event(delta("stop", content="A title"))
        elif step < 2:
            known = tools[shell]["parameters"]["properties"]
            values = {"command": f"echo step{step}", "cmd": f"echo step{step}", "description": "Echo"}
            arguments = {name: value for name, value in {**values, "is_background": False}.items() if name in known}
            function = {"name": shell, "arguments": json.dumps(arguments)}
            await call.event(delta(reasoning_content=THOUGHTS[step]))
            await call.event(delta("tool_calls", tool_calls=[{"index": 0, "id": f"call_{step}", "function": function}]))
        else:
            await call.event(delta(reasoning_content=THOUGHTS[2]))
            await call.event(delta("stop", content=DONE))
        await call.event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
        await call.event(b"[DONE]")
        await call.end()

    return script


class Place(NamedTuple):
    """Where an agent runs."""

    home: Path
    packages: Path
    url: str

    def run(self, command: list[str], **environment: str) -> str:
        """Run a command in a project of its own; return everything that it prints."""
        project = self.home / "project"
        if not project.is_dir():
            project.mkdir(parents=True)
            subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
        program, *arguments = command
        done = subprocess.run(
            [str(self.packages / program), *arguments],
            cwd=project,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "dumb", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout


Ask = Callable[[str, bool], str]
"""Gives the agent a task for a model, in a new conversation or in the last one; returns what the agent shows."""


def readme_command(client: str, url: str, model: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the options of a client's command in the README."""
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    [row] = re.findall(rf"^\| {client} \| `([^`]+)` \|$", text, re.MULTILINE)
    words = shlex.split(re.sub(r"\bMODEL\b", model, row.replace("http://127.0.0.1:8080", url)))
    count = next(number for number, word in enumerate(words) if not re.match(r"[A-Z_]+=", word))
    return dict(word.split("=", 1) for word in words[:count]), words[count + 1 :]


def run_codex(place: Place, options: list[str], resume: bool) -> str:
    home = place.home / "codex"
    home.mkdir(parents=True, exist_ok=True)
    command = [".bin/codex", "exec", *options, "--json", "--skip-git-repo-check"]
    command += ["--dangerously-bypass-approvals-and-sandbox", *(["resume", "--last"] if resume else []), "Do it."]
    return place.run(command, CODEX_HOME=str(home))


def codex(place: Place) -> Ask:
    return lambda model, resume: run_codex(place, readme_command("Codex", place.url, model)[1], resume)


def configured_codex(place: Place, setting: str) -> Ask:
    """Run Codex with a configuration file, which contains this setting."""
    (place.home / "codex").mkdir(parents=True)
    (place.home / "codex" / "config.toml").write_text(
        'model_provider = "pellucid"\n[model_providers.pellucid]\nname = "Pellucid"\nwire_api = "responses"\n'
        f'base_url = "{place.url}/v1"\n{setting}\n'
    )
    return lambda model, resume: run_codex(place, ["--model", model], resume)


def codex_websocket(place: Place) -> Ask:
    return configured_codex(place, "supports_websockets = true")


def claude_code(place: Place, **environment: str) -> Ask:
    def ask(model: str, resume: bool) -> str:
        variables, options = readme_command("Claude Code", place.url, model)
        command = ["@anthropic-ai/claude-code-linux-x64/claude", *options, "--print", "Do it."]
        command += ["--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
        return place.run(
            [*command, *(["--continue"] if resume else [])],
            **variables,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            IS_SANDBOX="1",
            **environment,
        )

    return ask


def qwen_code(place: Place) -> Ask:
    def ask(model: str, resume: bool) -> str:
        command = [".bin/qwen", "--auth-type", "openai", "--yolo", "--output-format", "stream-json", "--model", model]
        return place.run(
            [*command, *(["--continue"] if resume else []), "Do it."],
            OPENAI_BASE_URL=f"{place.url}/v1",
            OPENAI_API_KEY="any",
        )

    return ask


class OpenCode:
    """opencode as a server, with a provider for each package of the AI SDK; its terminal is a client of that server."""

    PROVIDERS = ("openai-compatible", "openai", "anthropic")

    def __init__(self, place: Place, models: list[str]) -> None:
        options = {"baseURL": f"{place.url}/v1", "apiKey": "any"}
        known = {model: {"reasoning": True} for model in models}
        config = {
            "provider": {
                name: {"npm": f"@ai-sdk/{name}", "options": options, "models": known} for name in self.PROVIDERS
            },
            "permission": "allow",
            "autoupdate": False,
            "share": "disabled",
        }
        (place.home / "project").mkdir(parents=True)
        (place.home / "project" / "opencode.json").write_text(json.dumps(config))
        self._process = subprocess.Popen(
            [str(place.packages / "opencode-linux-x64" / "bin" / "opencode"), "serve", "--port", "0"],
            cwd=place.home / "project",
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(place.home),
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        lines = (line.split() for line in self._process.stdout)
        self._url = next(line[-1] for line in lines if line[-1:] and line[-1].startswith("http://"))

    def __enter__(self) -> OpenCode:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return json.load(response)

    def ask(self, provider: str) -> Ask:
        """Return a function that gives tasks to a model of this provider."""
        session = ""

        def ask(model: str, resume: bool) -> str:
            nonlocal session
            if not resume:
                session = self._call("/session", {})["id"]
            task = {
                "model": {"providerID": provider, "modelID": model},
                "parts": [{"type": "text", "text": "Do it."}],
            }
            self._call(f"/session/{session}/message", task)
            return json.dumps(self._call(f"/session/{session}/message"))

        return ask


# --- the tasks --------------------------------------------------------------------------------------------------------


class Models(NamedTuple):
    """The models of one agent."""

    task: str
    refuses: str
    """It refuses the first request."""
    breaks: str
    """Its first answer breaks off."""


def models_of(upstream: Upstream) -> Models:
    return Models(upstream.plays(works()), upstream.plays(works(refuses)), upstream.plays(works(breaks_off)))


def line_of(name: str, ask: Ask, upstream: Upstream, models: Models, packages: Path, package: str) -> str:
    """Give an agent its tasks, and return its line of the table."""
    refused, broken = (
        "tries again" if DONE in shown else "says so" if sign in shown else f"wrong: {shown[-500:]}"
        for shown, sign in ((ask(models.refuses, False), "429"), (ask(models.breaks, False), "broke off"))
    )
    shown = ask(models.task, False)
    results = len(messages_of(upstream, models.task, "tool"))
    ask(models.task, True)
    # An agent may have further questions after the answer.
    returned = [(thought or "").strip() for thought in thoughts_of(upstream, models.task)][: len(THOUGHTS)]
    cells = [
        "yes" if all(thought.strip() in shown for thought in THOUGHTS) else "no",
        "–",
        "yes" if DONE in shown and results == 2 else f"wrong: {results} results, {shown[-500:]}",
        "yes" if returned == [thought.strip() for thought in THOUGHTS] else f"wrong: {returned}",
        refused,
        broken,
    ]
    version = json.loads((packages / package / "package.json").read_text())["version"]
    return table_line(AGENTS[name], cells, {package: version})


AGENT_MAKERS: dict[str, tuple[Callable[[Place], Ask], str]] = {
    "codex": (codex, "@openai/codex"),
    "codex-websocket": (codex_websocket, "@openai/codex"),
    "claude-code": (claude_code, "@anthropic-ai/claude-code"),
    "qwen-code": (qwen_code, "@qwen-code/qwen-code"),
}


def test_coding_agents(gateway: Served, upstream: Upstream, tmp_path: Path) -> None:
    packages = installed(Path(__file__).parent / "agents") / "node_modules"

    def with_commands(name: str) -> dict[str, str]:
        make, package = AGENT_MAKERS[name]
        ask = make(Place(tmp_path / name, packages, gateway.url))
        return {name: line_of(name, ask, upstream, models_of(upstream), packages, package)}

    def with_opencode() -> dict[str, str]:
        models = {provider: models_of(upstream) for provider in OpenCode.PROVIDERS}
        place = Place(tmp_path / "opencode", packages, gateway.url)
        lines = {}
        with OpenCode(place, [name for known in models.values() for name in known]) as opencode:
            for provider, known in models.items():
                name = f"opencode-{provider}"
                lines[name] = line_of(name, opencode.ask(provider), upstream, known, packages, "opencode-ai")
        return lines

    with ThreadPoolExecutor(2) as pool:
        started = [pool.submit(with_opencode), *(pool.submit(with_commands, name) for name in AGENT_MAKERS)]
        check({name: line for future in started for name, line in future.result().items()})
