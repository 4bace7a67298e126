"""`pellucid ask` at a terminal: thinking is dim, the answer is plain, and no escape sequence of the model is
written."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.cli.main import main
from tests.scripted import Call, Upstream, delta, say
from tests.scripted.commands import PELLUCID
from tests.waiting import LIMIT_SECONDS


def ask_arguments(upstream: Upstream, model: str) -> list[str]:
    return ["ask", "Why?", "--provider", "vllm", "--upstream", upstream.url, "--upstream-model", model]


def terminal_environment() -> dict[str, str]:
    """Return the environment of a terminal with colours."""
    env = {**os.environ, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "FORCE_COLOR", "CI"):
        env.pop(name, None)
    return env


def start(upstream: Upstream, model: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start `pellucid ask` on a pseudo-terminal; return the process and the other end of the terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PELLUCID, *ask_arguments(upstream, model)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=terminal_environment(),
        start_new_session=True,
        # Restore ctrl-C: tests that run in the background may inherit that it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    return process, ours


def terminal_output(upstream: Upstream, model: str, patch: pytest.MonkeyPatch) -> bytes:
    """Return what the terminal shows of a whole answer, which fits into its buffer."""
    ours, theirs = pty.openpty()
    with patch.context() as terminal, open(theirs, "w") as output:
        for name in os.environ.keys() - terminal_environment().keys():
            terminal.delenv(name)
        terminal.setenv("TERM", terminal_environment()["TERM"])
        terminal.setattr(sys, "stdout", output)
        terminal.setattr(sys, "stderr", output)
        with pytest.raises(SystemExit) as ended:
            main.main(ask_arguments(upstream, model), prog_name="pellucid")
    assert ended.value.code == 0
    shown = read(ours)
    os.close(ours)
    return shown


def read(terminal: int, until: bytes = b"") -> bytes:
    """Return what the terminal shows until this text, or to the end."""
    shown = b""
    while not until or until not in shown:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # Linux reports a closed other end as an error
            break
        if not piece:
            break
        shown += piece
    return shown


def test_thinking_is_dim_and_the_answer_plain(process_state: pytest.MonkeyPatch, upstream: Upstream) -> None:
    shown = terminal_output(upstream, upstream.plays(say("Hmm.", "Forty-two.")), process_state)
    assert b"\x1b[2mHmm. \x1b[0m" in shown
    assert b"\nForty-two. \r\n" in shown
    assert shown.index(b"Hmm.") < shown.index(b"Forty-two.")


def test_escape_sequences_of_a_model_are_removed(process_state: pytest.MonkeyPatch, upstream: Upstream) -> None:
    """Titles, the clipboard and colours cannot be changed: only visible text is written."""
    model = upstream.plays(say("\x1b]0;pwned\x07Hm", "\x1b[31mred\x9b2J\x08\u202e\u2066"))
    shown = terminal_output(upstream, model, process_state)
    assert b"]0;pwnedHm" in shown
    assert b"\n[31mred2J" in shown
    assert "\u202e".encode() not in shown
    assert "\u2066".encode() not in shown


def test_ctrl_c_ends_ask_and_closes_the_upstream_connection(upstream: Upstream, tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hmm."))
        await call.wait_for_disconnect()

    model = upstream.plays(script)
    process, terminal = start(upstream, model, tmp_path)
    shown = read(terminal, until=b"Hmm.")
    process.send_signal(signal.SIGINT)
    shown += read(terminal)
    assert process.wait(LIMIT_SECONDS) == 130
    assert b"Traceback" not in shown
    assert b"Abort" not in shown
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)
    os.close(terminal)
