"""One side of a golden comparison: start its gateways, run the cases, write the capture.

The groups, in the order in which they run; a case is a name and a function that records what can be seen from outside:

* `matrix`: every script × protocol and dialect × view × streamed and whole × cut: response and upstream request.
  (Here and in the next three, scripts of `shapes.py` are played in fewer ways.)
* `stored`: what is kept of a response, a chat and an AG-UI run: read back, replayed from every cursor, rows.
* `pace`: every fixture × protocol × view: how much of the reply has come before each frame of the upstream.
* `turns`: two more turns with what the client was given, and one with a model of another provider.
* `background`: detached runs, replayed from every cursor.
* `upstream-errors`: statuses, broken and cut bodies, over every protocol.
* `settings`: every row of the profiles × protocol × setting, tool and kind of content; configured models; wrong values.
* `requests`: requests that are refused, paths that do not exist, what needs a key.
* `pages`: what is read without a model: models, OpenAPI, metric names.
* `socket`: responses over a WebSocket.
* `resources`: conversations, chains of responses, chats with branches, stored threads, clients that leave, the outside
  of requests (encodings, methods, origins).
* `spaces`: a script said by three participants, what each receives, the history over HTTP.
* `tools`: functions and an MCP server of the gateway's own, and a model that writes summaries.
* `access`: keys with policies and limits, sessions, pages of other origins.
* `commands`: `decode`, `translate`, `record` and `config` at the command line.
* `surface`: no case of its own: what the OpenAPI document and the help texts name, and no case used.
* `reopened`: what the *base* stored, sealed, recorded and left in Redis, read by this version.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from . import access, commands, parameters, refusals, resources, runs, server_tools, spaces
from .captures import BROKEN, Capture, Case
from .fixtures import FIXTURES, Script, recorded
from .gateway import Checkout, Gateway
from .remains import leave_live, live_cases, remains, reopened
from .setting import STORE, Cases, Setting, configuration
from .surface import EXEMPT, SURFACE, unexplained
from .upstream import Upstream

GROUPS: dict[str, Callable[[Setting], Cases]] = {
    "matrix": runs.matrix,
    "stored": runs.stored,
    "pace": runs.pace,
    "turns": runs.turns,
    "background": runs.background,
    "upstream-errors": refusals.upstream_errors,
    "settings": parameters.settings,
    "requests": refusals.requests,
    "pages": refusals.pages,
    "socket": runs.socket,
    "resources": resources.resources,
    "spaces": spaces.in_spaces,
    "tools": server_tools.server_tools,
    "access": access.access,
    "commands": commands.commands,
}


def scripts_of(recordings: Path | None) -> list[Script]:
    return FIXTURES if recordings is None else [*FIXTURES, *recorded(recordings)]


@contextmanager
def setting(checkout: Checkout, data: Path, scripts: list[Script], short: bool) -> Iterator[Setting]:
    upstream = Upstream()
    config = configuration(upstream, scripts, STORE)
    guarded = configuration(upstream, scripts, STORE + refusals.GUARDED_CONFIGURATION)
    with (
        Gateway(checkout, data, config + spaces.configuration(), spaces.token_files()) as one,
        Gateway(checkout, data.with_name(f"{data.name}-guarded"), guarded) as two,
    ):
        yield Setting(checkout, upstream, one, two, scripts, short)
    upstream.close()


def leave(checkout: Checkout, left: Path, recordings: Path | None, short: bool) -> None:
    """Have the base store, seal and record things, and die over a run in the background; in the directory `left`."""
    scripts = scripts_of(recordings)
    shutil.rmtree(left, ignore_errors=True)
    left.mkdir(parents=True)
    with setting(checkout, left / "data", scripts, short) as on:
        left_behind = remains(on)
    if shutil.which("redis-server"):
        left_behind["live"] = leave_live(checkout, left)
    (left / "remains.json").write_text(json.dumps(left_behind))


def reaches(only: list[str], group: str) -> bool:
    """Whether any case of a group can be wanted: some start gateways of their own."""
    return not only or any(fnmatchcase(group, pattern.partition("/")[0]) for pattern in only)


def capture(checkout: Checkout, file: Path, left: Path, recordings: Path | None, short: bool, only: list[str]) -> None:
    """Run every case and write the capture."""
    scripts = scripts_of(recordings)
    began, count = time.monotonic(), 0

    def wanted(name: str) -> bool:
        return not only or any(fnmatchcase(name, pattern) for pattern in only)

    def run(cases: Cases, upstream: Upstream) -> None:
        nonlocal count
        for name, body in cases:
            if not wanted(name) or (short and not in_short(name)):
                continue
            case = Case()
            try:
                body(case)
                upstream.check()
            except Exception as error:
                case.add(BROKEN, f"{type(error).__name__}: {error}")
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            out.put(name, case)
            count += 1
            if count % 500 == 0:
                out.commit()

    file.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="golden-data-") as made, Capture(file) as out:
        with setting(checkout, Path(made) / "data", scripts, short) as on:
            for group, cases in GROUPS.items():
                if reaches(only, group):
                    run(cases(on), on.upstream)
                print(f"{checkout.root.name}: {group}: {count} cases, {time.monotonic() - began:.0f} s", flush=True)
            document = on.gateway.request("GET", "/openapi.json").json
        if reaches(only, "reopened"):
            left_behind = json.loads((left / "remains.json").read_text())
            for of in ("", "-guarded"):
                shutil.copytree(left / f"data{of}", Path(made) / f"reopened{of}")
            with setting(checkout, Path(made) / "reopened", scripts, short) as on:
                run(reopened(on, left_behind), on.upstream)
            if "live" in left_behind and wanted("reopened/redis/response"):
                for name, case in live_cases(checkout, left, left_behind["live"]):
                    out.put(name, case)
        if not only:
            out.put("surface", surface_case(document))
        print(f"{checkout.root.name}: reopened: {count} cases, {time.monotonic() - began:.0f} s", flush=True)


def surface_case(document: dict[str, Any]) -> Case:
    """What is offered and no case used: a fault, unless it is exempt."""
    case = Case()
    missing = [*SURFACE.missing_operations(document), *SURFACE.missing_commands()]
    case.add("exempt", "\n".join(sorted(name for name in missing if name in EXEMPT)))
    if rest := unexplained(missing):
        case.add(BROKEN, f"no case uses with success: {', '.join(rest)}")
        print(f"surface: no case uses with success: {', '.join(rest)}", file=sys.stderr, flush=True)
    return case


def in_short(name: str) -> bool:
    """Whether a case belongs to the short form: fewer views and cuts, every script and protocol once."""
    group, *rest = name.split("/")
    if rest and rest[0].startswith("shape:"):
        return runs.shape_in_short(group, *rest)
    if group == "pace":
        return rest[-1] == "raw"
    if group == "matrix":
        return rest[-3:] in (
            ["raw", "stream", "frames"],
            ["summary", "stream", "bytes"],
            ["sealed", "stream", "frames"],
            ["hidden", "stream", "frames"],
            ["raw", "whole", "whole"],
        )
    if group in ("stored", "turns"):
        return rest[-1] == "raw" or rest[-2:] in (["raw", "stream"], ["sealed", "whole"])
    if group == "settings":
        return parameters.in_short(*rest)
    if group == "upstream-errors":
        return rest[-2:] in (["raw", "stream"], ["raw", "whole"])
    return True
