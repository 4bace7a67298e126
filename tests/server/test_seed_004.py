"""The specification "Reasoning Streaming Events" (seed 004), whole and by name: what a client receives over HTTP.

`encoding` names the test of the same rule in tests/openresponses/test_openresponses_seed_004.py, which tests
one encoder without HTTP. `-` stands for a rule that has no such test.

    id      requirement                                       over HTTP, here                       encoding
    FR-001  deltas carry the reasoning                        test_fr_001_reasoning_deltas          test_fr_001_reasoning_deltas_carry_the_reasoning_token_by_token
    FR-002  a done event when the reasoning is over           test_fr_002_reasoning_done            test_fr_002_reasoning_done_comes_once_when_the_reasoning_is_over
    FR-003  item_id, output_index, content_index              test_fr_003_where_it_belongs          test_fr_003_reasoning_events_name_the_reasoning_item_and_its_indexes
    FR-004  sequence numbers, over all events                 test_fr_004_sequence_numbers          test_fr_004_sequence_numbers_increase_over_all_events_of_the_stream
    FR-005  an output item, streamed and whole                test_fr_005_an_output_item            test_fr_005_reasoning_is_an_output_item_streamed_and_not
    FR-006  before the message                                test_fr_006_before_the_message        test_fr_006_the_reasoning_item_stands_before_the_message
    FR-007  nothing of it for models that do not reason       test_fr_007_nothing_for_others        test_fr_007_models_that_do_not_reason_give_no_reasoning_events
    FR-008  the text's events stay what they were             test_fr_008_the_text_s_events         test_fr_008_the_sequence_of_text_events_is_unchanged
    FR-009  the OpenAPI document has the events               test_fr_009_the_openapi_document      test_fr_009_the_openapi_document_describes_the_reasoning_events
    FR-010  at least 17 kinds of events                       test_fr_010_seventeen_kinds           test_fr_010_there_are_at_least_17_event_types
    SC-001  reasoning is seen before the answer begins        test_sc_001_seen_before_the_answer    test_sc_001_reasoning_is_visible_before_the_answer_begins
    SC-002  no regression: the rest is as without it          test_sc_002_the_rest_is_as_it_was     -
    SC-003  the conformance suite stays whole                 test_sc_003_the_conformance_suite     -
    SC-004  the sequence of a reasoning model by its server   test_sc_004_the_expected_sequence     test_sc_004_the_expected_sequence_of_a_reasoning_model
    US1-1   deltas while the model thinks                     test_us1_1_deltas_while_it_thinks     test_story_1_scenario_1_each_piece_of_reasoning_is_a_delta_as_it_comes
    US1-2   done before text begins                           test_us1_2_done_before_text           test_story_1_scenario_2_reasoning_is_done_before_text_begins
    US1-3   in the finished response, with the text           test_us1_3_with_the_text              test_story_1_scenario_3_the_finished_response_has_reasoning_and_text
    US1-4   another model: no reasoning events                test_us1_4_none_of_another_model      test_story_1_scenario_4_no_reasoning_no_reasoning_events
    US2-1   whole: the chain of thought, first                test_us2_1_whole_with_its_thought     test_story_2_scenario_1_the_whole_response_has_the_chain_of_thought_first
    US2-2   whole, another model: none                        test_us2_2_whole_without              test_story_2_scenario_2_the_whole_response_of_another_model_has_none
    US3-1   in a loop: before the call's arguments            test_us3_1_before_the_arguments       test_story_3_scenario_1_reasoning_comes_before_the_call_s_arguments
    US3-2   in a loop: on each turn, and the numbers go on    test_us3_2_on_each_turn               test_story_3_scenario_2_each_turn_has_its_own_reasoning_item_and_sequence_numbers_continue
    EDGE-1  empty reasoning is none                           test_edge_1_empty_reasoning           test_edge_empty_reasoning_gives_no_events
    EDGE-2  reasoning and text in one chunk: both             test_edge_2_both_in_one_chunk         test_edge_reasoning_and_text_in_one_chunk_give_both_in_this_order_and_one_write
    EDGE-3  cut while it thinks: done, and incomplete         test_edge_3_cut_while_it_thinks       test_edge_cut_during_reasoning_closes_it_and_the_response_is_incomplete
    EDGE-4  very long reasoning is not truncated              test_edge_4_very_long_reasoning       test_edge_very_long_reasoning_is_not_truncated
    ASM-1   reasoning comes in `reasoning_content`            test_asm_1_reasoning_content          -
    ASM-2   the request's `reasoning` field goes through      test_asm_2_the_reasoning_field        -
    ASM-3   ids of reasoning items are as those of others     test_asm_3_ids_as_of_others           -

Other tests show what the earlier proposal (seed 000) requires of any gateway; its own events are those of AG-UI.

    000-VISIBLE     reasoning is surfaced                         server/test_seed_004.py::test_us1_1_deltas_while_it_thinks
    000-SUMMARY     summaries for transparency                    server/test_summaries_http.py::test_a_summary_view_gets_summaries_live_and_nothing_raw
    000-PRIVATE     without exposing raw chain of thought         server/test_views_canary.py::test_streamed_and_whole_responses_hide_the_marker
    000-ENCRYPTED   encrypted content that clients cannot read    sealing/test_tokens.py::test_nothing_about_the_tenant_or_the_content_is_readable
    000-CONTINUITY  state carries over across turns               server/test_seals_every_wire.py::test_output_returned_verbatim_restores_the_history
    000-ZDR         with store: false nothing stays               server/test_store_false.py::test_store_false_leaves_nothing_in_files_or_redis
    000-OPTIONAL    reasoning is optional in the history          server/test_seals_every_wire.py::test_a_client_that_drops_reasoning_is_served
    000-COMPATIBLE  clients that know nothing of it keep working  server/test_seed_004.py::test_fr_008_the_text_s_events
    000-UTILITIES   encryption utilities in Python                sealing/test_sealing_guide.py::test_the_example_runs
"""  # noqa: E501

