"""What every group of a golden comparison works with, and how it records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

from .captures import Case
from .fixtures import FIXTURES, Script
from .gateway import KEY_VARIABLE, Checkout, Gateway, Reply
from .upstream import Cut, Play, Upstream

STORE = '[storage]\nurl = "sqlite:///store.sqlite"\n'
"""The store of every gateway: a file in its data directory."""

NO_TITLES = '[chat]\ntitle_model = "none"\n'
"""No model writes a title: that would take a response that a case plays."""


class Setting(NamedTuple):
    """What a group has to work with."""

    checkout: Checkout
    upstream: Upstream
    gateway: Gateway
    guarded: Gateway
    """The same with a key, and policies."""
    scripts: list[Script]
    short: bool


Cases = Iterator[tuple[str, Callable[[Case], None]]]


def configuration(upstream: Upstream, scripts: list[Script], more: str = "") -> str:
    """The TOML of a gateway whose every provider is the upstream."""
    providers = sorted({script.provider for script in [*scripts, *FIXTURES]})
    sections = [
        f'[providers."{name}"]\nprofile = "{name}"\nbase_url = "{upstream.url(name)}"\napi_key_env = "{KEY_VARIABLE}"\n'
        for name in providers
    ]
    return more + "\n[limits]\nretry_wait = 0.01\n\n" + NO_TITLES + "\n".join(sections)


def model_of(script: Script) -> str:
    return f"{script.provider}:{script.model}"


def play_of(script: Script, cut: Cut = "whole") -> Play:
    return Play(script.body, script.content_type, cut=cut)


def record_reply(case: Case, label: str, reply: Reply) -> None:
    case.add(f"{label}: head", reply.head)
    case.add(f"{label}: body", reply.body)


def record_requests(case: Case, upstream: Upstream, label: str = "upstream") -> None:
    """What reached the upstream since the last `play`.

    The lists of models of all providers are requested at once, and come in any order: they are sorted.
    """
    unimportant = ("host", "content-length", "user-agent", "connection")
    runs = groupby(upstream.requests(), lambda request: request.line.endswith(("/models HTTP/1.1", "/tags HTTP/1.1")))
    in_order = [one for is_list, run in runs for one in (sorted(run, key=lambda got: got.line) if is_list else run)]
    for n, request in enumerate(in_order):
        head = sorted(f"{name}: {value}" for name, value in request.headers if name not in unimportant)
        case.add(f"{label} {n}: head", "\n".join([request.line, *head]))
        case.add(f"{label} {n}: body", request.body)
