"""`pellucid space create`, `add`, `list` and `delete`. Tokens are printed once, when they are created.

The commands access the gateway's store. A running gateway sees the changes at once or within seconds.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Table

from ..envelopes.capability import read_capabilities
from ..envelopes.envelope import check_participant
from ..errors import PellucidError, RequestError
from ..server.access.config import OWNER_RULE, is_owner_name
from ..server.access.guard import LOCAL_OWNER
from ..server.config import Config
from ..server.space_config import DEFAULT_CAPABILITIES
from ..spaces.runtime import provisioning
from ..spaces.runtime.settings import SpaceSettings, check_name, read_settings
from ..storage import Store, StoredParticipant, StoredSpace
from .banner import address_of
from .space_options import TOKEN
from .store_access import (
    format_time,
    json_option,
    load_configuration,
    print_json,
    print_table,
    recording_of,
    store_options,
    with_store,
)

NewParticipant = tuple[str, list[Any]]
"""The id of a participant to add, and its capabilities."""


def _parse_participants(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[NewParticipant]:
    """Parse `ID`, or `ID=kind,kind…`, or `ID=[…]` with capabilities as JSON."""
    capabilities_by_id: dict[str, list[Any]] = {}
    for value in values:
        id, is_limited, kinds = value.partition("=")
        check_participant(id, "--participant")
        if id in capabilities_by_id:
            raise click.BadParameter(f"{id!r} is given twice")
        capabilities_by_id[id] = _parse_capabilities(kinds) if is_limited else list(DEFAULT_CAPABILITIES)
        read_capabilities(capabilities_by_id[id], f"--participant {id}")
    return list(capabilities_by_id.items())


def _parse_capabilities(text: str) -> list[Any]:
    if not text.lstrip().startswith(("[", "{")):
        return [kind for kind in text.split(",") if kind]
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"its capabilities are not valid JSON: {error}") from None
    return value if isinstance(value, list) else [value]


_PARTICIPANT = click.option(
    "--participant",
    "participants",
    multiple=True,
    metavar="ID[=KIND,KIND…]",
    callback=_parse_participants,
    help="A participant, and the kinds it may send (chats, MCP and reasoning); can be repeated.",
)


@click.command()
@click.argument("name")
@_PARTICIPANT
@click.option("--owner", default=LOCAL_OWNER, show_default=True, metavar="WHO", help="The tenant that owns the space.")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="A TOML or JSON file of settings.")
@click.option("--reasoning", type=click.Choice(["strict", "flag", "off"]), help="How strictly reasoning is validated.")
@json_option
@store_options
def create(
    name: str,
    participants: list[NewParticipant],
    owner: str,
    settings_file: Path | None,
    reasoning: str | None,
    file: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Create the space NAME, and print its participants' tokens. They are not stored, and cannot be shown again."""
    check_name(name)
    if not is_owner_name(owner):
        raise RequestError(f"--owner: {OWNER_RULE}")
    settings = _read_space_settings(settings_file, {} if reasoning is None else {"reasoning": reasoning})

    async def work(opened_store: Store) -> dict[str, str]:
        return await provisioning.create_space(opened_store.spaces, owner, name, settings, dict(participants))

    tokens = with_store(file, store, work)
    _print_tokens(name, participants, tokens, as_json, file)


@click.command()
@click.argument("name")
@_PARTICIPANT
@json_option
@store_options
def add(name: str, participants: list[NewParticipant], file: Path | None, store: str | None, as_json: bool) -> None:
    """Add participants to the space NAME, and print their tokens."""
    if not participants:
        raise click.UsageError("A participant is missing. Give --participant ID, or ID=KIND,KIND…")

    async def work(opened_store: Store) -> dict[str, str]:
        return await provisioning.add_participants(
            opened_store.spaces, (await _require_space(opened_store, name)).owner, name, dict(participants)
        )

    tokens = with_store(file, store, work, must_exist=True)
    _print_tokens(name, participants, tokens, as_json, file)


@click.command("list")
@click.option("--owner", metavar="WHO", help="Only those of this tenant.")
@json_option
@store_options
def list_spaces(owner: str | None, file: Path | None, store: str | None, as_json: bool) -> None:
    """List the spaces and their participants. Tokens are not stored."""

    async def work(opened_store: Store) -> list[dict[str, Any]]:
        return [
            _space_fields(row, await opened_store.spaces.participants(row.owner, row.name))
            for row in await opened_store.spaces.list(owner)
        ]

    entries = with_store(file, store, work, must_exist=True)
    if as_json:
        print_json(entries)
        return
    table = Table("name", "owner", "envelopes", "created", "participants", box=None, pad_edge=False)
    for row in entries:
        who = " ".join(participant["id"] for participant in row["participants"])
        table.add_row(row["name"], row["owner"], str(row["head"]), row["created_at"][:10], who)
    print_table(table)