from __future__ import annotations

import ast
import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted import Call, Script, Upstream, delta
from tests.scripted.gateway import Served, serve
from tests.server.loop_kit import Item, calling, kinds, legal_events, turn
from tests.server.state_kit import config_of
from tests.waiting import LIMIT_SECONDS

THOUGHT = ["We are asked ", "for a sum.\n", "2 + 2 = 4."]
ANSWER = ["The answer ", "is 4."]
Body = dict[str, Any]


def speaks(*chunks: Body, finish: str = "stop") -> Script:
    """Script a Chat Completions server that sends these chunks."""

    async def script(call: Call) -> None:
        if not call.body.get("stream"):
            raise AssertionError("the gateway must stream from the model, also for a response that is not streamed")
        await call.head()
        for chunk in chunks:
            await call.event(delta(**chunk))
        await call.event(delta(finish))
        details = {"completion_tokens_details": {"reasoning_tokens": 3}}
        await call.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9, **details}})
        await call.event(b"[DONE]")
        await call.end()

    return script


def thoughts(*words: str, field: str = "reasoning_content") -> list[Body]:
    return [{field: word} for word in words]


def answers(*words: str) -> list[Body]:
    return [{"content": word} for word in words]


@pytest.fixture(scope="module")
def reasoner(upstream: Upstream) -> str:
    return upstream.plays(speaks(*thoughts(*THOUGHT), *answers(*ANSWER)))


@pytest.fixture(scope="module")
def other(upstream: Upstream) -> str:
    """A model that does not reason."""
    return upstream.plays(speaks(*answers(*ANSWER)))


@pytest.fixture(scope="module")
def looping(upstream: Upstream) -> Iterator[Served]:
    """A gateway with a server function."""
    with serve(config_of(upstream, tools={"functions": ["tests.server.loop_tools:add"]})) as running:
        yield running


def events(gateway: Served, model: str, **more: Any) -> list[Body]:
    return legal_events(gateway.ask(model, stream=True, **more))


def whole(gateway: Served, model: str, **more: Any) -> Body:
    reply = gateway.ask(model, **more)
    assert reply.status == 200, reply.body
    response: Body = reply.json
    return response


def events_named(stream: list[Body], name: str) -> list[Body]:
    return [event for event in stream if event["type"] == f"response.{name}"]


def numbers(stream: list[Body], name: str) -> list[int]:
    return [event["sequence_number"] for event in events_named(stream, name)]


def names(stream: list[Body]) -> list[str]:
    """Return the names of the events in order, without consecutive duplicates of deltas."""
    every = [event["type"].removeprefix("response.") for event in stream]
    return [name for at, name in enumerate(every) if not (name.endswith(".delta") and every[at - 1] == name)]


