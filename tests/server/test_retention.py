"""Retention: stored data survives a crash of the gateway, and is deleted as configuration and key require."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from pellucid.server.access.policy import Policy
from pellucid.storage import Store, open_store
from tests.scripted import Upstream, say
from tests.scripted.commands import PELLUCID, ServeProcess
from tests.scripted.gateway import Gateway
from tests.server.state_kit import (
    CLIENT_FUNCTION,
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
from tests.waiting import wait_until

THINKS = say("Let me see.", "It is 42.")


def toml(value: Any) -> str:
    """Return a table as one line of TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(inner)}" for name, inner in value.items()) + "}"
    return msgspec.json.encode(value).decode()


Start = Callable[[], tuple[ServeProcess, Caller]]


@pytest.fixture
def start(upstream: Upstream, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts `pellucid serve` on the same store."""
    file = tmp_path / "pellucid.toml"
    config = config_of(
        upstream, storage={"url": url_of(tmp_path / "store.sqlite")}, local={"enabled": False}, server={"port": 0}
    )
    file.write_text("\n".join(f"{name} = {toml(section)}" for name, section in config.items()))
    running: list[subprocess.Popen[bytes]] = []

    def begin() -> tuple[ServeProcess, Caller]:
        process = subprocess.Popen([*PELLUCID, "serve", "--config", str(file)], stderr=subprocess.PIPE)
        running.append(process)
        served = ServeProcess(process)
        return served, Caller(Gateway(served.port))

    yield begin
    for process in running:
        process.kill()
        process.communicate()


class StoredHistory:
    """Stored responses of a model, and every path that reads them."""

    def __init__(self, upstream: Upstream, me: Caller) -> None:
        self._model = upstream.plays(calls("ask_user"), THINKS)
        self._conversation = me.conversation(message("Hello."), metadata={"a": "b"})
        self._called = me.create_response(self._model, conversation=self._conversation, tools=[CLIENT_FUNCTION])
        alone = me.say(self._model, [message("One"), message("Two")], stream=True).events[-1]["response"]
        self._paths = [f"/v1/responses/{self._called['id']}", f"/v1/responses/{alone['id']}?stream=true"]
        self._paths += [f"/v1/responses/{alone['id']}/input_items", f"/v1/conversations/{self._conversation}"]
        self._paths += [f"/v1/conversations/{self._conversation}/items"]
        self._before = self._read(me)

    def _read(self, me: Caller) -> list[bytes]:
        return [me.do("GET", path).body for path in self._paths]

    def check_and_continue(self, me: Caller) -> None:
        assert self._read(me) == self._before
        answer = [output(call_ids(self._called)[0], "Ada")]
        assert me.create_response(self._model, answer, previous_response_id=self._called["id"])["status"] == "completed"
        assert me.create_response(self._model, "And?", conversation=self._conversation)["status"] == "completed"


@pytest.mark.needs("long")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_restarted_process_finds_everything(start: Start, upstream: Upstream, how: signal.Signals) -> None:
    """Every response that was sent is stored, even if the process is killed at that moment."""
    first, me = start()
    made = StoredHistory(upstream, me)
    first.stop(how)
    first.end()
    _, me = start()
    made.check_and_continue(me)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_restarted_gateway_finds_everything(upstream: Upstream, tmp_path: Path, how: str) -> None:
    """The same in one process: a killed gateway leaves its files as they are at that moment."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    with serving(upstream, url_of(here / "store.sqlite")) as running:
        made = StoredHistory(upstream, Caller(running))
        if how == "killed":
            shutil.copytree(here, there)
    with serving(upstream, url_of((there if how == "killed" else here) / "store.sqlite")) as running:
        made.check_and_continue(Caller(running))


def is_gone(me: Caller, response: str, name: str) -> bool:
    """Return whether a response is gone, after checking that all ways to read it agree."""
    statuses = {
        me.do("GET", f"/v1/responses/{response}").status,
        me.do("GET", f"/v1/responses/{response}?stream=true").status,
        me.do("GET", f"/v1/responses/{response}/input_items").status,
        {400: 404}.get(status := me.say(name, previous_response_id=response, store=False).status, status),
    }
    assert len(statuses) == 1, statuses
    return statuses == {404}


def test_expired_responses_and_conversations_are_deleted(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the configured time, or the shorter time of the key; finally, the rows are deleted."""
    elapsed_seconds, time_of_day, ns_of_day = 0, time.time, time.time_ns

    async def opens(url: str, **more: Any) -> Store:
        return await open_store(url, clock=lambda: time_of_day() + elapsed_seconds, **more)

    monkeypatch.setattr("time.time", lambda: time_of_day() + elapsed_seconds)
    monkeypatch.setattr("time.time_ns", lambda: ns_of_day() + elapsed_seconds * 1_000_000_000)
    monkeypatch.setattr("pellucid.server.services.open_store", opens)
    monkeypatch.setattr("pellucid.server.services.SWEEP_SECONDS", 0.02)
    url = url_of(tmp_path / "store.sqlite")
    short, long = Policy(retention_seconds=1000.0), Policy(retention_seconds=1e6)
    keys = make_keys(url, {"ann": None, "ann/short": short, "ann/long": long})
    name = upstream.plays(THINKS)
    with serving(upstream, url, access={"keys": True}, storage={"retention_seconds": 3000.0}) as running:
        callers = {who: Caller(running, key) for who, key in keys.items()}
        response_ids = {who: me.create_response(name)["id"] for who, me in callers.items()}
        conversations = {who: me.conversation(message("Hello.")) for who, me in callers.items()}
        ann = callers["ann"]
        assert not any(is_gone(ann, id, name) for id in response_ids.values())
        elapsed_seconds = 1600
        assert {who for who, id in response_ids.items() if is_gone(ann, id, name)} == {"ann/short"}
        statuses = {who: ann.do("GET", f"/v1/conversations/{id}").status for who, id in conversations.items()}
        assert statuses == {"ann": 200, "ann/short": 404, "ann/long": 200}
        # A conversation that is continued keeps its start.
        chained = ann.create_response(name, previous_response_id=response_ids["ann"])["id"]
        ann.create_response(name, "More", conversation=conversations["ann"])
        elapsed_seconds = 3600
        assert is_gone(ann, response_ids["ann/long"], name), "a key cannot extend the retention of the gateway"
        assert not is_gone(ann, response_ids["ann"], name)
        assert not is_gone(ann, chained, name)
        assert ann.do("GET", f"/v1/conversations/{conversations['ann']}").status == 200
        assert ann.do("GET", f"/v1/conversations/{conversations['ann/long']}").status == 404
        engine = sa.create_engine(url)

        def stored(column: str, table: str) -> set[str]:
            with engine.connect() as connection:
                return set(connection.execute(sa.text(f"SELECT {column} FROM {table}")).scalars())

        wait_until(
            lambda: not {response_ids["ann/short"], response_ids["ann/long"]} & stored("id", "responses"),
            "it was swept",
        )
        wait_until(lambda: stored("id", "conversations") == {conversations["ann"]}, "they were swept")
        rows, bodies, conversation_ids = (
            stored("id", "responses"),
            stored("response_id", "response_bodies"),
            stored("id", "conversations"),
        )
        engine.dispose()
        assert rows == bodies
        assert {response_ids["ann"], chained} <= rows
        assert not {response_ids["ann/short"], response_ids["ann/long"]} & rows
        assert conversation_ids == {conversations["ann"]}


def test_nothing_expires_without_a_retention(upstream: Upstream, tmp_path: Path) -> None:
    url, name = url_of(tmp_path / "store.sqlite"), upstream.plays(THINKS)
    with serving(upstream, url, storage={"retention_seconds": None}) as running:
        Caller(running).create_response(name)
        Caller(running).conversation()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        for table in ("responses", "conversations"):
            assert list(connection.execute(sa.text(f"SELECT expires_at FROM {table}")).scalars()) == [None]
    engine.dispose()
