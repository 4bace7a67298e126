"""The checks of `pellucid config check --live`: what a gateway needs, as it is now, with one advice for each problem.

Nothing is changed or created. Each deployment of a model gets one short question, which is cancelled when the answer
begins.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Literal, NamedTuple

import aiohttp
import click

from ..data_directory import data_directory
from ..errors import ConfigError, ErrorInfo, ModelError, PellucidError
from ..local import fetch
from ..models import ChatModel
from ..models.deployments import deployments_of
from ..models.embedded import EmbeddedModel
from ..relay import open_relay
from ..server.agent_model import AgentModel
from ..server.catalog import Catalog
from ..server.config import Config
from ..server.connection_check import begins_to_answer
from ..server.factories import create_mcp_server
from ..storage.inspection import inspect_store
from ..storage.store import sqlite_path
from ..upstream import UpstreamClient
from ..version import __version__
from .banner import address_of
from .http_server import listen
from .local import local_model

ANSWER_SECONDS = 60.0
"""How long a model may take to begin its answer: a local server may have to load it first."""
CONNECT_SECONDS = 8.0
MAX_CLOCK_OFFSET_SECONDS = 30.0
"""Tokens of an issuer, and signed requests to Amazon, are refused if the clock is further off."""
LEAST_FREE_BYTES = 1_000_000_000
AT_ONCE = 8
"""How many models get their question at the same time."""

State = Literal["ok", "note", "problem"]

_SIGNS: dict[State, tuple[str, str]] = {"ok": ("✓", "green"), "note": ("•", "yellow"), "problem": ("✗", "red")}

EXTRAS = {
    "local": "xllamacpp",
    "postgres": "asyncpg",
    "redis": "redis",
    "mcp": "mcp",
    "otel": "opentelemetry.sdk",
    "bedrock": "botocore",
    "pydantic-ai": "pydantic_ai",
    "langgraph": "langgraph",
}
"""A module of each extra."""


class Finding(NamedTuple):
    """The result of a check."""

    subject: str
    state: State
    detail: str
    advice: str = ""


class Installation(NamedTuple):
    """What is checked."""

    config: Config
    catalog: Catalog
    client: UpstreamClient
    uses_engine: bool
    """Whether the gateway runs the embedded model."""


def print_findings(findings: Iterable[Finding]) -> bool:
    """Print what the checks saw, a line for each; return whether there is no problem."""
    has_problem = False
    for subject, state, detail, advice in findings:
        has_problem |= state == "problem"
        sign, color = _SIGNS[state]
        click.echo(f"{click.style(sign, fg=color)} {subject:<15} {detail}")
        if advice:
            click.echo(f"  {'':<15} → {advice}")
    return not has_problem


async def check_installation(installation: Installation) -> list[Finding]:
    """Run all checks, at the same time, and return what they saw, in their order."""
    results = await asyncio.gather(*(check(installation) for check in CHECKS))
    return [finding for findings in results for finding in findings]


# --- what is installed ------------------------------------------------------------------------------------------------


async def _installed(installation: Installation) -> list[Finding]:
    has = {extra: _is_installed(module) for extra, module in EXTRAS.items()}
    extras = ", ".join(extra for extra, is_there in has.items() if is_there) or "none"
    missing = ", ".join(extra for extra, is_there in has.items() if not is_there)
    detail = f"Pellucid {__version__}, Python {platform.python_version()}; extras: {extras}"
    return [Finding("installed", "ok", detail + (f"; not installed: {missing}" if missing else ""))]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


async def _disk(installation: Installation) -> list[Finding]:
    folder = data_directory(os.environ)
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        advice = "change its owner, or set XDG_DATA_HOME"
        return [Finding("data folder", "problem", f"{there} cannot be written", advice)]
    free = shutil.disk_usage(there).free
    detail = f"{folder}, {free / 1e9:,.1f} GB free"
    if free < LEAST_FREE_BYTES:
        return [Finding("data folder", "problem", detail, "make room: a full disk stops all writes")]
    return [Finding("data folder", "ok", detail)]


async def _embedded(installation: Installation) -> list[Finding]:
    if not installation.uses_engine:
        return []
    config = installation.config.local
    model = local_model(config)
    path = config.path or fetch.cached_path(model)
    if path is None:
        advice = f"`pellucid models pull {model.name}` fetches it in advance"
        detail = f"{model.title} is not there; the next start fetches it ({model.bytes / 1e6:,.0f} MB)"
        return [Finding("embedded model", "note", detail, advice)]
    return [Finding("embedded model", "ok", f"{model.title}: {path}")]


# --- what is connected to ---------------------------------------------------------------------------------------------


async def _store(installation: Installation) -> list[Finding]:
    url = installation.config.store_url()
    where = sqlite_path(url) or ("PostgreSQL" if "postgres" in url else "in memory")
    try:
        state = await inspect_store(url)
    except PellucidError as error:
        return [Finding("store", "problem", error.info.message, "check storage.url, and that the database runs")]
    if not state.is_writable:
        return [Finding("store", "problem", f"{where} cannot be written", "check the owner and rights of the files")]
    if state.version is None:
        return [Finding("store", "ok", f"{where}: empty, the next start creates its tables")]
    tables = "" if state.is_current else "; the next start migrates its tables, so make a backup before"
    findings = [Finding("store", "ok" if state.is_current else "note", f"{where}: readable, writable{tables}")]
    return findings + _clock_of("the database's server", state.clock_offset)


async def _relay(installation: Installation) -> list[Finding]:
    url = installation.config.relay_url()
    if url is None:
        return []
    try:
        relay = await open_relay(url)
        try:
            await relay.check()
        finally:
            await relay.aclose()
    except PellucidError as error:
        return [Finding("relay", "problem", error.info.message, "check relay.url, and that Redis runs")]
    return [Finding("relay", "ok", "Redis answers")]


async def _models(installation: Installation) -> list[Finding]:
    """Ask each deployment of each model that has a name."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str, deployment: str, model: ChatModel) -> Finding:
        label = name if deployment == name else f"{name} ({deployment})"
        async with at_once:
            started = time.monotonic()
            problem = await _ask(name, model)
        if problem is None:
            return Finding("model", "ok", f"{label} answers, after {time.monotonic() - started:.1f} s")
        return Finding("model", "problem", f"{label}: {problem.info.full_message}", _advice(problem))

    catalog = installation.catalog
    models = {name: catalog.find(name)[1] for name in catalog.names()}
    questions = [
        ask(name, deployment.name, deployment.model)
        for name, model in models.items()
        if not isinstance(model, AgentModel | EmbeddedModel)
        for deployment in deployments_of(model)
    ]
    findings = list(await asyncio.gather(*questions))
    unnamed = [provider for provider in installation.config.providers if not catalog.names_of(provider)]
    findings += await asyncio.gather(*(_open_ended(catalog, provider) for provider in unnamed))
    if not models and not findings:
        advice = "add a provider to the configuration, connect one in the page, or install the extra `local`"
        findings.append(Finding("model", "problem", "there is none", advice))
    return findings


