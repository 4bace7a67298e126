"""The supervisor, with a scripted child process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Protocol

import pytest

from pellucid.local.engine import container_memory_bytes, free_memory_bytes, missing_cpu_features
from pellucid.local.model_index import EngineError, FetchError, Model
from pellucid.local.supervisor import Engine, FetchWeights, State
from tests.waiting import LIMIT_SECONDS, eventually

pytestmark = pytest.mark.anyio

UP = 'print(json.dumps({"event": "ready", "port": 4000 + life}), flush=True); sys.stdin.read()'


class Make(Protocol):
    """An engine whose child runs `body`; `life` counts its starts from 1, `spec` is the settings that it got."""

    def __call__(
        self,
        body: str,
        *,
        weights: Path | FetchWeights | None = None,
        threads: int | None = None,
        log: Path | None = None,
        first_pause: float = 0.02,
        longest_pause: float = 30.0,
    ) -> Engine: ...


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(
        body: str,
        *,
        weights: Path | FetchWeights | None = None,
        threads: int | None = None,
        log: Path | None = None,
        first_pause: float = 0.02,
        longest_pause: float = 30.0,
    ) -> Engine:
        script = tmp_path / "child.py"
        script.write_text(
            textwrap.dedent(f"""
            import json, os, pathlib, signal, sys, time
            count = pathlib.Path({str(tmp_path / "lives")!r})
            life = int(count.read_text()) + 1 if count.exists() else 1
            count.write_text(str(life))
            spec = json.loads(sys.stdin.readline())
            """)
            + body
        )
        return Engine(
            Model.from_path(tmp_path / "m.gguf"),
            weights or tmp_path / "m.gguf",
            command=[sys.executable, str(script)],
            threads=threads,
            log=log or tmp_path / "logs" / "engine.log",
            first_pause_seconds=first_pause,
            max_pause_seconds=longest_pause,
            max_attempts=3,
        )

    return make


def state_of(engine: Engine) -> State:
    """Return the state. (A type checker would narrow the attribute itself.)"""
    return engine.state


def pid_of(engine: Engine) -> int:
    assert engine.pid is not None
    return engine.pid


async def test_start_returns_at_once_and_wait_ready_waits(make: Make) -> None:
    engine = make(UP)
    with pytest.raises(EngineError, match="not started"):
        await engine.wait_ready()
    await engine.start()
    assert state_of(engine) == "starting"
    with pytest.raises(EngineError, match=r"starting; call wait_ready"):
        _ = engine.base_url
    await engine.wait_ready(LIMIT_SECONDS)
    assert state_of(engine) == "ready"
    assert engine.base_url == "http://127.0.0.1:4001/v1"
    pid = pid_of(engine)
    await engine.start()
    assert engine.pid == pid
    await engine.stop()
    assert state_of(engine) == "stopped"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_child_gets_its_settings_and_no_process_list_shows_its_key(make: Make, tmp_path: Path) -> None:
    engine = make(f"pathlib.Path({str(tmp_path / 'spec')!r}).write_text(json.dumps([spec, sys.argv])); {UP}", threads=3)
    async with engine:
        await engine.wait_ready(LIMIT_SECONDS)
        spec_text = (tmp_path / "spec").read_text()
        assert '"threads": 3' in spec_text
        assert spec_text.count(engine.api_key) == 1
    assert len(engine.api_key) >= 32


async def test_weights_are_fetched_when_it_starts_and_only_once(make: Make, tmp_path: Path) -> None:
    attempts: list[asyncio.Future[Path]] = []

    async def fetch() -> Path:
        attempts.append(asyncio.get_running_loop().create_future())
        return await attempts[-1]

    body = f"pathlib.Path({str(tmp_path / 'spec')!r}).write_text(spec['path']); {UP}"
    async with make(body, weights=fetch) as engine:
        await eventually(lambda: len(attempts) == 1)
        assert state_of(engine) == "fetching"
        attempts[0].set_exception(FetchError("no source answers"))
        with pytest.raises(FetchError, match="no source answers"):
            await engine.wait_ready(LIMIT_SECONDS)
        assert not (tmp_path / "lives").exists()
        await engine.start()  # it may be tried again
        await eventually(lambda: len(attempts) == 2)
        attempts[1].set_result(tmp_path / "fetched.gguf")
        await engine.wait_ready(LIMIT_SECONDS)
        assert (tmp_path / "spec").read_text() == str(tmp_path / "fetched.gguf")
        await engine.stop()
        await engine.start()
        await engine.wait_ready(LIMIT_SECONDS)
        assert len(attempts) == 2


async def test_after_a_defect_nothing_waits_for_the_engine(make: Make) -> None:
    async def fetch() -> Path:
        raise KeyError("size")

    async with make(UP, weights=fetch) as engine:
        with pytest.raises(EngineError, match="failed to start"):
            await engine.wait_ready(LIMIT_SECONDS)
        assert state_of(engine) == "failed"


async def test_a_child_that_dies_is_restarted(make: Make) -> None:
    async with make(UP) as engine:
        await engine.wait_ready(LIMIT_SECONDS)
        await asyncio.sleep(0.05)  # longer than its first pause: it has served
        os.kill(pid_of(engine), signal.SIGSEGV)
        await asyncio.wait_for(engine.wait_changed(), LIMIT_SECONDS)
        assert state_of(engine) == "restarting"
        assert "signal 11 while it served" in str(engine.error)
        await engine.wait_ready(LIMIT_SECONDS)
        assert engine.base_url == "http://127.0.0.1:4002/v1"
        assert engine.restarts == 1
        assert engine.error is None


async def test_after_several_failed_starts_the_engine_fails(make: Make, tmp_path: Path) -> None:
    async with make("sys.exit(3)") as engine:
        with pytest.raises(EngineError, match=r"exit code 3 while it loaded the model; its log is .*engine\.log"):
            await engine.wait_ready(LIMIT_SECONDS)
        assert state_of(engine) == "failed"
        assert (tmp_path / "lives").read_text() == "3"


async def test_a_death_right_after_loading_counts_as_a_failed_start(make: Make) -> None:
    body = 'print(json.dumps({"event": "ready", "port": 1}), flush=True); sys.exit(1)'
    async with make(body, first_pause=1.0, longest_pause=0.02) as engine:
        await eventually(lambda: engine.state == "failed")
        assert "exit code 1" in str(engine.error)


async def test_an_error_that_a_restart_cannot_fix_fails_at_once(make: Make, tmp_path: Path) -> None:
    body = 'print(json.dumps({"event": "failed", "code": "not_installed", "message": "pip install it"}), flush=True)'
    async with make(body) as engine:
        with pytest.raises(EngineError, match="pip install it") as caught:
            await engine.wait_ready(LIMIT_SECONDS)
        assert caught.value.info.code == "not_installed"
        assert (tmp_path / "lives").read_text() == "1"
        (tmp_path / "child.py").write_text(f"import json, sys; life = 9; sys.stdin.readline(); {UP}")
        await engine.start()  # the cause is cured: it may be started again
        await engine.wait_ready(LIMIT_SECONDS)
        assert engine.error is None


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [("SIGILL", "unsupported_cpu", "instruction"), ("SIGKILL", "out_of_memory", "memory ran out")],
)
async def test_a_signal_is_explained(make: Make, name: str, code: str, says: str) -> None:
    async with make(f"os.kill(os.getpid(), signal.{name}); time.sleep(9)") as engine:
        with pytest.raises(EngineError, match=says) as caught:
            await engine.wait_ready(LIMIT_SECONDS)
        assert caught.value.info.code == code


async def test_the_error_for_a_log_that_cannot_be_written(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with make(UP, log=tmp_path / "file" / "engine.log") as engine:
        with pytest.raises(EngineError, match=r"file/engine\.log cannot be written"):
            await engine.wait_ready(LIMIT_SECONDS)


async def test_a_wait_can_have_a_limit(make: Make) -> None:
    async with make("sys.stdin.read()") as engine:
        with pytest.raises(EngineError, match=r"not ready after 0\.1 seconds") as caught:
            await engine.wait_ready(0.1)
        assert caught.value.info.code == "timeout"


async def test_a_child_that_does_not_exit_is_killed(make: Make) -> None:
    async with make(UP.replace("sys.stdin.read()", "time.sleep(3600)")) as engine:
        await engine.wait_ready(LIMIT_SECONDS)
        pid = pid_of(engine)
        await asyncio.wait_for(engine.stop(), LIMIT_SECONDS)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_missing_cpu_features_are_named() -> None:
    assert missing_cpu_features("flags\t\t: fpu avx avx2 fma f16c bmi2\n") == []
    assert missing_cpu_features("flags\t\t: fpu avx\n") == ["avx2", "fma", "f16c", "bmi2"]
    assert missing_cpu_features("Features\t: asimd\n") == []


def test_free_memory_is_read(tmp_path: Path) -> None:
    assert free_memory_bytes("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2 << 20
    assert free_memory_bytes("") is None
    assert container_memory_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 400\n")
    assert container_memory_bytes(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert container_memory_bytes(tmp_path) is None
