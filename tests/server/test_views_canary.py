"""A marker in every carrier of reasoning on every wire is in no byte and no log line of a stricter view."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from tests.scripted import Call, Upstream
from tests.scripted.gateway import Reply
from tests.server.loop_kit import legal_events
from tests.server.seal_kit import CANARIES, MORE, SECRET, Canary, name_of
from tests.server.view_keys import LESSER, SEALS, Keys, with_each_view, with_keys


@pytest.fixture(scope="module")
def keyed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    with with_keys(upstream, tmp_path_factory.mktemp("views")) as made:
        yield made


@pytest.fixture(autouse=True)
def _logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no log record of any level contains the marker."""
    with caplog.at_level(logging.DEBUG):
        yield
    for record in caplog.records:
        assert SECRET not in record.getMessage(), record.name
        assert SECRET not in str(record.exc_info), record.name


def assert_no_secret(*replies: Reply) -> None:
    for reply in replies:
        assert SECRET.encode() not in reply.body
        assert SECRET not in str(reply.headers)


@with_each_view([*CANARIES, *MORE])
def test_streamed_and_whole_responses_hide_the_marker(
    keyed: Keys, upstream: Upstream, canary: Canary, view: str
) -> None:
    model = name_of(upstream, canary)
    live = keyed.ask(view, model, stream=True, include=SEALS)
    assert_no_secret(
        live, keyed.ask(view, model, include=SEALS), keyed.chat(view, model, stream=True), keyed.chat(view, model)
    )
    if live.status == 200:
        items = legal_events(live)[-1]["response"]["output"]
        reasoning = [item for item in items if item["type"] == "reasoning"]
        assert not (reasoning and view == "hidden")
        assert not any(item["summary"] for item in reasoning if view == "sealed")
        assert not any("content" in item for item in reasoning)
        assert canary.answers is False or any(item["type"] == "message" for item in items)


@with_each_view([*CANARIES, *MORE])
def test_a_requested_view_and_later_reads_hide_the_marker(
    keyed: Keys, upstream: Upstream, canary: Canary, view: str
) -> None:
    model = name_of(upstream, canary)
    assert_no_secret(keyed.ask("raw", model, {"Pellucid-View": view}, stream=True))
    assert_no_secret(
        keyed.gateway.request(
            "POST",
            f"/v1/responses?view={view}",
            json.dumps({"model": model, "input": "Why?"}).encode(),
            {"Content-Type": "application/json", **keyed.headers("raw")},
        )
    )
    conversation = keyed.conversation()
    made = keyed.ask("raw", model, stream=True, include=SEALS, conversation=conversation)
    if made.status != 200:
        return
    id = made.events[0]["response"]["id"]
    paths = [f"/v1/responses/{id}", f"/v1/responses/{id}?stream=true", f"/v1/responses/{id}/input_items"]
    paths += [f"/v1/responses/{id}?stream=true&starting_after=3", f"/v1/conversations/{conversation}/items"]
    paths += [f"/v1/responses/{id}?include=reasoning.encrypted_content"]
    for path in paths:
        reply = keyed.get(view, path)
        assert reply.status == 200, reply.body
        assert_no_secret(reply)
        assert_no_secret(keyed.get("raw", f"{path}{'&' if '?' in path else '?'}view={view}"))
    for item in keyed.get("raw", f"/v1/conversations/{conversation}/items").json["data"]:
        assert_no_secret(keyed.get(view, f"/v1/conversations/{conversation}/items/{item['id']}"))


REFUSING = ["deepseek", "anthropic", "google", "openai-responses", "mistral", "bedrock"]
STATUSES = [400, 401, 404, 429, 500, 503]


@pytest.mark.parametrize(
    ("row", "status"),
    [
        # In the core circle, each row has two statuses, and each status two rows.
        pytest.param(row, status, marks=() if (number + place) % 3 == 0 else pytest.mark.needs("long"))
        for number, row in enumerate(REFUSING)
        for place, status in enumerate(STATUSES)
    ],
)
def test_errors_before_the_stream_hide_the_marker(keyed: Keys, upstream: Upstream, row: str, status: int) -> None:
    async def script(call: Call) -> None:
        error = {"message": SECRET, "type": SECRET, "code": SECRET, "param": SECRET, "status": SECRET}
        await call.answer(status, json.dumps({"error": error, "message": SECRET, "detail": SECRET}).encode())

    [canary] = [one for one in CANARIES if one.row == row][:1]
    model = name_of(upstream, canary, script)
    for view in LESSER:
        for stream in (True, False):
            for reply in (keyed.ask(view, model, stream=stream), keyed.chat(view, model, stream=stream)):
                assert reply.status >= 400
                assert_no_secret(reply)


def test_the_marker_is_visible_in_the_raw_view(keyed: Keys, upstream: Upstream) -> None:
    for canary in CANARIES:
        if canary.name in ("stream", "fields"):
            reply = keyed.ask("raw", name_of(upstream, canary), stream=True)
            assert (SECRET.encode() in reply.body) is (canary.row not in ("anthropic", "google", "bedrock")), canary.row