@click.command()
@click.argument("name")
@click.option("--participant", "ids", multiple=True, metavar="ID", help="Only this participant; can be repeated.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@store_options
def delete(name: str, ids: tuple[str, ...], yes: bool, file: Path | None, store: str | None, as_json: bool) -> None:
    """Delete the space NAME with all its envelopes; or only some of its participants, whose tokens become invalid."""
    if not ids and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"This deletes {name!r} with all its envelopes; confirm it with --yes")
        click.confirm(f"Delete {name!r} with all its envelopes?", abort=True)

    async def work(opened_store: Store) -> None:
        row = await _require_space(opened_store, name)
        if not ids:
            await opened_store.spaces.remove(row.owner, name)
            return
        present = await opened_store.spaces.participants(row.owner, name)
        if unknown := [id for id in ids if id not in {participant.id for participant in present}]:
            raise RequestError(f"there is no participant {unknown[0]!r} in {name!r}", kind="not_found")
        removable = {participant.id for participant in present if participant.origin == row.origin == "made"}
        if not_removable := [id for id in ids if id not in removable]:
            raise RequestError(
                f"{not_removable[0]!r} was not added to {name!r} with this command: remove a participant of the "
                "configuration by changing it, and an invited one with a space/kick",
                kind="not_found",
            )
        await opened_store.spaces.put(row, [one for one in present if one.id in removable and one.id not in ids])

    with_store(file, store, work, recording_of(load_configuration(file)), must_exist=True)
    if as_json:
        print_json({"name": name, "deleted": True} | ({"participants": list(ids)} if ids else {}))
    else:
        click.echo(f"{', '.join(ids)} of {name}: deleted." if ids else f"{name} is deleted.")


async def _require_space(store: Store, name: str) -> StoredSpace:
    row = await store.spaces.get(name)
    if row is None:
        raise RequestError(f"there is no space {name!r}; `pellucid space list` shows them", kind="not_found")
    return row


def _read_space_settings(file: Path | None, overrides: dict[str, Any]) -> SpaceSettings:
    table: dict[str, Any] = {}
    if file is not None:
        try:
            text = file.read_text("utf-8")
            table = msgspec.json.decode(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        except (OSError, UnicodeDecodeError, msgspec.DecodeError, tomllib.TOMLDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise RequestError(f"--settings: {file}: {reason}") from None
    return read_settings(table | overrides, "--settings")


def _print_tokens(
    name: str, participants: list[NewParticipant], tokens: dict[str, str], as_json: bool, file: Path | None
) -> None:
    if as_json:
        entries = [{"id": id, "token": tokens[id], "capabilities": capabilities} for id, capabilities in participants]
        print_json({"name": name, "participants": entries, "tokens": tokens})
        return
    click.echo(f"{name}: tokens, which cannot be shown again:" if tokens else f"{name} is created.", err=True)
    for id, token in tokens.items():
        click.echo(f"{id}\t{token}")
    url = f"{_gateway_url(file)}/spaces/{name}"
    click.echo(f"While `pellucid serve` runs, open it in a browser at {url}, or in a terminal:", err=True)
    click.echo(f"  {TOKEN}=THE_TOKEN pellucid space join --url {url}", err=True)


def _gateway_url(file: Path | None) -> str:
    """Return the URL of the gateway, as far as it follows from its configuration."""
    try:
        server = load_configuration(file).server
    except PellucidError:  # with --store, the configuration is not needed, and the space was created
        server = Config().server
    return address_of(server.host, server.port)[0]


def _space_fields(row: StoredSpace, participants: Sequence[StoredParticipant]) -> dict[str, Any]:
    return {
        "name": row.name,
        "owner": row.owner,
        "origin": row.origin,
        "head": row.head,
        "created_at": format_time(row.created_at),
        "settings": msgspec.json.decode(row.settings),
        "participants": [
            {"id": who.id, "capabilities": msgspec.json.decode(who.capabilities), "origin": who.origin}
            for who in participants
        ],
    }
