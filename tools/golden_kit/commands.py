"""The command line: `decode`, `translate`, `config` and `record`."""

from __future__ import annotations

import re
from functools import partial

from .captures import Case
from .fixtures import FIXTURES
from .setting import Cases, Setting


def commands(on: Setting) -> Cases:
    for script in FIXTURES if not on.short else FIXTURES[:3]:
        args = ("--from", script.provider, "--content-type", script.content_type)
        yield f"commands/decode/{script.name}", partial(_command, on, args=("decode", *args), stdin=script.body)
        for to in ("openresponses", "chat_completions", "agui", "ai-sdk", "chat"):
            translate = ("translate", *args, "--to", to, "--check")
            yield f"commands/translate/{script.name}/{to}", partial(_command, on, args=translate, stdin=script.body)
    yield "commands/config check", partial(_command, on, args=("config", "check", "--config", "pellucid.toml"))
    yield "commands/record verify", partial(_verify, on)


def _command(on: Setting, case: Case, args: tuple[str, ...], stdin: bytes = b"") -> None:
    done = on.checkout.run(on.gateway.data, *args, stdin=stdin)
    case.add("status", str(done.returncode))
    case.add("stdout", done.stdout)
    case.add("stderr", done.stderr)


def _verify(on: Setting, case: Case) -> None:
    done = on.checkout.run(on.gateway.data, "record", "verify")
    case.add("status", str(done.returncode))
    case.add("stderr", done.stderr)
    # Which chains have been signed by now is a matter of time, and their order one of random ids.
    times = rb"(signed up to .*|not signed yet)$|(?<=_)[0-9a-f]{32}|\d+ checkpoints?\.$"
    lines = re.sub(times, b"", done.stdout, flags=re.MULTILINE)
    case.add_unordered("stdout", lines.decode().splitlines())