def final_response(stream: list[Body]) -> Body:
    response: Body = stream[-1]["response"]
    return response


TEXT = [
    *["output_item.added", "content_part.added", "output_text.delta", "output_text.done"],
    *["content_part.done", "output_item.done"],
]
REASONING = [
    *["output_item.added", "content_part.added", "reasoning.delta", "reasoning.done"],
    *["content_part.done", "output_item.done"],
]


# --- functional requirements -----------------------------------------------------------------------------------------


def test_fr_001_reasoning_deltas(gateway: Served, reasoner: str) -> None:
    assert [event["delta"] for event in events_named(events(gateway, reasoner), "reasoning.delta")] == THOUGHT


def test_fr_002_reasoning_done(gateway: Served, reasoner: str) -> None:
    stream = events(gateway, reasoner)
    [done] = events_named(stream, "reasoning.done")
    assert done["text"] == "".join(THOUGHT)
    assert done["sequence_number"] > max(numbers(stream, "reasoning.delta"))


def test_fr_003_where_it_belongs(gateway: Served, reasoner: str) -> None:
    stream = events(gateway, reasoner)
    output = final_response(stream)["output"]
    for event in [*events_named(stream, "reasoning.delta"), *events_named(stream, "reasoning.done")]:
        item = output[event["output_index"]]
        assert (item["type"], item["id"]) == ("reasoning", event["item_id"])
        assert item["content"][event["content_index"]]["type"] == "reasoning_text"


def test_fr_004_sequence_numbers(gateway: Served, reasoner: str) -> None:
    stream = events(gateway, reasoner)
    assert [event["sequence_number"] for event in stream] == list(range(len(stream)))


def test_fr_005_an_output_item(gateway: Served, reasoner: str) -> None:
    for response in (final_response(events(gateway, reasoner)), whole(gateway, reasoner)):
        [item] = [item for item in response["output"] if item["type"] == "reasoning"]
        assert item["content"] == [{"type": "reasoning_text", "text": "".join(THOUGHT)}]
        # The stored response has it, too.
        again = gateway.request("GET", f"/v1/responses/{response['id']}").json
        assert again["output"] == response["output"]


def test_fr_006_before_the_message(gateway: Served, reasoner: str) -> None:
    for response in (final_response(events(gateway, reasoner)), whole(gateway, reasoner)):
        assert kinds(response["output"]) == ["reasoning", "message"]


def test_fr_007_nothing_for_others(gateway: Served, other: str) -> None:
    stream = events(gateway, other)
    assert not [event for event in stream if "reasoning" in event["type"]]
    for response in (final_response(stream), whole(gateway, other)):
        assert kinds(response["output"]) == ["message"]


def test_fr_008_the_text_s_events(gateway: Served, other: str) -> None:
    stream = events(gateway, other)
    assert names(stream) == ["created", "in_progress", *TEXT, "completed"]
    assert [event["delta"] for event in events_named(stream, "output_text.delta")] == ANSWER


def stream_schema(gateway: Served) -> tuple[Body, Body]:
    """Return the schema of stream events, and the document."""
    document = gateway.request("GET", "/openapi.json").json
    answer = document["paths"]["/v1/responses"]["post"]["responses"]["200"]
    return answer["content"]["text/event-stream"]["schema"], document


def test_fr_009_the_openapi_document(gateway: Served) -> None:
    schema, document = stream_schema(gateway)
    for name in ("response.reasoning.delta", "response.reasoning.done"):
        place = schema["discriminator"]["mapping"][name].removeprefix("#/").split("/")
        event: Any = document
        for step in place:
            event = event[step]
        assert {"item_id", "output_index", "content_index", "sequence_number"} <= set(event["required"])


def test_fr_010_seventeen_kinds(gateway: Served) -> None:
    mapping = stream_schema(gateway)[0]["discriminator"]["mapping"]
    assert len([name for name in mapping if name.startswith("response.")]) >= 17


# --- success criteria ------------------------------------------------------------------------------------------------


