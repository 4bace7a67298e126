"""How long things are kept: over a crash of the gateway, and no longer than its configuration and the key say."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from pellucid.server.access import Policy
from tests.scripted import Upstream, say
from tests.scripted.commands import PELLUCID, Serving
from tests.scripted.gateway import Gateway
from tests.server.state_kit import (
    CALLERS,
    Caller,
    call_ids,
    calls,
    config_of,
    make_keys,
    message,
    output,
    serving,
    url_of,
)

THINKS = say("Let me see.", "It is 42.")


def toml(value: Any) -> str:
    """A table as one line of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(inner)}" for name, inner in value.items()) + "}"
    return msgspec.json.encode(value).decode()


@pytest.fixture
def start(upstream: Upstream, tmp_path: Path) -> Iterator[Callable[[], tuple[Serving, Caller]]]:
    """`pellucid serve` on one file, again and again."""
    file = tmp_path / "pellucid.toml"
    config = config_of(
        upstream, storage={"url": url_of(tmp_path / "store.sqlite")}, local={"enabled": False}, server={"port": 0}
    )
    file.write_text("\n".join(f"{name} = {toml(section)}" for name, section in config.items()))
    running: list[subprocess.Popen[bytes]] = []

    def begin() -> tuple[Serving, Caller]:
        process = subprocess.Popen([*PELLUCID, "serve", "--config", str(file)], stderr=subprocess.PIPE)
        running.append(process)
        served = Serving(process)
        return served, Caller(Gateway(served.port))

    yield begin
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_another_process_finds_everything(start: Any, upstream: Upstream, how: signal.Signals) -> None:
    """What was answered was kept: also when the process is killed that very moment."""
    name = upstream.plays(calls("ask_user"), THINKS)
    first, me = start()
    conversation = me.conversation(message("Hello."), metadata={"a": "b"})
    called = me.said(name, conversation=conversation, tools=[CALLERS])
    alone = me.say(name, [message("One"), message("Two")], stream=True).events[-1]["response"]
    paths = [f"/v1/responses/{called['id']}", f"/v1/responses/{alone['id']}?stream=true"]
    paths += [f"/v1/responses/{alone['id']}/input_items", f"/v1/conversations/{conversation}"]
    paths += [f"/v1/conversations/{conversation}/items"]
    before = [me.do("GET", path).body for path in paths]
    first.stop(how)
    first.end()
    _, me = start()
    assert [me.do("GET", path).body for path in paths] == before
    said = me.said(name, [output(call_ids(called)[0], "Ada")], previous_response_id=called["id"])
    assert said["status"] == "completed"
    assert me.said(name, "And?", conversation=conversation)["status"] == "completed"


def gone(me: Caller, response: str, name: str) -> bool:
    """Whether there is no such response in any way; otherwise it is there in every way."""
    statuses = {
        me.do("GET", f"/v1/responses/{response}").status,
        me.do("GET", f"/v1/responses/{response}?stream=true").status,
        me.do("GET", f"/v1/responses/{response}/input_items").status,
        {400: 404}.get(status := me.say(name, previous_response_id=response, store=False).status, status),
    }
    assert len(statuses) == 1, statuses
    return statuses == {404}


def test_what_expired_is_gone(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the configuration, by the key where that is shorter, and then from the file."""
    monkeypatch.setattr("pellucid.server.services.SWEEP_SECONDS", 0.3)
    url = url_of(tmp_path / "store.sqlite")
    short, long = Policy(retention_seconds=1.0), Policy(retention_seconds=1e6)
    keys = make_keys(url, {"ann": None, "ann/short": short, "ann/long": long})
    name = upstream.plays(THINKS)
    with serving(upstream, url, access={"keys": True}, storage={"retention_seconds": 3.0}) as running:
        callers = {who: Caller(running, key) for who, key in keys.items()}
        began = time.monotonic()
        made = {who: me.said(name)["id"] for who, me in callers.items()}
        talks = {who: me.conversation(message("Hello.")) for who, me in callers.items()}
        ann = callers["ann"]
        assert not any(gone(ann, id, name) for id in made.values())
        time.sleep(max(0.0, began + 1.6 - time.monotonic()))
        assert {who for who, id in made.items() if gone(ann, id, name)} == {"ann/short"}
        statuses = {who: ann.do("GET", f"/v1/conversations/{id}").status for who, id in talks.items()}
        assert statuses == {"ann": 200, "ann/short": 404, "ann/long": 200}
        # A conversation that goes on keeps its beginning.
        chained = ann.said(name, previous_response_id=made["ann"])["id"]
        ann.said(name, "More", conversation=talks["ann"])
        time.sleep(max(0.0, began + 3.6 - time.monotonic()))
        assert gone(ann, made["ann/long"], name), "a key cannot keep longer than the gateway does"
        assert not gone(ann, made["ann"], name)
        assert not gone(ann, chained, name)
        assert ann.do("GET", f"/v1/conversations/{talks['ann']}").status == 200
        assert ann.do("GET", f"/v1/conversations/{talks['ann/long']}").status == 404
        time.sleep(0.7)
        engine = sa.create_engine(url)
        with engine.connect() as door:
            rows = set(door.execute(sa.text("SELECT id FROM responses")).scalars())
            bodies = set(door.execute(sa.text("SELECT response_id FROM response_bodies")).scalars())
            there = set(door.execute(sa.text("SELECT id FROM conversations")).scalars())
        engine.dispose()
        assert rows == bodies
        assert {made["ann"], chained} <= rows
        assert not {made["ann/short"], made["ann/long"]} & rows
        assert there == {talks["ann"]}


def test_nothing_expires_where_nothing_says_so(upstream: Upstream, tmp_path: Path) -> None:
    url, name = url_of(tmp_path / "store.sqlite"), upstream.plays(THINKS)
    with serving(upstream, url, storage={"retention_seconds": None}) as running:
        Caller(running).said(name)
        Caller(running).conversation()
    engine = sa.create_engine(url)
    with engine.connect() as door:
        for table in ("responses", "conversations"):
            assert list(door.execute(sa.text(f"SELECT expires_at FROM {table}")).scalars()) == [None]
    engine.dispose()
