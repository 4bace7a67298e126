"""`pellucid ask` at a terminal: thinking dim, the answer plain, and nothing that could touch the terminal itself."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

from tests.scripted import Call, Upstream, delta, say
from tests.scripted.commands import PELLUCID


def start(upstream: Upstream, model: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    args = ["ask", "Why?", "--provider", "vllm", "--upstream", upstream.url, "--upstream-model", model]
    env = {**os.environ, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "FORCE_COLOR", "CI"):
        env.pop(name, None)
    process = subprocess.Popen(
        [*PELLUCID, *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=env,
        start_new_session=True,
        # As a terminal's shell starts it. Whoever runs the tests in the background may ignore ctrl-C, and hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    return process, ours


def read(terminal: int, until: bytes = b"") -> bytes:
    """What the terminal shows, until then or to the end."""
    shown = b""
    while not until or until not in shown:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        shown += piece
    return shown


def test_thinking_is_dim_and_the_answer_plain(upstream: Upstream, tmp_path: Path) -> None:
    process, terminal = start(upstream, upstream.plays(say("Hmm.", "Forty-two.")), tmp_path)
    shown = read(terminal)
    assert process.wait(10) == 0
    assert b"\x1b[2mHmm. \x1b[0m" in shown
    assert b"\nForty-two. \r\n" in shown
    assert shown.index(b"Hmm.") < shown.index(b"Forty-two.")
    os.close(terminal)


def test_a_model_cannot_write_to_the_terminal_itself(upstream: Upstream, tmp_path: Path) -> None:
    """No title, no clipboard, no colours: of what it says only the visible is shown."""
    process, terminal = start(upstream, upstream.plays(say("\x1b]0;pwned\x07Hm", "\x1b[31mred\x9b2J\x08")), tmp_path)
    shown = read(terminal)
    assert process.wait(10) == 0
    assert b"]0;pwnedHm" in shown
    assert b"\n[31mred2J" in shown
    os.close(terminal)


def test_ctrl_c_ends_it_quietly_and_leaves_the_upstream(upstream: Upstream, tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hmm."))
        await call.gone()

    model = upstream.plays(script)
    process, terminal = start(upstream, model, tmp_path)
    shown = read(terminal, until=b"Hmm.")
    process.send_signal(signal.SIGINT)
    shown += read(terminal)
    assert process.wait(10) != 0
    assert b"Traceback" not in shown
    assert upstream.calls(model)[0].connection.closed.wait(1)
    os.close(terminal)