async def _open_ended(catalog: Catalog, provider: str) -> Finding:
    """Check a provider of which no model has a name: by its list, so that no model is chosen for the user."""
    await catalog.served_names()
    _, served = catalog.state.served.get(provider, (0.0, []))
    if served:
        return Finding("model", "ok", f"{provider} lists {len(served)} models; no question was sent to one")
    advice = f"check its key and address, or name one: providers.{provider}.models"
    return Finding("model", "note", f"{provider} lists no models", advice)


async def _ask(name: str, model: ChatModel) -> PellucidError | None:
    """Ask a model a short question. Return the error, if it does not begin to answer."""
    try:
        if await begins_to_answer(model, name, ANSWER_SECONDS):
            return None
    except TimeoutError:
        return ModelError(ErrorInfo("timeout", f"no answer within {ANSWER_SECONDS:g} seconds"))
    except PellucidError as error:
        return error
    return ModelError(ErrorInfo("model_error", "the answer ended without a word"))


_ADVICE_BY_STATUS = {
    401: "check that the key is complete and valid, and in the variable that the configuration names",
    402: "the account has no credit left",
    403: "check what the key may use",
    404: "check the model's name, and whether base_url ends with the path of the API, such as /v1",
    429: "wait, or raise the quota at the provider",
}