def test_sc_001_seen_before_the_answer(gateway: Served, upstream: Upstream) -> None:
    """The model waits with its answer until the client has seen what it thinks."""
    seen = Gate()

    async def script(call: Call) -> None:
        await call.head()
        for word in THOUGHT:
            await call.event(delta(reasoning_content=word))
        await seen.wait()
        await speaks(*answers(*ANSWER))(Headless(call))

    with gateway.open(upstream.plays(script)) as stream:
        came = stream.until(THOUGHT[-1])
        assert b"output_text" not in came
        seen.open()
        assert b"response.completed" in stream.rest()


def without_reasoning(stream: list[Body]) -> list[Body]:
    """Return the stream without its reasoning items."""
    skip = {event["item_id"] for event in stream if event["type"] == "response.reasoning.done"}

    def is_shown(event: Body) -> bool:
        return event.get("item_id", event.get("item", {}).get("id")) not in skip

    remaining = [dict(event) for event in stream if is_shown(event)]
    for number, event in enumerate(remaining):
        event["sequence_number"] = number
        if "output_index" in event:
            event["output_index"] -= len(skip)
        if "response" in event:
            response = event["response"]
            output = [item for item in response["output"] if item["id"] not in skip]
            event["response"] = {**response, "output": output, "usage": None}
    return remaining


def anonymous(stream: list[Body]) -> str:
    """Return the text of the events without ids, times and the model's name."""
    text = re.sub(r"'(resp|msg|rs)_[^']+'", "'an id'", str(stream))
    return re.sub(r"'model': '[^']+'|'(created|completed)_at': \d+", "-", text)


def test_sc_002_the_rest_is_as_it_was(gateway: Served, reasoner: str, other: str) -> None:
    """Without its reasoning, a stream equals that of a model that does not reason, event for event."""
    plain = events(gateway, other)
    plain[-1]["response"]["usage"] = None
    assert anonymous(without_reasoning(events(gateway, reasoner))) == anonymous(plain)
    assert whole(gateway, reasoner)["output"][1]["content"] == whole(gateway, other)["output"][0]["content"]


SUITE = {
    *["basic_response", "assistant_phase", "response_output_phase_schema", "streaming_response", "system_prompt"],
    *["tool_calling", "image_input", "multi_turn", "compact_response", "compact_missing_model"],
    *["websocket_compact_new_chain", "websocket_response", "websocket_sequential_responses", "websocket_continuation"],
    *["websocket_reconnect_store_false_recovery", "websocket_previous_response_not_found"],
    *["websocket_failed_continuation_evicts_cache"],
}
"""The checks of the public suite."""


def test_sc_003_the_conformance_suite() -> None:
    """Each check of the specification is a separate test, against a model that reasons."""
    assert len(SUITE) == 17
    assert named_in(HERE.with_name("test_compliance.py")) >= {f"test_{check}" for check in SUITE}


@pytest.mark.parametrize(("provider", "field"), [("vllm", "reasoning_content"), ("vllm", "reasoning")])
def test_sc_004_the_expected_sequence(gateway: Served, upstream: Upstream, provider: str, field: str) -> None:
    model = upstream.plays(speaks(*thoughts(*THOUGHT, field=field), *answers(*ANSWER)))
    stream = events(gateway, f"{provider}:{model}")
    assert names(stream) == ["created", "in_progress", *REASONING, *TEXT, "completed"]
    assert [event["delta"] for event in events_named(stream, "reasoning.delta")] == THOUGHT
    assert [event["delta"] for event in events_named(stream, "output_text.delta")] == ANSWER


# --- user story 1: streaming -----------------------------------------------------------------------------------------


