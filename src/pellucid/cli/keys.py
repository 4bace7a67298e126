"""`pellucid keys`: API keys of the gateway. A key is printed once, when it is created."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Table

from ..errors import RequestError
from ..protocols.openresponses import DIALECTS
from ..server.access.config import OWNER_RULE, is_owner_name
from ..server.access.keys import KeyHasher, ensure_pepper, new_key
from ..server.access.policy import Policy, read_policy, write_policy
from ..storage import Store, StoredKey
from ..view import VIEWS
from .store_access import (
    format_time,
    json_option,
    load_configuration,
    print_json,
    print_table,
    store_options,
    with_store,
)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _parse_duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse a duration such as `30d` to seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,6})([smhdw])", value)
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{value!r} is not a duration; write it as 30d, 12h or 90m")
    return float(int(match[1]) * _UNITS[match[2]])


_POSITIVE = click.IntRange(1)


class _Amount(click.FloatRange):
    """An amount of the currency. (Click's own range contains NaN.)"""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        amount = super().convert(value, param, ctx)
        if amount != amount:
            self.fail(f"{value!r} is not an amount", param, ctx)
        return amount


_AMOUNT = _Amount(0, 1_000_000_000, min_open=True)


@click.group()
def keys() -> None:
    """API keys of the gateway: who may use it, and for what."""


@keys.command()
@click.option("--owner", required=True, metavar="WHO", help="The tenant. Its keys share what each of them has stored.")
@click.option("--name", default="", metavar="TEXT", help="What the key is for.")
@click.option(
    "--expires", callback=_parse_duration, metavar="TIME", help="How long it is valid: 30d, 12h, 90m (for ever)."
)
@click.option("--model", "models", multiple=True, metavar="GLOB", help="A model it may use (all); can be repeated.")
@click.option("--tool", "tools", multiple=True, metavar="GLOB", help="A server tool it may use (all); can be repeated.")
@click.option("--view", type=click.Choice(VIEWS), default="raw", show_default=True, help="The most it may see.")
@click.option("--no-counts", is_flag=True, help="Do not show numbers of tokens.")
@click.option("--events", "reasoning_events", type=click.Choice(list(DIALECTS)), help="Which event names it gets.")
@click.option("--no-store", is_flag=True, help="Nothing may be stored.")
@click.option(
    "--retention",
    "retention_seconds",
    callback=_parse_duration,
    metavar="TIME",
    help="How long its responses are stored: 30d, 12h.",
)
@click.option("--rpm", "requests_per_minute", type=_POSITIVE, metavar="N", help="Requests a minute.")
@click.option("--tpm", "tokens_per_minute", type=_POSITIVE, metavar="N", help="Tokens a minute.")
@click.option("--rtpm", "reasoning_tokens_per_minute", type=_POSITIVE, metavar="N", help="Reasoning tokens a minute.")
@click.option("--streams", type=_POSITIVE, metavar="N", help="Responses at once.")
@click.option("--cost-per-day", type=_AMOUNT, metavar="AMOUNT", help="What it may spend a day, in UTC.")
@click.option("--cost-per-month", type=_AMOUNT, metavar="AMOUNT", help="What it may spend a month.")
@click.option("--max-body-bytes", type=_POSITIVE, metavar="N", help="The largest request.")
@click.option("--max-output-tokens", type=_POSITIVE, metavar="N", help="The longest answer.")
@click.option(
    "--retry-thoughts/--no-retry-thoughts",
    default=None,
    help="Whether another deployment answers if one fails after thoughts alone (as the model is configured).",
)
@click.option("--operator", is_flag=True, help="It may read what concerns the whole gateway, and cancel any run.")
@json_option
@store_options
def create(
    owner: str,
    name: str,
    expires: float | None,
    models: tuple[str, ...],
    tools: tuple[str, ...],
    no_counts: bool,
    no_store: bool,
    file: Path | None,
    store: str | None,
    as_json: bool,
    **rules: Any,
) -> None:
    """Create a key and print it. It is not stored, and cannot be shown again. When there is a key, every client needs
    one."""
    if not is_owner_name(owner):
        raise RequestError(f"--owner: {OWNER_RULE}")
    policy = Policy(
        models=list(models) or None,
        tools=list(tools) or None,
        counts=not no_counts,
        store=not no_store,
        **rules,  # the other options have the names of their fields
    )
    key, now = new_key(), time.time()
    access = load_configuration(file).access
    pepper = access.pepper_file
    stored_key = StoredKey(
        id=key.id,
        hash=KeyHasher(ensure_pepper(Path(pepper) if pepper is not None else None, os.environ)).digest(key.text),
        owner=owner,
        name=name,
        created_at=now,
        expires_at=now + expires if expires is not None else None,
        revoked_at=None,
        policy=write_policy(policy),
    )
    existing_count = with_store(file, store, lambda opened_store: _add_key(opened_store, stored_key))
    if not existing_count and access.keys is not False and not access.requires_credentials:
        soon = f"within {access.key_seconds:g} s"
        click.echo(
            f"The first key: {soon} the gateway requires a key from every client, permanently (docs/access.md).",
            err=True,
        )
    if as_json:
        print_json({"key": key.text, **_key_fields(stored_key, now)})
    else:
        click.echo(f"{key.id} of {owner}, which cannot be shown again:", err=True)
        click.echo(key.text)


async def _add_key(store: Store, key: StoredKey) -> int:
    """Add a key. Returns the number of keys that existed before."""
    existing_count = len(await store.keys.list())
    await store.keys.add(key)
    return existing_count


@keys.command("list")
@click.option("--owner", metavar="WHO", help="Only those of this tenant.")
@json_option
@store_options
def list_keys(owner: str | None, file: Path | None, store: str | None, as_json: bool) -> None:
    """List the keys with their owners and policies. Secrets are not stored."""
    stored_keys, now = with_store(file, store, lambda opened_store: opened_store.keys.list(owner)), time.time()
    entries = [_key_fields(key, now) for key in stored_keys]
    if as_json:
        print_json(entries)
        return
    table = Table("id", "owner", "name", "state", "created", "expires", "policy", box=None, pad_edge=False)
    for key in entries:
        rules = " ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in key["policy"].items())
        expires = (key["expires_at"] or "never")[:10]
        table.add_row(key["id"], key["owner"], key["name"], key["state"], key["created_at"][:10], expires, rules)
    print_table(table)


@keys.command()
@click.argument("id")
@json_option
@store_options
def revoke(id: str, file: Path | None, store: str | None, as_json: bool) -> None:
    """Revoke the key with this ID (`key_…`). Gateways that cache it reject it within seconds (docs/access.md)."""
    if not with_store(file, store, lambda opened_store: opened_store.keys.revoke(id, time.time())):
        message = f"there is no key {id!r}, or it is revoked already; `pellucid keys list` shows them"
        raise RequestError(message, kind="not_found")
    if as_json:
        print_json({"id": id, "revoked": True})
    else:
        click.echo(f"{id} is revoked.")


def _key_fields(key: StoredKey, now: float) -> dict[str, Any]:
    if key.revoked_at is not None:
        state = "revoked"
    else:
        state = "expired" if key.expires_at is not None and key.expires_at <= now else "valid"
    try:
        policy: dict[str, Any] = msgspec.to_builtins(read_policy(key.policy))
    except msgspec.DecodeError:
        policy = {"unreadable": True}
    return {
        "id": key.id,
        "owner": key.owner,
        "name": key.name,
        "state": state,
        "created_at": format_time(key.created_at),
        "expires_at": format_time(key.expires_at),
        "revoked_at": format_time(key.revoked_at),
        "policy": policy,
    }
