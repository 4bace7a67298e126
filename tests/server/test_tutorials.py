"""The tutorials work as they are typed, but for the model: a scripted one, at an address of the test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripted import Call, Script, Upstream, delta, say
from tests.scripted.commands import ServeProcess, serve_command_in
from tests.server.test_docs_examples import ROOT, examples
from tests.waiting import LIMIT_SECONDS

DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent


def run(command: str, folder: Path, **environment: str) -> str:
    variables = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **environment}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT_SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def at_port(text: str, serving: ServeProcess) -> str:
    return text.replace("127.0.0.1:8080", f"127.0.0.1:{serving.port}")


def commands(page: str) -> list[str]:
    """Return the blocks of commands, without prompts and comments."""
    blocks = examples(DOCS / page, "console")
    return [re.sub(r"\s+# .*$", "", re.sub(r"^\$ ", "", block, flags=re.M), flags=re.M) for block in blocks]


@pytest.mark.needs("curl")
def test_the_first_stream(upstream: Upstream, tmp_path: Path) -> None:
    model = upstream.plays(*[say(text="It is 7 times 13.")] * 3)
    serve = serve_command_in(tmp_path)
    with serve("--upstream", upstream.url, "--upstream-model", model) as serving:
        *_, stream, _install, hidden = commands("first-stream.md")
        thought, _, answer = run(at_port(stream, serving), tmp_path).partition("response.output_item.done")
        assert "event: response.reasoning.delta" in thought
        assert "event: response.output_text.delta" in answer
        (tmp_path / "first.py").write_text(at_port(examples(DOCS / "first-stream.md", "python")[0], serving))
        assert run("python first.py", tmp_path).split("\n")[:3] == ["reasoning", "message", "It is 7 times 13. "]
        answer = run(at_port(hidden, serving), tmp_path)
        assert "It is 7 times 13." in answer
        assert "Let me see" not in answer


def calls(name: str, arguments: str) -> Script:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="I should look. "))
        function = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
        await call.event(delta(tool_calls=[function]))
        await call.event(delta("tool_calls"))
        await call.event(b"[DONE]")
        await call.end()

    return script


def test_the_first_agent(upstream: Upstream, tmp_path: Path) -> None:
    turns = [calls("divisors", '{"number": 91}'), calls("final_result", '{"is_prime": false, "because": "7 * 13"}')]
    model = upstream.plays(*turns, *turns)
    [source] = examples(DOCS / "first-agent.md", "python")
    name = '"local:qwen2.5-coder-1.5b"'
    assert name in source
    scripted = f'OpenAIChatModel("{model}", profile="vllm", base_url="{upstream.url}")'
    importing = "from pellucid.models.openai import OpenAIChatModel\n"
    (tmp_path / "agent.py").write_text(importing + source.replace(name, scripted))
    output = run("python agent.py", tmp_path)
    assert output.startswith("I should look. I should look. ")
    assert "Verdict(is_prime=False, because='7 * 13')" in output


def test_the_first_space(upstream: Upstream, tmp_path: Path) -> None:
    serve = serve_command_in(tmp_path)
    with serve("--upstream", upstream.url, "--upstream-model", "m") as serving:
        create, watch, speak = commands("first-space.md")
        tokens = dict(re.findall(r"^(\w+)\t(pst_\S+)$", run(create, tmp_path), re.MULTILINE))
        variables = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        watch = at_port(watch, serving).replace("pst_…", tokens["bob"]).replace("pellucid space", "exec pellucid space")
        tail = subprocess.Popen(["bash", "-c", watch], cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True)
        try:
            assert tail.stdout is not None
            lines = iter(tail.stdout)
            assert any("bob joined" in line for line in lines)
            (tmp_path / "alice.py").write_text(examples(DOCS / "first-space.md", "python")[0])
            run(at_port(speak, serving).replace("pst_…", tokens["alice"]), tmp_path)
            seen = []
            for line in lines:
                seen.append(line)
                if "alice left" in line:
                    break
        finally:
            tail.kill()
            tail.communicate()
    shown = "".join(seen)
    expected = ["Looking at the change", "It touches how long tokens live.", "Not yet.", "Do not deploy"]
    places = [shown.find(text) for text in expected]
    assert -1 not in places
    assert places == sorted(places), "the thought comes before the message"
