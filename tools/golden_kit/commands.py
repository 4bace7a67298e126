"""The command line: every command with its help, what it prints and its exit status, and what it refuses.

Most invocations run in one process, one after the other, as `python -m pellucid` runs them (`Batch`): a process of its
own for each would take a second each time.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from . import spaces
from .captures import Case
from .fixtures import FIXTURES
from .gateway import KEY_VARIABLE, Checkout
from .setting import Cases, Setting, play_of, record_requests
from .surface import SURFACE

# --- many invocations in one process ------------------------------------------------------------------------------


class Invocation(NamedTuple):
    args: tuple[str, ...]
    stdin: bytes = b""
    variables: Mapping[str, str] = {}


class Done(NamedTuple):
    status: int
    stdout: bytes
    stderr: bytes


_RUNNER = """
import io, json, os, runpy, sys
for line in sys.stdin:
    given = json.loads(line)
    before = dict(os.environ)
    os.environ.update(given["variables"])
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = io.TextIOWrapper(io.BytesIO(bytes.fromhex(given["stdin"])), "utf-8")
    sys.stdout, sys.stderr, sys.argv = out, err, ["pellucid", *given["args"]]
    status = 0
    try:
        runpy.run_module("pellucid", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        status, _ = -1, err.write(f"{type(error).__name__}: {error}")
    sys.stdin, sys.stdout, sys.stderr = streams
    os.environ.clear()
    os.environ.update(before)
    print(json.dumps([status, out.buffer.getvalue().hex(), err.buffer.getvalue().hex()]), flush=True)
"""


class Batch:
    """A process that runs commands of one checkout, each as if it were alone."""

    def __init__(self, checkout: Checkout, data: Path) -> None:
        self._process = subprocess.Popen(
            [checkout.python, "-c", _RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=data,
            env=checkout.environment(data),
            text=True,
        )

    def run(self, invocation: Invocation) -> Done:
        request = {**invocation._asdict(), "stdin": invocation.stdin.hex(), "variables": dict(invocation.variables)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status, out, err = json.loads(self._process.stdout.readline())
        SURFACE.add_command(invocation.args, status)
        return Done(status, bytes.fromhex(out), bytes.fromhex(err))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)


def _record(case: Case, done: Done | subprocess.CompletedProcess[bytes], label: str = "") -> None:
    case.add(f"{label}status", str(done.status if isinstance(done, Done) else done.returncode))
    case.add(f"{label}stdout", _DATE.sub(_days, done.stdout))
    case.add(f"{label}stderr", _DATE.sub(_days, done.stderr))


_DATE = re.compile(rb"\b20\d\d-\d\d-\d\d(?!T)\b")


def _days(match: re.Match[bytes]) -> bytes:
    """A date in a table as days from today; one of another year, as it is."""
    days = (date.fromisoformat(match[0].decode()) - datetime.now(UTC).date()).days
    return b"<%+d days>" % days if abs(days) < 60 else match[0]


# --- the cases ----------------------------------------------------------------------------------------------------


def commands(on: Setting) -> Cases:
    batch = Batch(on.checkout, on.gateway.data)
    try:
        yield from _translations(on, batch)
        yield from _helps(batch)
        yield from _refusals(batch)
        yield from _configurations(on, batch)
        yield from _keys(batch)
        yield from _seal_keys(batch)
        yield from _spaces(on, batch)
        yield from _asking(on, batch)
        yield "commands/models list", partial(_models, batch)
        yield "commands/openapi", partial(_openapi, batch)
        yield "commands/version", partial(_one, batch, Invocation(("--version",)))
        yield "commands/record", partial(_record_commands, batch)
    finally:
        batch.close()
    script = FIXTURES[0]
    args = ("--from", script.provider, "--content-type", script.content_type)
    yield "commands/alone/decode", partial(_alone, on, args=("decode", *args), stdin=script.body)
    yield "commands/alone/refused", partial(_alone, on, args=("decode", "--from", "no such provider"))
    yield "commands/alone/config check", partial(_alone, on, args=("config", "check", "pellucid.toml"))


def _one(batch: Batch, invocation: Invocation, case: Case) -> None:
    _record(case, batch.run(invocation))


def _alone(on: Setting, case: Case, args: tuple[str, ...], stdin: bytes = b"") -> None:
    """A command in a process of its own."""
    done = on.checkout.run(on.gateway.data, *args, stdin=stdin)
    SURFACE.add_command(args, done.returncode)
    _record(case, done)


def _translations(on: Setting, batch: Batch) -> Cases:
    for script in FIXTURES if not on.short else FIXTURES[::4]:
        args = ("--from", script.provider, "--content-type", script.content_type)
        yield f"commands/decode/{script.name}", partial(_one, batch, Invocation(("decode", *args), script.body))
        for to in ("openresponses", "chat_completions", "agui", "ai-sdk", "chat"):
            for how in ("--stream", "--no-stream") if to in ("openresponses", "chat_completions") else ("--stream",):
                translate = Invocation(("translate", *args, "--to", to, how, "--check"), script.body)
                yield f"commands/translate/{script.name}/{to}/{how[2:]}", partial(_one, batch, translate)
    options = [
        *(("agui", "--dialect", dialect) for dialect in ("1.0", "0.x", "thinking", "proposal", "none")),
        ("openresponses", "--dialect", "openai"),
        ("agui", "--chunks"),
        ("agui", "--no-stream"),
    ]
    for more in options:
        of = ("translate", "--from", FIXTURES[0].provider, "--to", *more)
        yield f"commands/translate {' '.join(more)}", partial(_one, batch, Invocation(of, FIXTURES[0].body))


# --- help, and what is refused ------------------------------------------------------------------------------------


def subcommands(text: str) -> list[str]:
    """The names below "Commands:" in a help text."""
    return re.findall(r"^  ([a-z][\w-]*)(?:  .*)?$", text.partition("\nCommands:\n")[2], flags=re.MULTILINE)


def command_tree(help_of: Callable[[tuple[str, ...]], str], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command as its words, found by the help texts; the groups before what is in them."""
    yield path
    for name in subcommands(help_of(path)):
        yield from command_tree(help_of, (*path, name))


def _helps(batch: Batch) -> Cases:
    def helps(case: Case) -> None:
        def help_of(path: tuple[str, ...]) -> str:
            done = batch.run(Invocation((*path, "--help")))
            SURFACE.commands[path] = bool(subcommands(done.stdout.decode()))
            _record(case, done, f"{' '.join(path)}: ")
            return done.stdout.decode()

        for _ in command_tree(help_of):
            pass

    yield "commands/help", helps


_REFUSED: list[tuple[str, ...]] = [
    ("no-such-command",),
    ("--no-such-option",),
    ("decode",),
    ("decode", "--from", "no such provider"),
    ("decode", "--from", "deepseek", "no-such-file"),
    ("decode", "--from", "deepseek", "--content-type", "nonsense"),
    ("decode", "--from", "anthropic", "--content-type", "application/json"),
    ("translate", "--from", "deepseek"),
    ("translate", "--from", "deepseek", "--to", "none"),
    ("ask",),
    ("ask", "--effort", "enormous", "Hi"),
    ("ask", "--config", "no-such-file.toml", "Hi"),
    ("ask", "--provider", "none", "Hi"),
    ("ask", "--provider", "deepseek", "Hi"),
    ("ask", "--model", "no such model", "--config", "pellucid.toml", "Hi"),
    ("serve", "--port", "nonsense"),
    ("serve", "--port", "99999"),
    ("serve", "--workers", "0"),
    ("serve", "--config", "no-such-file.toml"),
    ("serve", "--provider", "none"),
    ("serve", "--upstream", "no address", "--provider", "deepseek"),
    ("serve", "--host", "0.0.0.0", "--config", "pellucid.toml"),
    ("serve", "--workers", "2", "--config", "pellucid.toml"),
    ("keys",),
    ("keys", "create"),
    ("keys", "create", "--owner", "o", "--expires", "soon"),
    ("keys", "create", "--owner", "o", "--rpm", "0"),
    ("keys", "create", "--owner", "", "--view", "raw"),
    ("keys", "create", "--owner", "o", "--view", "all"),
    ("keys", "revoke", "key_none"),
    ("keys", "list", "--store", "nonsense://x"),
    ("seal-keys", "retire"),
    ("space", "create", "one"),
    ("space", "create", "a b", "--participant", "x"),
    ("space", "create", "one", "--participant", "a b"),
    ("space", "create", "one", "--participant", "a={"),
    ("space", "create", "one", "--participant", "a", "--settings", "no-such-file"),
    ("space", "add", "none", "--participant", "a"),
    ("space", "delete", "none", "--yes"),
    ("space", "say", "Hi"),
    ("space", "say", "Hi", "--url", "nonsense", "--token", "pst_x"),
    ("space", "say", "Hi", "--url", "http://127.0.0.1:1/spaces/x", "--token", "pst_x"),
    ("space", "tail", "--last", "-1"),
    ("space", "export", "--format", "none"),
    ("space", "replay", "--since", "yesterday"),
    ("record",),
    ("record", "verify", "no-such-file"),
    ("record", "erase", "nonsense"),
    ("record", "erase", "conversation:none"),
    ("record", "accept", "none"),
    ("config", "check", "--config", "pellucid.toml"),
    ("config", "check", "no-such-file.toml"),
    ("models", "pull", "none"),
    ("openapi", "more"),
]


def _refusals(batch: Batch) -> Cases:
    for args in _REFUSED:
        yield f"commands/refused/{' '.join(args) or 'nothing'}", partial(_one, batch, Invocation(args))


# --- configuration ------------------------------------------------------------------------------------------------

_PROVIDER = '[providers.deepseek]\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "GATEWAY_KEY"\n'
CONFIGURATIONS: dict[str, str] = {
    "nothing": "",
    "whole": _PROVIDER,
    "not TOML": "[server\n",
    "not UTF-8": "\udcff",
    "a key twice": "[server]\nport = 1\nport = 2\n",
    "unknown section": "[nonsense]\n",
    "unknown key": "[server]\nprot = 1\n",
    "several mistakes": '[server]\nport = "x"\nworkers = -1\n[storage]\nstore = 7\n[limits]\nidle = "long"\n',
    "port too large": "[server]\nport = 70000\n",
    "wrong choice": '[server]\nreasoning_events = "mine"\nagui_dialect = "2.0"\n',
    "open to all": f'[server]\nhost = "0.0.0.0"\n{_PROVIDER}',
    "open to all, meant": f'[server]\nhost = "0.0.0.0"\nallow_unauthenticated = true\n{_PROVIDER}',
    "workers without a relay": f"[server]\nworkers = 2\n{_PROVIDER}",
    "unknown default model": f'[server]\ndefault_model = "none"\n{_PROVIDER}',
    "variable that is not set": '[providers.deepseek]\napi_key_env = "NO_SUCH_VARIABLE"\n',
    "unknown profile": '[providers.mine]\nprofile = "none"\nbase_url = "http://127.0.0.1:1"\n',
    "no profile": '[providers.mine]\nbase_url = "http://127.0.0.1:1"\n',
    "wrong address": '[providers.deepseek]\nbase_url = "ftp://x"\napi_key_env = "GATEWAY_KEY"\n',
    "wrong view": f'{_PROVIDER}view = "all"\n',
    "header with a break": f'{_PROVIDER}headers = {{ "X-A" = "a\\nb" }}\n',
    "model without provider": f'{_PROVIDER}[models.m]\nmodel = "x"\n',
    "model of an unknown provider": f'{_PROVIDER}[models.m]\nprovider = "none"\nmodel = "x"\n',
    "unknown setting": f'{_PROVIDER}[models.m]\nprovider = "deepseek"\nmodel = "x"\nsettings = {{ temprature = 1 }}\n',
    "wrong setting": f'{_PROVIDER}[models.m]\nprovider = "deepseek"\nmodel = "x"\nsettings = {{ temperature = "x" }}\n',
    "unknown policy": f'{_PROVIDER}[access]\nkey_env = "GATEWAY_KEY"\nkey_policy = "none"\n',
    "wrong policy": f'{_PROVIDER}[access.policies.p]\nview = "all"\nstreams = 0\nmodels = "x"\n',
    "short key": f'{_PROVIDER}[access]\nkey_env = "LANG"\n',
    "cookies for all origins": f'{_PROVIDER}[access.cors]\norigins = ["*"]\ncredentials = true\n',
    "wrong origin": f'{_PROVIDER}[access.cors]\norigins = ["app.example.com/"]\n',
    "tokens without audience": f'{_PROVIDER}[access.jwt]\nissuer = "https://login.example.com"\n',
    "issuer without https": f'{_PROVIDER}[access.jwt]\nissuer = "http://login.example.com"\naudience = "a"\n',
    "sign-in without tokens": f'{_PROVIDER}[access.oidc]\nclient_id = "x"\n',
    "wrong algorithm": (
        f'{_PROVIDER}[access.jwt]\nissuer = "https://l.example.com"\naudience = "a"\nalgorithms = ["none"]\n'
    ),
    "wrong store": f'{_PROVIDER}[storage]\nurl = "mysql://x/y"\n',
    "wrong retention": f"{_PROVIDER}[storage]\nretention_seconds = 0\n",
    "wrong relay": f'{_PROVIDER}[relay]\nurl = "http://x"\n',
    "no such function": f'{_PROVIDER}[tools]\nfunctions = ["no_such_module:f"]\n',
    "MCP with both": f'{_PROVIDER}[tools.mcp.x]\ncommand = "x"\nurl = "https://x.example"\n',
    "MCP with neither": f"{_PROVIDER}[tools.mcp.x]\ntimeout_seconds = 1\n",
    "no such program": f'{_PROVIDER}[tools.mcp.x]\ncommand = "no-such-program"\n',
    "wrong egress": f'{_PROVIDER}[egress]\nallow = ["10.0.0.0/99"]\n',
    "unknown summary model": f'{_PROVIDER}[summaries]\nmodel = "none at all"\n',
    "space without participants": f"{_PROVIDER}[spaces.x]\n",
    "participant without token": f"{_PROVIDER}[spaces.x.participants.a]\n",
    "no such token file": f'{_PROVIDER}[spaces.x.participants.a]\ntoken_file = "none"\n',
    "wrong space": f'{_PROVIDER}[spaces.x]\nreasoning = "maybe"\nredact = [{{ name = "k", pattern = "(" }}]\n',
    "wrong limits of a space": f"{_PROVIDER}[spaces.x.limits]\nchat = {{ per_second = -1 }}\nseats = 0\n",
    "profile of its own": '[profiles.lab]\nextends = "vllm"\ntags = "mistral"\n'
    '[providers.lab]\nbase_url = "http://127.0.0.1:1/v1"\n',
    "profile that extends nothing": '[profiles.lab]\nextends = "none"\n',
    "profile that extends itself": '[profiles.a]\nextends = "b"\n[profiles.b]\nextends = "a"\n',
    "wrong profile": '[profiles.lab]\nextends = "vllm"\nreplay = "sometimes"\nno_such_key = 1\n',
}


def _configurations(on: Setting, batch: Batch) -> Cases:
    check = ("config", "check")
    yield "commands/config/of the gateway", partial(_one, batch, Invocation(check))

    def checked(case: Case, what: str) -> None:
        text = CONFIGURATIONS[what]
        (on.gateway.data / "checked.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
        _record(case, batch.run(Invocation(("config", "check", "checked.toml"))), "check: ")
        if what in ("several mistakes", "not TOML"):
            _record(case, batch.run(Invocation(("serve", "--config", "checked.toml"))), "serve: ")
            _record(case, batch.run(Invocation(("ask", "--config", "checked.toml", "Hi"))), "ask: ")

    for what in CONFIGURATIONS:
        yield f"commands/config/{what}", partial(checked, what=what)


# --- keys, seal keys, record, models ------------------------------------------------------------------------------


_OTHER_STORE = ("--store", "sqlite:///commands.sqlite")
"""Not the gateway's: a key in that one would have the gateway ask for keys."""


class _Numbered:
    """Names that are random, as numbers in the order in which they appear."""

    _NAMES = re.compile(rb"\b(?:pk|key|pst)_[A-Za-z0-9_-]+|\bseal-[0-9a-f]{10}\b")

    def __init__(self) -> None:
        self._seen: dict[bytes, bytes] = {}

    def __call__(self, done: Done) -> Done:
        return done._replace(stdout=self._of(done.stdout), stderr=self._of(done.stderr))

    def _of(self, text: bytes) -> bytes:
        return self._NAMES.sub(lambda match: self._seen.setdefault(match[0], b"<name %d>" % len(self._seen)), text)


def _keys(batch: Batch) -> Cases:
    def keys(case: Case) -> None:
        numbered = _Numbered()

        def run(*args: str) -> Done:
            done = batch.run(Invocation((*args, *_OTHER_STORE)))
            _record(case, numbered(done), f"{' '.join(args[:2])}: ")
            return done

        run("keys", "list")
        run("keys", "create", "--owner", "acme", "--name", "plain")
        policy = ("--view", "summary", "--no-counts", "--events", "openai", "--no-store", "--retention", "12h")
        limits = ("--rpm", "60", "--tpm", "1000", "--rtpm", "500", "--streams", "2", "--max-body-bytes", "1000")
        most = ("--max-output-tokens", "100", "--model", "a*", "--model", "b", "--tool", "t*", "--expires", "30d")
        made = run("keys", "create", "--owner", "other", "--name", "full", *policy, *limits, *most, "--json")
        run("keys", "list")
        run("keys", "list", "--json", "--owner", "other")
        run("keys", "revoke", json.loads(made.stdout)["id"])
        run("keys", "revoke", json.loads(made.stdout)["id"])
        run("keys", "list", "--json")

    yield "commands/keys", keys


def _seal_keys(batch: Batch) -> Cases:
    def seal_keys(case: Case) -> None:
        numbered = _Numbered()
        home = {"XDG_DATA_HOME": "sealing"}

        def run(*args: str) -> Done:
            done = batch.run(Invocation(("seal-keys", *args), variables=home))
            _record(case, numbered(done), f"{args[0]}: ")
            return done

        run("list")
        run("rotate")
        run("rotate")
        listing = run("list").stdout.decode()
        names = re.findall(r"seal-[0-9a-f]{10}", listing)
        run("retire", names[-1])
        run("retire", names[0])
        run("retire", "none")
        run("list")

    yield "commands/seal-keys", seal_keys


def _models(batch: Batch, case: Case) -> None:
    _record(case, batch.run(Invocation(("models", "list"), variables={"XDG_CACHE_HOME": "cache"})))


def _openapi(batch: Batch, case: Case) -> None:
    done = batch.run(Invocation(("openapi",)))
    document = json.loads(done.stdout)
    case.add("status", str(done.status))
    case.add("document", json.dumps(document, ensure_ascii=False, separators=(",", ":")))
    case.add("it is indented", str(done.stdout.decode() == json.dumps(document, ensure_ascii=False, indent=2) + "\n"))


def _record_commands(batch: Batch, case: Case) -> None:
    def run(*args: str) -> Done:
        return batch.run(Invocation(("record", *args)))

    done = run("verify")
    case.add("status", str(done.status))
    case.add("stderr", done.stderr)
    # Which chains have been signed by now is a matter of time, and their order one of random ids.
    times = rb"(signed up to .*|not signed yet)$|(?<=_)[0-9a-f]{32}|\d+ checkpoints?\.$"
    lines = re.sub(times, b"", done.stdout, flags=re.MULTILINE)
    case.add_unordered("stdout", lines.decode().splitlines())
    exported = run("export", "-o", "export.jsonl")
    _record(case, exported, "export: ")
    verified = run("verify", "export.jsonl")
    case.add("verify the export: status", str(verified.status))
    case.add("verify the export: stderr", verified.stderr)
    case.add("key: status", str(run("key").status))
    _record(case, run("accept", "--all"), "accept: ")
    _record(case, run("erase", "space:strict", "1"), "erase: ")
    _record(case, run("erase", "space:strict", "1"), "erase again: ")
    case.add("verify after it: status", str(run("verify").status))


# --- spaces and questions -----------------------------------------------------------------------------------------


def _spaces(on: Setting, batch: Batch) -> Cases:
    def made(case: Case) -> None:
        numbered = _Numbered()

        def run(*args: str) -> Done:
            done = batch.run(Invocation(("space", *args, *_OTHER_STORE)))
            _record(case, numbered(done), f"{args[0]}: ")
            return done

        run("list")
        run("create", "one", "--participant", "alice=*", "--participant", "bob", "--reasoning", "flag")
        run("create", "two", "--participant", 'a=[{"kind": "chat"}]', "--owner", "acme", "--json")
        run("create", "one", "--participant", "alice")
        run("add", "one", "--participant", "carol=chat,mcp/*", "--json")
        run("add", "one", "--participant", "alice")
        run("list")
        run("list", "--json")
        run("list", "--owner", "acme", "--json")
        run("delete", "one", "--participant", "bob")
        run("delete", "one", "--yes")
        run("list", "--json")

    def used(case: Case) -> None:
        where = {"PELLUCID_SPACE_URL": f"http://127.0.0.1:{on.gateway.port}/spaces/flag"}
        who = {"PELLUCID_SPACE_TOKEN": spaces.token("flag", "alice")}

        def run(*args: str, stdin: bytes = b"", **more: str) -> None:
            _record(case, batch.run(Invocation(("space", *args), stdin, {**where, **who, **more})), f"{args[0]}: ")

        run("say", "Hello from a command")
        run("say", "-", stdin=b"from its input\n")
        run("say", "--kind", "reasoning/start", "--payload", '{"message": "I think"}', "--json")
        run("say", "--to", "nobody of this space", "Hi")
        run("say", "--payload", "{")
        run("say", "Hi", PELLUCID_SPACE_TOKEN="wrong")
        for view in ("full", "collapsed", "main"):
            run("tail", "--no-follow", "--view", view, "-n", "60")
        run("tail", "--no-follow", "--json", "-n", "5")
        run("tail", "--no-follow", "--after-seq", "3", "--before-seq", "6")
        for form in ("jsonl", "chat-jsonl", "otel"):
            run("export", "--format", form, "--before-seq", "20")
        run("export", "--format", "chat-jsonl", "--reasoning", "think", "--complete", "--no-metadata")
        run("replay", "--before-seq", "12")
        run("replay", "--json", "--after-seq", "3", "--before-seq", "6")
        joined = batch.run(Invocation(("space", "join"), b"typed into it\n/leave\n", {**where, **who}))
        case.add("join: status", str(joined.status))
        # The echo of a message arrives from the gateway; the answer to a wrong command does not wait for it.
        case.add_unordered("join: stdout", joined.stdout.decode().splitlines())
        case.add("join: stderr", joined.stderr)

    yield "commands/space/made", made
    yield "commands/space/used", used


def _asking(on: Setting, batch: Batch) -> Cases:
    script = FIXTURES[0]

    def upstream(provider: str = "deepseek") -> Sequence[str]:
        where = ("--upstream", on.upstream.url(provider), "--upstream-model", script.model)
        return ("--provider", provider, *where, "--api-key-env", KEY_VARIABLE)

    def run_and_capture(case: Case, args: Sequence[str], stdin: bytes = b"") -> None:
        on.upstream.play(script.provider, play_of(script))
        _record(case, batch.run(Invocation(("ask", *args), stdin)))
        record_requests(case, on.upstream)

    def failed(case: Case) -> None:
        on.upstream.play(script.provider, play_of(script)._replace(body=b"{}", status=401))
        _record(case, batch.run(Invocation(("ask", *upstream(), "Hi"))))

    yield "commands/ask/text", partial(run_and_capture, args=(*upstream(), "Which is larger?"))
    yield "commands/ask/events", partial(run_and_capture, args=(*upstream(), "--json", "Which is larger?"))
    yield "commands/ask/effort", partial(run_and_capture, args=(*upstream(), "--effort", "high", "Which is larger?"))
    yield "commands/ask/its input", partial(run_and_capture, args=(*upstream(), "-"), stdin=b"Which is larger?\n")
    configured = ("--config", "pellucid.toml", "--model", f"{script.provider}:{script.model}", "Hi")
    yield "commands/ask/configured", partial(run_and_capture, args=configured)
    yield "commands/ask/refused upstream", failed
