"""`pellucid record`: the tamper-evident record: check it, take it along, erase what was recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar

import click
import msgspec

from ..errors import RequestError
from ..record import (
    CheckpointLine,
    KeyLine,
    Line,
    Recording,
    ScopeReport,
    Verifier,
    ensure_record_keys,
    read_public_keys,
)
from ..record.keys import Signed, public_pem
from ..record.lines import decode_line, encode_line
from ..storage import AlreadyStored, Store
from .kept import configuration, json_option, print_json, record_keys, recording_of, where, with_store

F = TypeVar("F", bound=Callable[..., Any])


def _which(command: F) -> F:
    for name, metavar, help in (
        ("--scope", "S", "Only this: conversation:ID, response:ID or space:NAME."),
        ("--owner", "O", "Only what is this tenant's."),
    ):
        command = click.option(name, metavar=metavar, help=help)(command)
    return command


@click.group()
def record() -> None:
    """The tamper-evident record of what is stored (docs/record.md)."""


@record.command()
@_which
@click.option("--public-key", type=click.Path(path_type=Path), help="The key (PEM) that must have signed it.")
@click.option("--known", type=click.Path(path_type=Path), help="An older export, whose checkpoints must be in it.")
@json_option
@where
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
        keys = record_keys(configuration(file))
        recording = Recording(signers=keys.signers) if keys is not None else None
        verifier = Verifier(trusted if trusted is not None else keys and keys.trusted, recording, before)
        with_store(
            file,
            store,
            lambda kept: kept.record.tell(lambda line: told(verifier.feed(line)), owner=owner, scope=scope),
            there=True,
        )
    report = verifier.end()
    if not report.scopes and report.right and (owner or scope):
        which = " of ".join(one for one in (scope, owner) if one)
        raise RequestError(
            f"the record has nothing of {which}; without it, `verify` lists what there is", kind="not_found"
        )
    if as_json:
        print_json({"right": report.right, **msgspec.to_builtins(report), "chains": scopes})
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
        if report.right:
            click.echo("The record is whole, and everything is as it was recorded.")
        else:
            click.echo(f"{_many(len(report.findings), 'thing')} wrong:")
        for finding in report.findings:
            click.echo(f"  {finding}")
    ctx.exit(0 if report.right else 1)


@record.command()
@_which
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The file to write it to (standard output).")
@where
def export(owner: str | None, scope: str | None, output: Path | None, file: Path | None, store: str | None) -> None:
    """Write the record as lines of JSON: checkpoints, entries, and the contents that are still there. What was not
    signed yet is signed first. `pellucid record verify FILE` checks it, wherever it is."""
    keys = ensure_record_keys(configuration(file).record_key_path())
    lines = [KeyLine(id=id, pem=public_pem(public)) for id, public in keys.trusted.items()]

    async def write(kept: Store) -> None:
        with suppress(AlreadyStored):  # the gateway does it at this moment
            await kept.record.sign()
        with _writing(output) as out:
            await kept.record.tell(lambda line: _put(out, line), owner=owner, scope=scope, keys=lines)

    with_store(file, store, write, Recording(signers=keys.signers), there=True)


@record.command()
@click.option("--owner", metavar="O", help="The tenant whose it is, if several have one of this name.")
@where
@click.argument("scope")
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]…")
def erase(owner: str | None, file: Path | None, store: str | None, scope: str, subjects: tuple[str, ...]) -> None:
    """Erase what was stored in a SCOPE (conversation:ID, response:ID, space:NAME): all of it, or each SUBJECT: the id
    of a response or an item, the number of an envelope. The record says that it was erased, and stays whole; what is
    left of it there can be compared with no guess."""

    async def gone(kept: Store) -> int:
        owners = await kept.record.owners(scope)
        if owner is None and len(owners) > 1:
            raise RequestError(f"{scope} is there of several: choose one with --owner ({', '.join(owners)})")
        if not owners or (owner is not None and owner not in owners):
            raise RequestError(
                f"the record has no {scope}; `pellucid record verify` lists what it has", kind="not_found"
            )
        return await kept.record.erase(owner or owners[0], scope, subjects)

    many = with_store(file, store, gone, recording_of(configuration(file)), there=True)
    if not many and subjects:
        raise RequestError(f"nothing was erased: none of these is in {scope} (any more)", kind="not_found")
    click.echo(f"{_many(many, 'content')} erased.")


@record.command()
@_which
@click.option("--all", "everything", is_flag=True, help="Whatever there is.")
@where
def accept(owner: str | None, scope: str | None, everything: bool, file: Path | None, store: str | None) -> None:
    """Take chains as they are whose end was written without the key, after you looked at them: their entries are signed
    from then on, and each chain says that it was accepted. Until then `verify` names them."""
    if not (owner or scope or everything):
        raise click.UsageError("Which? Give --scope, --owner, or --all")
    keys = record_keys(configuration(file))
    if keys is None:
        raise RequestError("there is no key here to seal them with; `pellucid serve` makes it once", kind="not_found")
    many = with_store(
        file,
        store,
        lambda kept: kept.record.accept(owner=owner, scope=scope),
        Recording(signers=keys.signers),
        there=True,
    )
    click.echo(f"{_many(many, 'chain')} accepted.")


@record.command()
@where
def key(file: Path | None, store: str | None) -> None:
    """Print the public key, for whoever is to check the record without this gateway."""
    keys = record_keys(configuration(file))
    if keys is None:
        raise RequestError("there is no key yet; `pellucid serve` makes it once", kind="not_found")
    for public in keys.trusted.values():
        click.echo(public_pem(public), nl=False)


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


def _many(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"