class Gate:
    """An event at which a script waits, in its own loop, until the test opens it."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self.open = self._opened.set

    async def wait(self) -> None:
        assert await asyncio.to_thread(self._opened.wait, LIMIT_SECONDS)


class Headless(Call):
    """A call whose response head was sent."""

    def __init__(self, call: Call) -> None:
        vars(self).update(vars(call))

    async def head(self, *_: object, **__: object) -> None:
        """Do nothing: the head was sent."""


def test_us1_1_deltas_while_it_thinks(gateway: Served, upstream: Upstream) -> None:
    """Each piece reaches the client before the model sends the next one."""
    gates = [Gate() for _ in THOUGHT]

    async def script(call: Call) -> None:
        await call.head()
        for word, gate in zip(THOUGHT, gates, strict=True):
            await call.event(delta(reasoning_content=word))
            await gate.wait()
        await speaks(*answers(*ANSWER))(Headless(call))

    with gateway.open(upstream.plays(script)) as stream:
        for number, gate in enumerate(gates, 1):
            while stream.seen.count(b"event: response.reasoning.delta\n") < number:
                read_on(stream)
            assert stream.seen.count(b"event: response.reasoning.delta\n") == number
            gate.open()
        assert stream.rest().endswith(b"data: [DONE]\n\n")


def read_on(stream: Any) -> None:
    piece = stream.response.read1(65536)
    assert piece
    stream.seen += piece


def test_us1_2_done_before_text(gateway: Served, reasoner: str) -> None:
    stream = events(gateway, reasoner)
    [done] = numbers(stream, "reasoning.done")
    message = next(event for event in events_named(stream, "output_item.added") if event["item"]["type"] == "message")
    assert done < message["sequence_number"] < min(numbers(stream, "output_text.delta"))


def test_us1_3_with_the_text(gateway: Served, reasoner: str) -> None:
    reasoning, message = final_response(events(gateway, reasoner))["output"]
    assert reasoning["content"][0]["text"] == "".join(THOUGHT)
    assert message["content"][0]["text"] == "".join(ANSWER)


def test_us1_4_none_of_another_model(gateway: Served, other: str) -> None:
    assert b"response.reasoning" not in gateway.ask(other, stream=True).body


# --- user story 2: whole responses -----------------------------------------------------------------------------------


def test_us2_1_whole_with_its_thought(gateway: Served, reasoner: str) -> None:
    response = whole(gateway, reasoner)
    assert kinds(response["output"]) == ["reasoning", "message"]
    assert response["output"][0]["content"][0]["text"] == "".join(THOUGHT)
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}


def test_us2_2_whole_without(gateway: Served, other: str) -> None:
    assert kinds(whole(gateway, other)["output"]) == ["message"]


# --- user story 3: agentic loops -------------------------------------------------------------------------------------


def adds_then_says(upstream: Upstream) -> str:
    first = turn("First, the sum. ", "", calling("add", "c1", a=2, b=2))
    return upstream.plays(first, turn("It is four. ", "Four."))


def test_us3_1_before_the_arguments(looping: Served, upstream: Upstream) -> None:
    stream = events(looping, f"vllm:{adds_then_says(upstream)}")
    arguments = min(numbers(stream, "function_call_arguments.delta"))
    first, second = numbers(stream, "reasoning.done")
    assert first < arguments < second
    # The same for a function of the client, whose call ends the response.
    asks = upstream.plays(turn("Whom? ", "", calling("ask_user", "c1")))
    tools = [{"type": "function", "name": "ask_user", "parameters": {"type": "object", "properties": {}}}]
    stream = events(looping, f"vllm:{asks}", tools=tools)
    assert max(numbers(stream, "reasoning.done")) < min(numbers(stream, "function_call_arguments.delta"))


def test_us3_2_on_each_turn(looping: Served, upstream: Upstream) -> None:
    stream = events(looping, f"vllm:{adds_then_says(upstream)}")
    assert [event["sequence_number"] for event in stream] == list(range(len(stream)))
    output: list[Item] = final_response(stream)["output"]
    assert kinds(output) == ["reasoning", "function_call", "function_call_output", "reasoning", "message"]
    turns = [item for item in output if item["type"] == "reasoning"]
    assert [item["content"][0]["text"].strip() for item in turns] == ["First, the sum.", "It is four."]
    assert len({item["id"] for item in output}) == 5
    assert {event["item_id"] for event in events_named(stream, "reasoning.delta")} == {item["id"] for item in turns}


# --- edge cases ------------------------------------------------------------------------------------------------------


def test_edge_1_empty_reasoning(gateway: Served, upstream: Upstream, other: str) -> None:
    model = upstream.plays(speaks(*thoughts("", "", ""), *answers(*ANSWER)))
    stream = events(gateway, model)
    assert names(stream) == names(events(gateway, other))
    assert kinds(whole(gateway, model)["output"]) == ["message"]


def test_edge_2_both_in_one_chunk(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(speaks({"reasoning_content": "2 + 2", "content": "4."}))
    stream = events(gateway, model)
    assert [event["delta"] for event in events_named(stream, "reasoning.delta")] == ["2 + 2"]
    assert [event["delta"] for event in events_named(stream, "output_text.delta")] == ["4."]
    assert names(stream) == ["created", "in_progress", *REASONING, *TEXT, "completed"]


def test_edge_3_cut_while_it_thinks(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(speaks(*thoughts(*THOUGHT[:2]), finish="length"))
    stream = events(gateway, model)
    assert names(stream) == ["created", "in_progress", *REASONING, "incomplete"]
    for response in (final_response(stream), whole(gateway, model)):
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        [item] = response["output"]
        assert (item["type"], item["status"]) == ("reasoning", "incomplete")
        assert item["content"][0]["text"] == "".join(THOUGHT[:2])


def test_edge_4_very_long_reasoning(gateway: Served, upstream: Upstream) -> None:
    pieces = [f"{number} " * 40 for number in range(4000)]
    model = upstream.plays(speaks(*thoughts(*pieces), *answers(".")))
    stream = gateway.ask(model, stream=True).events
    assert "".join(event["delta"] for event in events_named(stream, "reasoning.delta")) == "".join(pieces)
    assert len(events_named(stream, "reasoning.delta")) == len(pieces)
    assert events_named(stream, "reasoning.done")[0]["text"] == "".join(pieces)
    assert final_response(stream)["output"][0]["content"][0]["text"] == "".join(pieces)
    assert whole(gateway, model)["output"][0]["content"][0]["text"] == "".join(pieces)


# --- assumptions -----------------------------------------------------------------------------------------------------


def test_asm_1_reasoning_content(gateway: Served, reasoner: str, upstream: Upstream) -> None:
    """The name of the backend's field makes no difference."""
    named = upstream.plays(speaks(*thoughts(*THOUGHT, field="reasoning"), *answers(*ANSWER)))
    assert anonymous(events(gateway, named)) == anonymous(events(gateway, reasoner))


