"""`pellucid keys`: API keys of the gateway. A key is printed once, when it is made."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Table

from ..errors import RequestError
from ..server.access.config import OWNER_RULE, owner_fits
from ..server.access.keys import Hasher, new_key
from ..server.access.pepper import find_pepper
from ..server.access.policy import Policy, read_policy, write_policy
from ..storage import Store, StoredKey
from ..view import VIEWS, View
from .kept import configuration, date, json_option, print_json, print_table, where, with_store

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


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
@json_option
@where
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
    access = configuration(file).access
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
    others = with_store(file, store, lambda kept: _added(kept, row))
    if not others and access.keys is not False and not access.guarded:
        soon = f"within {access.key_seconds:g} s"
        click.echo(f"The first key: {soon} the gateway asks everybody for one, for good (docs/access.md).", err=True)
    if as_json:
        print_json({"key": key.text, **_shown(row, now)})
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
@json_option
@where
def list_keys(owner: str | None, file: Path | None, store: str | None, as_json: bool) -> None:
    """List the keys: whose they are and what they may do. Secrets are not kept."""
    rows, now = with_store(file, store, lambda kept: kept.keys.list(owner)), time.time()
    shown = [_shown(row, now) for row in rows]
    if as_json:
        print_json(shown)
        return
    table = Table("id", "owner", "name", "state", "made", "expires", "policy", box=None, pad_edge=False)
    for key in shown:
        rules = " ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in key["policy"].items())
        expires = (key["expires_at"] or "never")[:10]
        table.add_row(key["id"], key["owner"], key["name"], key["state"], key["created_at"][:10], expires, rules)
    print_table(table)


@keys.command()
@click.argument("id")
@json_option
@where
def revoke(id: str, file: Path | None, store: str | None, as_json: bool) -> None:
    """Revoke the key with this ID (`key_…`). Gateways that just used it forget it within seconds (docs/access.md)."""
    if not with_store(file, store, lambda kept: kept.keys.revoke(id, time.time())):
        told = f"there is no key {id!r}, or it is revoked already; `pellucid keys list` shows them"
        raise RequestError(told, kind="not_found")
    if as_json:
        print_json({"id": id, "revoked": True})
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
        "created_at": date(row.created_at),
        "expires_at": date(row.expires_at),
        "revoked_at": date(row.revoked_at),
        "policy": policy,
    }
