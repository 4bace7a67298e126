"""`pellucid record`: the tamper-evident record: check it, take it along, erase what was recorded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar

import click
import msgspec

from ..errors import RequestError
from ..record import (
    CheckpointLine,
    Finding,
    KeyLine,
    Line,
    Recording,
    RecordKeys,
    ScopeReport,
    Verifier,
    ensure_record_keys,
    env_record_keys,
    read_public_keys,
    read_record_keys,
)
from ..record.checkpoint import Signed
from ..record.keys import key_id, public_pem
from ..record.lines import decode_line, encode_line
from ..server.config import Config, read_config
from ..storage import AlreadyStored, Store, open_store
from .options import DEFAULT_FILE

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _where(command: F) -> F:
    """Where the record is: where the gateway's configuration says, as long as nothing else is said here."""
    for option in (
        click.option("--store", metavar="URL", help="Another store than the configuration's."),
        click.option("--config", "file", type=click.Path(path_type=Path), help="The gateway's file (pellucid.toml)."),
    ):
        command = option(command)
    return command


def _which(command: F) -> F:
    for option in (
        click.option("--scope", metavar="S", help="Only this: conversation:ID, response:ID or space:NAME."),
        click.option("--owner", metavar="O", help="Only what is this tenant's."),
    ):
        command = option(command)
    return command


@click.group()
def record() -> None:
    """The tamper-evident record of what is stored (docs/record.md)."""


@record.command()
@_which
@click.option("--public-key", type=click.Path(path_type=Path), help="The key (PEM) that must have signed it.")
@click.option("--known", type=click.Path(path_type=Path), help="An older export, whose checkpoints must be in it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_where
@click.argument("exported", metavar="[FILE|-]", required=False)
@click.pass_context
def verify(
    ctx: click.Context,
    owner: str | None,
    scope: str | None,
    public_key: Path | None,
    known: Path | None,
    as_json: bool,
    file: Path | None,
    store: str | None,
    exported: str | None,
) -> None:
    """Is the record whole, and is what is stored what was recorded? Of the store, or of an export alone (FILE). Exits
    with 1 if anything is wrong, and says which entry it is."""
    scopes: list[ScopeReport] = []

    def told(through: list[ScopeReport]) -> None:
        for one in through:
            if as_json:
                scopes.append(one)
            else:
                click.echo(_scope_line(one))

    trusted = read_public_keys(public_key) if public_key is not None else None
    before = list(_checkpoints(known)) if known is not None else []
    if exported is not None:
        if owner is not None or scope is not None:
            raise RequestError("--owner and --scope say what to read of a store; an export is checked whole")
        verifier = Verifier(trusted, known=before)
        for line in _lines(exported):
            told(verifier.feed(line))
    else:
        config = _config(file)
        keys = _keys(config)
        recording = Recording(signers=keys.signers) if keys is not None else None
        verifier = Verifier(trusted if trusted is not None else keys and keys.trusted, recording, before)
        _with_store(
            store or config.store_url(),
            Recording(),
            lambda kept: kept.record.tell(lambda line: told(verifier.feed(line)), owner=owner, scope=scope),
        )
    report = verifier.end()
    if as_json:
        shown = {"right": report.right, **msgspec.to_builtins(report), "chains": msgspec.to_builtins(scopes)}
        click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode())
    else:
        click.echo(
            f"{_many(report.scopes, 'chain')} with {_many(report.entries, 'entry', 'entries')}: "
            f"{_many(report.contents, 'content')} as recorded, {report.gone} gone; "
            f"{_many(report.checkpoints, 'checkpoint')}."
        )
        if report.before:
            click.echo(f"{report.before} stored before there was a record.")
        if report.checkpoints and report.keys == "own":
            click.echo("The signatures were checked with the key in the export itself: with --public-key, whose it is.")
        _tell_findings(report.findings)
    ctx.exit(0 if report.right else 1)


@record.command()
@_which
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The file to write it to (standard output).")
@_where
def export(owner: str | None, scope: str | None, output: Path | None, file: Path | None, store: str | None) -> None:
    """Write the record as lines of JSON: checkpoints, entries, and the contents that are still there. What was not
    signed yet is signed first. `pellucid record verify FILE` checks it, wherever it is."""
    config = _config(file)
    keys = env_record_keys() or ensure_record_keys(config.record_key_path())
    lines = [KeyLine(id=key_id(public), pem=public_pem(public)) for public in keys.trusted]

    async def write(kept: Store) -> None:
        with suppress(AlreadyStored):  # the gateway does it at this moment
            await kept.record.sign()
        with _writing(output) as out:
            await kept.record.tell(lambda line: _put(out, line), owner=owner, scope=scope, keys=lines)

    _with_store(store or config.store_url(), Recording(signers=keys.signers), write)