def test_asm_2_the_reasoning_field(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(speaks(*answers(*ANSWER)))
    bodies = []
    for reasoning in (None, {"effort": "none"}, {"effort": "high"}):
        response = whole(gateway, model, **({"reasoning": reasoning} if reasoning else {}))
        assert (response["reasoning"] or {}).get("effort") == (reasoning or {}).get("effort")
        bodies.append({name: value for name, value in upstream.calls(model)[-1].body.items() if name != "messages"})
    assert bodies[0] != bodies[1] != bodies[2] != bodies[0]


def test_asm_3_ids_as_of_others(gateway: Served, reasoner: str) -> None:
    reasoning, message = final_response(events(gateway, reasoner))["output"]
    form = re.compile(r"(rs|msg)_([0-9a-z]+)", re.IGNORECASE)
    one, another = form.fullmatch(reasoning["id"]), form.fullmatch(message["id"])
    assert one is not None
    assert another is not None
    assert len(one[2]) == len(another[2])


# --- the table -------------------------------------------------------------------------------------------------------

HERE = Path(__file__)
PURE = HERE.parents[1] / "openresponses" / "test_openresponses_seed_004.py"
SCENARIOS = {1: 4, 2: 2, 3: 2}
"""The number of scenarios of each user story."""
IDS = [
    *(f"FR-{number:03}" for number in range(1, 11)),
    *(f"SC-{number:03}" for number in range(1, 5)),
    *(f"US{story}-{number}" for story, count in SCENARIOS.items() for number in range(1, count + 1)),
    *(f"EDGE-{number}" for number in range(1, 5)),
    *(f"ASM-{number}" for number in range(1, 4)),
]


def named_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_table_is_complete() -> None:
    assert __doc__ is not None
    rows = re.findall(r"^    ([A-Z]+\d?-\d+)  .*?  +(test_\w+|-)  +(test_\w+|-)$", __doc__, re.MULTILINE)
    assert [row[0] for row in rows] == IDS
    here, pure = named_in(HERE), named_in(PURE)
    for id, over_http, encoding in rows:
        assert over_http in here
        assert over_http.startswith(f"test_{id.lower().replace('-', '_')}_")
        assert encoding in {*pure, "-"}
    assert {row[1] for row in rows} == {name for name in here if not name.startswith("test_the_table")}


def test_the_table_of_the_proposal_names_existing_tests() -> None:
    assert __doc__ is not None
    rows = re.findall(r"^    000-([A-Z]+) .*? (\S+\.py)::(test_\w+)$", __doc__, re.MULTILINE)
    assert len(rows) == 9
    for id, path, name in rows:
        assert name in named_in(HERE.parents[1] / path), id
