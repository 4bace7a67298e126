"""The views of a run at `/ag-ui` in every dialect, and the choice of the dialect."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import product
from typing import Any, get_args

import pytest
from ag_ui.core import Event as TheirEvent
from pydantic import TypeAdapter

from pellucid.protocols import agui
from pellucid.protocols.agui import DialectName
from pellucid.protocols.agui.side_events import SHOWN_FIELDS
from pellucid.server.access.policy import Policy
from pellucid.server.config import check_config
from tests.agui.agui_gateway_kit import ON, USER, WEATHER, Agent, post, run, run_input, streamed, texts
from tests.agui.agui_kit import events_of
from tests.cases import Cases
from tests.scripted import Upstream, say
from tests.scripted.gateway import Served, serve
from tests.server.seal_kit import CANARIES, MORE, SECRET, SUMMARY, Canary, configured, keyed, name_of
from tests.server.state_kit import Caller, config_of, make_keys
from tests.server.state_kit import serving as serving_keys

LESSER = ["summary", "sealed", "hidden"]
DIALECTS: list[DialectName] = ["1.0", "0.x", "thinking", "proposal"]
STATEFUL = Agent(
    "agent:stateful",
    [
        agui.StateSnapshotEvent(snapshot={"n": 1}, raw_event={"thought": SECRET}).as_side_event(),
        agui.StateDeltaEvent(delta=[], metadata={"thought": SECRET}).as_side_event(),
        agui.StepStartedEvent(step_name="plan").as_side_event(),
        agui.ActivitySnapshotEvent(message_id="act", activity_type="plan", content={"done": 0}).as_side_event(),
        agui.RawEvent(event={"thought": SECRET}).as_side_event(),
        agui.CustomEvent(name="thought", value=SECRET).as_side_event(),
        agui.ReasoningMessageChunkEvent(message_id="mused", delta=SECRET).as_side_event(),
        agui.TextMessageChunkEvent(message_id="said", delta=SECRET).as_side_event(),
        agui.MessagesSnapshotEvent(messages=[agui.ReasoningMessage(id="r", content=SECRET)]).as_side_event(),
        lambda emitter: emitter.thinking("k", SECRET),
        lambda emitter: emitter.text("t", "The answer."),
    ],
)


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with keyed():
        config = check_config(configured(upstream), {"SOME_KEY": "none-of-a-provider"})
        with serve(config, more=[STATEFUL]) as running:
            yield running


@pytest.fixture(autouse=True)
def _logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield
    assert SECRET not in caplog.text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_withheld_byte_leaves(gateway: Served, upstream: Upstream, dialect: DialectName) -> None:
    with Cases() as case:
        for canary in [*CANARIES, *MORE]:
            with case(f"{canary.row}-{canary.name}"):
                check_lesser_views(gateway, name_of(upstream, canary), canary, dialect)


def check_lesser_views(gateway: Served, model: str, canary: Canary, dialect: DialectName) -> None:
    for view in LESSER:
        for more in ({}, {"chunks": "true", "snapshot": "true"}):
            reply = post(gateway, model, run_input(tools=[WEATHER]), view=view, dialect=dialect, **more)
            assert SECRET.encode() not in reply.body
            assert SECRET not in str(reply.headers)
            assert view == "summary" or SUMMARY.encode() not in reply.body
            if reply.status == 200:
                events = streamed(reply, dialect)
                assert canary.answers is False or texts(events, "TEXT_MESSAGE").endswith("The answer.")
                thought = [event for event in events if event["type"].startswith(("REASONING", "THINKING"))]
                assert not (thought and view == "hidden")
                assert b"encrypted" not in reply.body or view != "hidden"


@pytest.mark.parametrize("view", LESSER)
def test_no_withheld_byte_leaves_over_the_binary_transport(gateway: Served, upstream: Upstream, view: str) -> None:
    kind = "application/vnd.ag-ui.event+proto"
    for model in [STATEFUL.name, *(name_of(upstream, canary) for canary in [*CANARIES, *MORE])]:
        reply = post(gateway, model, None, {"Accept": kind}, view=view, dialect="1.0", snapshot="true")
        assert SECRET.encode() not in reply.body
        assert reply.status != 200 or reply.headers["content-type"] == kind


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_agent_s_side_events_leave_without_its_model_s_reasoning(gateway: Served, dialect: DialectName) -> None:
    for view in LESSER:
        reply = post(gateway, STATEFUL.name, view=view, dialect=dialect)
        assert SECRET.encode() not in reply.body
        kinds = [event["type"] for event in streamed(reply, dialect)]
        assert kinds[1:4] == ["STATE_SNAPSHOT", "STATE_DELTA", "STEP_STARTED"]
        assert ("ACTIVITY_SNAPSHOT" in kinds) is (dialect != "thinking")
        assert texts(streamed(reply, dialect), "TEXT_MESSAGE") == "The answer."
    raw = post(gateway, STATEFUL.name, dialect=dialect).body
    assert raw.count(SECRET.encode()) >= 6, "the raw view has the content"


def test_the_allow_list_names_fields_of_side_events() -> None:
    classes = {cls.__struct_config__.tag: cls for cls in get_args(agui.AGUIEvent)}
    for (namespace, name), fields in SHOWN_FIELDS.items():
        if namespace == "agui" and fields is not None:
            known = set((agui.Interrupt if name == "interrupt" else classes[name]).__struct_encode_fields__)
            assert fields - {"subagentRunId"} <= known, name
            assert name == "interrupt" or not fields & {"metadata", "rawEvent"}


def test_the_form_of_reasoning_is_in_metadata(gateway: Served, upstream: Upstream) -> None:
    [claude] = [one for one in CANARIES if (one.row, one.name) == ("anthropic", "stream")]
    [vllm] = [one for one in CANARIES if (one.row, one.name) == ("vllm", "reasoning")]
    for canary, view, form in ((claude, "raw", "summary"), (vllm, "raw", "raw"), (vllm, "sealed", "redacted")):
        for dialect in DIALECTS[:2]:
            events = run(gateway, name_of(upstream, canary), dialect=dialect, view=view)
            start = next(event for event in events if event["type"] == "REASONING_MESSAGE_START")
            assert start["metadata"] == {"pellucid": {"form": form}}, (canary.row, view)


# --- which dialect -----------------------------------------------------------------------------------------------


def dialect_of(events: list[dict[str, Any]]) -> str:
    if any(event["type"].startswith("THINKING_") for event in events):
        return "thinking"
    if any(event.get("role") == "assistant" and event["type"] == "REASONING_MESSAGE_START" for event in events):
        return "proposal"
    return str(events[0].get("protocolVersion", "0.x"))


@pytest.mark.parametrize("usual", [None, "thinking"])
def test_the_query_precedes_props_header_and_version(upstream: Upstream, usual: str | None) -> None:
    server = {} if usual is None else {"agui_dialect": usual}
    with serve(config_of(upstream, server=server)) as gateway:
        model = f"vllm:{upstream.plays(say())}"

        def dialect_for(version: str | None, header: str | None, props: str | None, query: str | None) -> str:
            more: dict[str, Any] = {} if version is None else {"protocolVersion": version}
            forwarded: dict[str, Any] = {"forwardedProps": {"pellucid": {} if props is None else {"dialect": props}}}
            headers = {} if header is None else {"AG-UI-Dialect": header}
            named = {} if query is None else {"dialect": query}
            reply = post(gateway, model, run_input(**more, **forwarded), headers, **named)
            events = [json.loads(line.removeprefix("data: ")) for line in reply.body.decode().split("\n\n") if line]
            return dialect_of(events)

        assert dialect_for(None, None, None, None) == (usual or "0.x")
        assert dialect_for("1.0", None, None, None) == "1.0"
        assert dialect_for("0.9", None, None, None) == "0.x"
        assert dialect_for("1.0", "Proposal", None, None) == "proposal"
        assert dialect_for("1.0", "proposal", "thinking", None) == "thinking"
        assert dialect_for("1.0", "proposal", "thinking", "0.x") == "0.x"


def test_without_counts_the_stream_has_no_usage(upstream: Upstream, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    keys = make_keys(url, {"acme/some": Policy(counts=False), "acme/all": None})
    with serving_keys(upstream, url, access={"keys": True}) as gateway:
        path = f"/ag-ui?model=vllm:{upstream.plays(say())}"
        for dialect in DIALECTS:
            some = Caller(gateway, keys["acme/some"]).do("POST", f"{path}&dialect={dialect}", run_input())
            every = Caller(gateway, keys["acme/all"]).do("POST", f"{path}&dialect={dialect}", run_input())
            assert b"okens" not in some.body
            assert b"usage" not in some.body
            assert streamed(every, dialect)[-1]["usage"][0]["outputTokens"] == 9


# --- the official classes for Python -----------------------------------------------------------------------------


def without_none(value: Any) -> Any:
    return {name: one for name, one in value.items() if one is not None}


theirs: TypeAdapter[Any] = TypeAdapter(TheirEvent)


@pytest.mark.parametrize("dialect", ["1.0", "0.x"])
@pytest.mark.parametrize("view", ["raw", *LESSER])
def test_the_official_python_classes_round_trip_every_event(
    gateway: Served, upstream: Upstream, view: str, dialect: DialectName
) -> None:
    models = [name_of(upstream, canary) for canary in [*CANARIES, *MORE]]
    kinds = set()
    for model, more in [(STATEFUL.name, {}), *product(models, ({"snapshot": "true"}, {"chunks": "true"}))]:
        body = run_input(USER, {"id": "a", "role": "assistant", "content": "Hm."}, ON, tools=[WEATHER])
        reply = post(gateway, model, body, view=view, dialect=dialect, **more)
        for event in events_of(reply.body) if reply.status == 200 else []:
            read = theirs.validate_python(event)
            assert read.type == event["type"]
            assert read.model_dump(mode="json", by_alias=True, exclude_none=True) == without_none(event)
            kinds.add(event["type"])
    assert {"MESSAGES_SNAPSHOT", "RUN_ERROR", "TEXT_MESSAGE_CHUNK", "TOOL_CALL_ARGS", "STATE_DELTA"} <= kinds
    assert ("REASONING_ENCRYPTED_VALUE" in kinds) is (view != "hidden")
