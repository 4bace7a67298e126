"""`pellucid record`: verifies and exports the tamper-evident record, and erases recorded contents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from ..errors import RequestError
from ..record import CheckpointLine, KeyLine, Line, Recording, Report, ScopeReport, Verifier
from ..record.chain import decode_line
from ..record.keys import public_pem, read_public_keys, read_recording
from ..storage import AlreadyStored, Store
from .options import option_group
from .store_access import json_option, load_configuration, print_json, recording_of, store_options, with_store

_scope_options = option_group(
    click.option("--scope", metavar="S", help="Only this scope: conversation:ID, response:ID or space:NAME."),
    click.option("--owner", metavar="O", help="Only this tenant's."),
)


@click.group()
def record() -> None:
    """The tamper-evident record of what is stored (docs/record.md)."""


@record.command()
@_scope_options
@click.option("--public-key", type=click.Path(path_type=Path), help="The key (PEM) that must have signed it.")
@click.option("--known", type=click.Path(path_type=Path), help="An older export, whose checkpoints must be in it.")
@json_option
@store_options
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
    """Verify that the record is complete, and that the stored contents are those that were recorded. Checks the store,
    or only an export (FILE). If anything is wrong, it prints the entry, and the exit status is 1."""
    trusted = read_public_keys(public_key) if public_key is not None else {}
    known_lines = _read_lines(str(known)) if known is not None else ()
    known_checkpoints = [line for line in known_lines if isinstance(line, CheckpointLine)]
    scopes: list[ScopeReport] = []

    def feed(line: Line) -> None:
        if (chain := verifier.feed(line)) is not None:
            if as_json:
                scopes.append(chain)
            else:
                click.echo(_describe(chain))

    if exported is not None:
        if owner is not None or scope is not None:
            raise RequestError("--owner and --scope select a part of a store; an export is always checked completely")
        verifier = Verifier(trusted, known=known_checkpoints)
        for line in _read_lines(exported):
            feed(line)
    else:
        recording = _read_recording(file)
        verifier = Verifier(trusted or recording.trusted, recording, known_checkpoints)
        with_store(file, store, lambda opened: opened.record.export(feed, owner=owner, scope=scope), must_exist=True)
    report = verifier.end()
    if not report.scopes and report.is_ok and (owner or scope):
        scope_name = " of ".join(one for one in (scope, owner) if one)
        message = f"the record has nothing of {scope_name}; `verify` without it lists what there is"
        raise RequestError(message, kind="not_found")
    if as_json:
        print_json({"right": report.is_ok, **msgspec.to_builtins(report), "chains": scopes})
    else:
        _print_report(report)
    ctx.exit(0 if report.is_ok else 1)


def _describe(chain: ScopeReport) -> str:
    entries, contents = _count_of(chain.entries, "entry", "entries"), _count_of(chain.contents, "content")
    gone, signed = f", {chain.gone} gone" if chain.gone else "", "not signed yet"
    if chain.signed_at is not None:
        signed_at = datetime.fromtimestamp(chain.signed_at / 1000, UTC).isoformat(timespec="seconds")
        signed = f"signed up to {chain.signed} (checkpoint {chain.checkpoint}, {signed_at})"
    return f"{chain.owner} {chain.scope}: {entries}, {contents} there{gone}; {signed}"


def _print_report(report: Report) -> None:
    click.echo(
        f"{_count_of(report.scopes, 'chain')} with {_count_of(report.entries, 'entry', 'entries')}: "
        f"{_count_of(report.contents, 'content')} as recorded, {report.gone} gone; "
        f"{_count_of(report.checkpoints, 'checkpoint')}."
    )
    if report.before:
        click.echo(f"{report.before} stored before the record began.")
    if report.checkpoints and report.keys == "own":
        click.echo("The signatures were checked with the key in the export; use --public-key to check whose key it is.")
    if report.is_ok:
        click.echo("The record is complete, and everything is as it was recorded.")
    else:
        click.echo(f"{_count_of(len(report.findings), 'problem')} found:")
    for finding in report.findings:
        click.echo(f"  {finding}")


@record.command()
@_scope_options
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The file to write it to (standard output).")
@store_options
def export(owner: str | None, scope: str | None, output: Path | None, file: Path | None, store: str | None) -> None:
    """Write the record as lines of JSON: checkpoints, entries, and the contents that are still stored. Entries that are
    not signed yet are signed first. `pellucid record verify FILE` checks the export on any machine."""
    recording = _read_recording(file, create=True)
    keys = [KeyLine(id=id, pem=public_pem(public)) for id, public in recording.trusted.items()]

    async def write(opened: Store) -> None:
        with suppress(AlreadyStored):  # the gateway is signing at this moment
            await opened.record.sign()
        with _file_errors(output), output.open("wb") if output else nullcontext(sys.stdout.buffer) as out:
            await opened.record.export(
                lambda line: out.write(msgspec.json.encode(line) + b"\n"), owner=owner, scope=scope, keys=keys
            )
            out.flush()

    with_store(file, store, write, recording, must_exist=True)


@record.command()
@click.option("--owner", metavar="O", help="The tenant, if several have a scope of this name.")
@store_options
@click.argument("scope")
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]…")
def erase(owner: str | None, file: Path | None, store: str | None, scope: str, subjects: tuple[str, ...]) -> None:
    """Erase the contents of a SCOPE (conversation:ID, response:ID, space:NAME): all of them, or each SUBJECT, which is
    the id of a response or an item, or the number of an envelope. The record notes that they were erased, and stays
    verifiable. The digests that remain in it cannot be used to test a guess of the contents."""

    async def erase_contents(opened: Store) -> int:
        owners = await opened.record.owners_of(scope)
        if owner is None and len(owners) > 1:
            raise RequestError(f"{scope} exists for several owners; choose one with --owner ({', '.join(owners)})")
        if not owners or owner not in (None, *owners):
            message = f"the record has no {scope}; `pellucid record verify` lists what it has"
            raise RequestError(message, kind="not_found")
        return await opened.record.erase(owner or owners[0], scope, subjects)

    count = with_store(file, store, erase_contents, recording_of(load_configuration(file)), must_exist=True)
    if not count and subjects:
        raise RequestError(f"nothing was erased: none of these is in {scope} (any more)", kind="not_found")
    click.echo(f"{_count_of(count, 'content')} erased.")


@record.command()
@_scope_options
@click.option("--all", "everything", is_flag=True, help="All chains.")
@store_options
def accept(owner: str | None, scope: str | None, everything: bool, file: Path | None, store: str | None) -> None:
    """Accept chains whose last entries were written without the key, after you have inspected them. Their entries are
    signed from then on, and each chain notes that it was accepted. Until then, `verify` lists them."""
    if not (owner or scope or everything):
        raise click.UsageError("Select the chains with --scope, --owner, or --all")
    recording = _read_recording(file, missing="there is no key here to sign them with")
    count = with_store(
        file, store, lambda opened: opened.record.accept(owner=owner, scope=scope), recording, must_exist=True
    )
    click.echo(f"{_count_of(count, 'chain')} accepted.")


@record.command()
@store_options
def key(file: Path | None, store: str | None) -> None:
    """Print the public key, which others need to check the record without this gateway."""
    for public in _read_recording(file, missing="there is no key yet").trusted.values():
        click.echo(public_pem(public), nl=False)


def _read_recording(file: Path | None, *, create: bool = False, missing: str | None = None) -> Recording:
    """Return the gateway's keys. If there are none, raise an error with the message `missing`, if it is not None."""
    recording = read_recording(load_configuration(file).record_key_path(), create=create)
    if missing is not None and not recording.signers:
        raise RequestError(f"{missing}; `pellucid serve` creates it once", kind="not_found")
    return recording


@contextmanager
def _file_errors(path: object) -> Iterator[None]:
    """Convert errors of reading or writing a file to `RequestError`."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        raise RequestError(f"{path}: {error.strerror or error}") from None


def _read_lines(path: str) -> Iterator[Line]:
    with _file_errors(path), click.open_file(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield decode_line(line, number)


def _count_of(number: int, one: str, more: str | None = None) -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"