@record.command()
@click.option("--owner", metavar="O", help="The tenant whose it is, if several have one of this name.")
@_where
@click.argument("scope")
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]…")
def erase(owner: str | None, file: Path | None, store: str | None, scope: str, subjects: tuple[str, ...]) -> None:
    """Erase what was stored in a SCOPE (conversation:ID, response:ID, space:NAME): all of it, or each SUBJECT: the id
    of a response or an item, the number of an envelope. The record says that it was erased, and stays whole; what is
    left of it there can be compared with no guess."""
    config = _config(file)
    recording = recording_of(config)

    async def gone(kept: Store) -> int:
        owners = await kept.record.owners(scope)
        if owner is None and len(owners) > 1:
            raise RequestError(f"{scope} is there of several: choose one with --owner ({', '.join(owners)})")
        if not owners or (owner is not None and owner not in owners):
            raise RequestError(
                f"the record has no {scope}; `pellucid record verify` lists what it has", kind="not_found"
            )
        return await kept.record.erase(owner or owners[0], scope, subjects)

    many = _with_store(store or config.store_url(), recording, gone)
    click.echo(f"{_many(many, 'content')} erased.")


@record.command()
@_which
@click.option("--all", "everything", is_flag=True, help="Whatever there is.")
@_where
def accept(owner: str | None, scope: str | None, everything: bool, file: Path | None, store: str | None) -> None:
    """Take chains as they are whose end was written without the key, after you looked at them: their entries are signed
    from then on, and each chain says that it was accepted. Until then `verify` names them."""
    if not (owner or scope or everything):
        raise click.UsageError("Which? Give --scope, --owner, or --all")
    keys = _keys(_config(file))
    if keys is None:
        raise RequestError("there is no key here to seal them with; `pellucid serve` makes it once", kind="not_found")
    many = _with_store(
        store or _config(file).store_url(),
        Recording(signers=keys.signers),
        lambda kept: kept.record.accept(owner=owner, scope=scope),
    )
    click.echo(f"{_many(many, 'chain')} accepted.")


@record.command()
@_where
def key(file: Path | None, store: str | None) -> None:
    """Print the public key, for whoever is to check the record without this gateway."""
    keys = _keys(_config(file))
    if keys is None:
        raise RequestError("there is no key yet; `pellucid serve` makes it once", kind="not_found")
    for public in keys.trusted:
        click.echo(public_pem(public), nl=False)


def _config(file: Path | None) -> Config:
    return read_config(file or DEFAULT_FILE) if file is not None or DEFAULT_FILE.exists() else Config()


def recording_of(config: Config) -> Recording:
    """As the gateway records, for a command that changes what it keeps. Makes no key."""
    keys = _keys(config)
    return Recording(config.record.enabled, keys.signers if keys is not None else ())


def _keys(config: Config) -> RecordKeys | None:
    """The gateway's, if they are here."""
    keys, path = env_record_keys(), config.record_key_path()
    if keys is not None:
        return keys
    return read_record_keys(path) if path.exists() else None


def _with_store(url: str, recording: Recording, do: Callable[[Store], Awaitable[T]]) -> T:
    async def work() -> T:
        store = await open_store(url, recording=recording)
        try:
            return await do(store)
        finally:
            await store.aclose()

    return asyncio.run(work())


def _lines(path: str) -> Iterator[Line]:
    try:
        with click.open_file(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield decode_line(line, number)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None


def _checkpoints(path: Path) -> Iterator[Signed]:
    for line in _lines(str(path)):
        if isinstance(line, CheckpointLine) and line.checkpoint is not None:
            yield Signed(line.checkpoint, line.signature)


@contextmanager
def _writing(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with path.open("wb") as out:
            yield out
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None


def _put(out: IO[bytes], line: Line) -> None:
    out.write(encode_line(line))


def _scope_line(one: ScopeReport) -> str:
    gone = f", {one.gone} gone" if one.gone else ""
    signed = "not signed yet"
    if one.checkpoint is not None and one.signed_at is not None:
        at = datetime.fromtimestamp(one.signed_at / 1000, UTC).isoformat(timespec="seconds")
        signed = f"signed up to {one.signed} (checkpoint {one.checkpoint}, {at})"
    entries = _many(one.entries, "entry", "entries")
    return f"{one.owner} {one.scope}: {entries}, {_many(one.contents, 'content')} there{gone}; {signed}"


def _tell_findings(findings: tuple[Finding, ...]) -> None:
    if not findings:
        click.echo("The record is whole, and everything is as it was recorded.")
        return
    click.echo(f"{_many(len(findings), 'thing')} wrong:")
    for finding in findings:
        click.echo(f"  {finding}")


def _many(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"