def _advice(error: PellucidError) -> str:
    status = error.info.status
    if status is None:
        return "check base_url, and that the server runs"
    if status >= 500:
        return "the provider has a fault of its own; try again later"
    return _ADVICE_BY_STATUS.get(status, "the provider's message says what it did not accept")


async def _mcp_servers(installation: Installation) -> list[Finding]:
    return list(
        await asyncio.gather(*(_mcp_server(installation.config, name) for name in installation.config.tools.mcp))
    )


async def _mcp_server(config: Config, name: str) -> Finding:
    subject = f"tools of {name}"
    try:
        async with aclosing(create_mcp_server(name, config.tools.mcp[name])) as server:
            tools = await server.tools()
    except PellucidError as error:
        return Finding(subject, "problem", error.info.message, "start its command, or open its address, by hand")
    return Finding(subject, "ok", f"{len(tools)} tools")


# --- the clock and the port -------------------------------------------------------------------------------------------


async def _clock(installation: Installation) -> list[Finding]:
    """Compare the clock with those of the providers, which send theirs with every answer."""
    profiles = installation.config.all_profiles()
    urls = [
        provider.base_url or profiles[installation.config.profile_name(name)].base_url
        for name, provider in installation.config.providers.items()
    ]
    timeout = aiohttp.ClientTimeout(total=CONNECT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        offsets = await asyncio.gather(*(_offset(session, url) for url in dict.fromkeys(urls) if url))
    known = [offset for offset in offsets if offset is not None]
    return _clock_of("a provider", min(known, key=abs) if known else None)


async def _offset(session: aiohttp.ClientSession, url: str) -> float | None:
    """Return by how many seconds the clock of a server is ahead; None if it does not say."""
    try:
        async with session.head(url, allow_redirects=False) as response:
            return parsedate_to_datetime(response.headers["Date"]).timestamp() - time.time()
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError):
        return None


def _clock_of(whose: str, offset: float | None) -> list[Finding]:
    if offset is None:
        return []
    if abs(offset) <= MAX_CLOCK_OFFSET_SECONDS:
        return [Finding("clock", "ok", f"within {MAX_CLOCK_OFFSET_SECONDS:g} s of {whose}'s")]
    relation = "behind" if offset > 0 else "ahead of"
    detail = f"{abs(offset):,.0f} s {relation} that of {whose}"
    return [Finding("clock", "problem", detail, "set the clock: tokens and signed requests are refused")]


async def _port(installation: Installation) -> list[Finding]:
    server = installation.config.server
    address = address_of(server.host, server.port)[0]
    try:
        sockets = listen(server.host, server.port)
    except ConfigError as error:
        if await _is_pellucid(address):
            return [Finding("port", "ok", f"Pellucid runs at {address}")]
        return [Finding("port", "problem", error.mistakes[0], "end the other program, or set another server.port")]
    for opened in sockets:
        opened.close()
    return [Finding("port", "ok", f"{address} is free")]


async def _is_pellucid(address: str) -> bool:
    try:
        timeout = aiohttp.ClientTimeout(total=CONNECT_SECONDS)
        async with aiohttp.request("GET", f"{address}/openapi.json", timeout=timeout) as response:
            return bool((await response.json())["info"]["title"] == "Pellucid")
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return False


Check = Callable[[Installation], Awaitable[Iterable[Finding]]]

CHECKS: tuple[Check, ...] = (_installed, _disk, _store, _relay, _embedded, _models, _mcp_servers, _clock, _port)
