"""`pellucid keys`: API keys of the gateway. A key is printed once, when it is made."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

from ..errors import RequestError
from ..server.access.config import OWNER_RULE, owner_fits
from ..server.access.keys import Hasher, new_key
from ..server.access.pepper import find_pepper
from ..server.access.policy import Policy, read_policy, write_policy
from ..server.config import Config, read_config
from ..storage import Store, StoredKey, open_store
from ..view import VIEWS, View
from .options import DEFAULT_FILE

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _where(command: F) -> F:
    """Where keys are kept: where the gateway's configuration says, as long as nothing else is said here."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--store", metavar="URL", help="Another store than the configuration's."),
        click.option("--config", "file", type=click.Path(path_type=Path), help="The gateway's file (pellucid.toml)."),
    ):
        command = option(command)
    return command


def _read(file: Path | None) -> Config:
    return read_config(file or DEFAULT_FILE) if file is not None or DEFAULT_FILE.exists() else Config()


def _store_url(file: Path | None) -> str:
    return _read(file).store_url()


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A length of time, for options."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([smhdw])", value)
    if found is None or not int(found[1]):
        raise click.BadParameter(f"{value!r} is no length of time; it looks like 30d, 12h or 90m")
    return float(int(found[1]) * _UNITS[found[2]])


_MOST = click.IntRange(1)


@click.group()
def keys() -> None:
    """API keys of the gateway: who may ask, and for what."""


@keys.command()
@click.option("--owner", required=True, metavar="WHO", help="The tenant; what one key made, another of theirs can use.")
@click.option("--name", default="", metavar="TEXT", help="What the key is for.")
@click.option("--expires", callback=_seconds, metavar="TIME", help="How long it is valid: 30d, 12h, 90m (for good).")
@click.option("--model", "models", multiple=True, metavar="GLOB", help="A model it may use (all); can be repeated.")
@click.option("--tool", "tools", multiple=True, metavar="GLOB", help="A server tool it may use (all); can be repeated.")
@click.option("--view", type=click.Choice(VIEWS), default="raw", show_default=True, help="The most it may see.")
@click.option("--no-counts", is_flag=True, help="Numbers of tokens are not shown.")
@click.option("--events", type=click.Choice(["openresponses", "openai"]), help="Whose event names it gets.")
@click.option("--no-store", is_flag=True, help="Nothing may be kept.")
@click.option("--retention", callback=_seconds, metavar="TIME", help="How long its responses are kept: 30d, 12h.")
@click.option("--rpm", type=_MOST, metavar="N", help="Requests a minute.")
@click.option("--tpm", type=_MOST, metavar="N", help="Tokens a minute.")
@click.option("--rtpm", type=_MOST, metavar="N", help="Reasoning tokens a minute.")
@click.option("--streams", type=_MOST, metavar="N", help="Responses at once.")
@click.option("--max-body-bytes", type=_MOST, metavar="N", help="The largest request.")
@click.option("--max-output-tokens", type=_MOST, metavar="N", help="The longest answer.")
@_where
def create(
    owner: str,
    name: str,
    expires: float | None,
    models: tuple[str, ...],
    tools: tuple[str, ...],
    view: View,
    no_counts: bool,
    events: Any,
    no_store: bool,
    retention: float | None,
    rpm: int | None,
    tpm: int | None,
    rtpm: int | None,
    streams: int | None,
    max_body_bytes: int | None,
    max_output_tokens: int | None,
    file: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Make a key, and print it: it is not kept, and cannot be shown again. Once there is one, everybody needs one."""
    if not owner_fits(owner):
        raise RequestError(f"--owner: {OWNER_RULE}")
    policy = Policy(
        models=list(models) or None,
        view=view,
        counts=not no_counts,
        reasoning_events=events,
        store=not no_store,
        retention_seconds=retention,
        tools=list(tools) or None,
        requests_per_minute=rpm,
        tokens_per_minute=tpm,
        reasoning_tokens_per_minute=rtpm,
        streams=streams,
        max_body_bytes=max_body_bytes,
        max_output_tokens=max_output_tokens,
    )
    key, now = new_key(), time.time()
    access = _read(file).access
    pepper = access.pepper_file
    row = StoredKey(
        id=key.id,
        hash=Hasher(find_pepper(Path(pepper) if pepper is not None else None)).digest(key.text),
        owner=owner,
        name=name,
        created_at=now,
        expires_at=now + expires if expires is not None else None,
        revoked_at=None,
        policy=write_policy(policy),
    )
    others = _with_store(store or _store_url(file), lambda kept: _added(kept, row))
    if not others and access.keys is not False and not access.guarded:
        soon = f"within {access.key_seconds:g} s"
        click.echo(f"The first key: {soon} the gateway asks everybody for one, for good (docs/access.md).", err=True)
    if as_json:
        _print_json({"key": key.text, **_shown(row, now)})
    else:
        click.echo(f"{key.id} of {owner}, which cannot be shown again:", err=True)
        click.echo(key.text)


async def _added(kept: Store, row: StoredKey) -> int:
    """How many there were before."""
    others = len(await kept.keys.list())
    await kept.keys.add(row)
    return others


@keys.command("list")
@click.option("--owner", metavar="WHO", help="Only those of this tenant.")
@_where
def list_keys(owner: str | None, file: Path | None, store: str | None, as_json: bool) -> None:
    """List the keys: whose they are and what they may do. Secrets are not kept."""
    rows, now = _with_store(store or _store_url(file), lambda kept: kept.keys.list(owner)), time.time()
    shown = [_shown(row, now) for row in rows]
    if as_json:
        _print_json(shown)
        return
    table = Table("id", "owner", "name", "state", "made", "expires", "policy", box=None, pad_edge=False)
    for key in shown:
        rules = " ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in key["policy"].items())
        expires = (key["expires_at"] or "never")[:10]
        table.add_row(key["id"], key["owner"], key["name"], key["state"], key["created_at"][:10], expires, rules)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 400
    console.print(table)


@keys.command()
@click.argument("id")
@_where
def revoke(id: str, file: Path | None, store: str | None, as_json: bool) -> None:
    """Revoke the key with this ID (`key_…`). Gateways that just used it forget it within seconds (docs/access.md)."""
    if not _with_store(store or _store_url(file), lambda kept: kept.keys.revoke(id, time.time())):
        told = f"there is no key {id!r}, or it is revoked already; `pellucid keys list` shows them"
        raise RequestError(told, kind="not_found")
    if as_json:
        _print_json({"id": id, "revoked": True})
    else:
        click.echo(f"{id} is revoked.")


def _shown(row: StoredKey, now: float) -> dict[str, Any]:
    if row.revoked_at is not None:
        state = "revoked"
    else:
        state = "expired" if row.expires_at is not None and row.expires_at <= now else "valid"
    try:
        policy: dict[str, Any] = msgspec.to_builtins(read_policy(row.policy))
    except msgspec.DecodeError:
        policy = {"unreadable": True}
    return {
        "id": row.id,
        "owner": row.owner,
        "name": row.name,
        "state": state,
        "created_at": _date(row.created_at),
        "expires_at": _date(row.expires_at),
        "revoked_at": _date(row.revoked_at),
        "policy": policy,
    }


def _date(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _print_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _with_store(url: str, do: Callable[[Store], Awaitable[T]]) -> T:
    async def work() -> T:
        async with _opened(url) as store:
            return await do(store)

    return asyncio.run(work())


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.aclose()
