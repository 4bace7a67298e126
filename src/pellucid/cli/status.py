"""`pellucid status`: shows what a running gateway does: models, runs that have not ended, failures.

`pellucid status cancel`: cancels a run.

Exit status: 0 if the gateway is ready, 3 if it answers but is not ready, 1 if it does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import quote

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..errors import PellucidError
from ..server.status import DeploymentStatus, GatewayStatus
from .gateway_client import GatewayClient, gateway_options
from .options import strip_controls
from .store_access import widened

NOT_READY = 3
"""The exit status if the gateway answers and is not ready."""

WATCH_SECONDS = 2.0

MAX_ROWS = 20
"""How many failures, and models that work, the page shows."""

_STYLES = {
    "ready": "green",
    "available": "green",
    "not_ready": "red",
    "no_answer": "red",
    "stopping": "yellow",
    "loading": "yellow",
    "cooling": "red",
    "failing": "red",
    "thinking": "cyan",
    "tools": "yellow",
}

_status_decoder = msgspec.json.Decoder(GatewayStatus)


@click.group(invoke_without_command=True)
@gateway_options
@click.option("--json", "as_json", is_flag=True, help="Print what the gateway reports, as JSON.")
@click.option("--watch", is_flag=True, help=f"Show it again every {WATCH_SECONDS:g} seconds.")
@click.pass_context
def status(ctx: click.Context, url: str, key_env: str | None, as_json: bool, watch: bool) -> None:
    """Show what a running gateway does: models, runs that have not ended, failures.

    The exit status is 0 if it is ready, 3 if it is not ready, and 1 if it does not answer.
    """
    client = ctx.obj = GatewayClient.from_options(url, key_env)
    if ctx.invoked_subcommand is not None:
        return
    if watch:
        with suppress(KeyboardInterrupt):
            _watch(client, as_json)
        ctx.exit(0)
    body, reported = client.read("/api/status", _status_decoder)
    if as_json:
        click.echo(body)
    else:
        widened(Console(highlight=False, emoji=False)).print(page_of(reported))
    ctx.exit(0 if reported.ready else NOT_READY)


@status.command()
@click.argument("run")
@click.pass_obj
def cancel(client: GatewayClient, run: str) -> None:
    """Cancel the run with the id RUN, of whichever owner. Its client gets the error `cancelled_by_operator`."""
    client.request("POST", f"/api/status/runs/{quote(run, safe='')}/cancel")
    click.echo(f"cancelled {run}")


def _watch(client: GatewayClient, as_json: bool) -> None:
    """Show the state until the user stops it. At a terminal, also while the gateway does not answer."""
    console = widened(Console(highlight=False, emoji=False))
    if as_json or not console.is_terminal:
        while True:
            body, reported = client.read("/api/status", _status_decoder)
            if as_json:
                click.echo(body)
            else:
                console.print(page_of(reported), Text())
            time.sleep(WATCH_SECONDS)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            page: RenderableType
            try:
                page = page_of(client.read("/api/status", _status_decoder)[1])
            except PellucidError as error:
                page = _text(error.info.message, "red")
            live.update(page, refresh=True)
            time.sleep(WATCH_SECONDS)


# --- the page ---------------------------------------------------------------------------------------------------------


def page_of(reported: GatewayStatus) -> Group:
    """Return the page that shows a report."""
    counts = reported.counts
    sections: list[RenderableType] = [
        _text(f"pellucid {reported.version}: {'ready' if reported.ready else 'not ready'}", "bold"),
        _text(
            f"{counts.live} live runs; since the start {counts.completed} completed, {counts.incomplete} incomplete, "
            f"{counts.failed} failed, {counts.cancelled} cancelled"
        ),
        _table(
            ("replica", "state", "up", "runs", ""),
            (
                (
                    replica.id,
                    replica.state,
                    "" if replica.started_at is None else _duration(time.time() - replica.started_at),
                    str(replica.counts.live),
                    "; ".join(replica.reasons),
                )
                for replica in reported.replicas
            ),
        ),
    ]
    rows = [(model.name, one) for model in reported.models for one in model.deployments]
    # Those that do not work come first.
    rows.sort(key=lambda row: row[1].state == "available")
    shown = [row for number, row in enumerate(rows) if number < MAX_ROWS or row[1].state != "available"]
    if shown:
        cells = ((name, one.name, one.state, _describe_health(one)) for name, one in shown)
        sections += [Text(), _table(("model", "deployment", "state", ""), cells)]
    if len(rows) > len(shown):
        sections.append(_text(f"and {len(rows) - len(shown)} more that are available", "dim"))
    if reported.runs:
        sections += [Text(), _runs_table(reported)]
    if reported.failures:
        sections += [Text(), _failures_table(reported)]
    return Group(*sections)


def _runs_table(reported: GatewayStatus) -> Table:
    return _table(
        ("run", "state", "time", "characters", "model", "deployment", "owner", "protocol", ""),
        (
            (
                run.id,
                run.state,
                _duration(run.seconds),
                str(run.characters),
                run.model or "",
                run.deployment,
                run.owner,
                run.protocol,
                "" if run.attached else "in the background",
            )
            for run in reported.runs
        ),
    )


def _failures_table(reported: GatewayStatus) -> Table:
    return _table(
        ("failure", "model", "deployment", "kind", "status", "code", "request", ""),
        (
            (
                _clock(one.time),
                one.model or "",
                one.deployment or "",
                one.kind,
                "" if one.status is None else str(one.status),
                one.code or "",
                one.request_id or "",
                "tried again" if one.was_retried else "",
            )
            for one in reported.failures[:MAX_ROWS]
        ),
    )


def _describe_health(one: DeploymentStatus) -> str:
    words: list[str] = []
    if one.cooling_until is not None:
        words.append(f"for {_duration(one.cooling_until - time.time())} more")
    if one.failures and one.last_failure is not None:
        last = one.last_failure
        error = " ".join(str(word) for word in (last.status, last.code or last.kind) if word is not None)
        words.append(f"failures: {one.failures}, the last at {_clock(last.time)}: {error}")
    return "; ".join(words)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        # What is copied into another command, or compared, stays in one line.
        is_id = heading in ("run", "request", "failure", "state", "time", "kind", "status")
        table.add_column(heading, overflow="fold", no_wrap=is_id)
    for row in rows:
        table.add_row(*(_text(cell, _STYLES.get(cell, "")) for cell in row))
    return table


def _text(text: str, style: str = "") -> Text:
    """Return a text that cannot control the terminal: names may come from clients."""
    return Text(strip_controls(text), style=style)


def _duration(seconds: float) -> str:
    seconds = max(0, round(seconds))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def _clock(time_seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_seconds))
