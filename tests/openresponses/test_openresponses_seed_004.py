"""The specification "Reasoning Streaming Events" (seed 004), line by line, from a provider's bytes to the client's."""

from collections.abc import Callable
from typing import Any

import pytest

from pellucid.events import Event
from pellucid.parts import ToolReturnPart
from pellucid.protocols.openresponses import openapi
from pellucid.protocols.openresponses.verify import verify
from pellucid.run import CallModel, CallTools, Minter, Run
from pellucid.settings import ModelCall
from tests.openresponses.openresponses_kit import (
    NOW,
    USAGE,
    Answer,
    call_chunks,
    chunk,
    encode,
    events_of,
    final_chunks,
    make_encoder,
    model_batches,
    reasoning_chunks,
    schemas,
    sse_frames,
    text_chunks,
)
from tests.schemas import openapi_document

THOUGHT = ("We are asked ", "for a sum.\n", "2 + 2 = 4.")
ANSWER = ("The answer ", "is 4.")


def reasoning_answer(**body: Any) -> Answer:
    return Answer(*reasoning_chunks(*THOUGHT), *text_chunks(*ANSWER), *final_chunks(), **body)


def plain_answer(**body: Any) -> Answer:
    return Answer(*text_chunks(*ANSWER), *final_chunks(), **body)


def sequence_numbers(answer: Answer, name: str) -> list[int]:
    return [event["sequence_number"] for event in answer.select(name)]


# --- functional requirements -----------------------------------------------------------------------------------------


def test_fr_001_reasoning_deltas_carry_the_reasoning_token_by_token() -> None:
    assert tuple(event["delta"] for event in reasoning_answer().select("reasoning.delta")) == THOUGHT


def test_fr_002_reasoning_done_comes_once_when_the_reasoning_is_over() -> None:
    [done] = reasoning_answer().select("reasoning.done")
    assert done["text"] == "".join(THOUGHT)


def test_fr_003_reasoning_events_name_the_reasoning_item_and_its_indexes() -> None:
    answer = reasoning_answer()
    [added] = [event for event in answer.select("output_item.added") if event["item"]["type"] == "reasoning"]
    place = (added["item"]["id"], added["output_index"], 0)
    for event in [*answer.select("reasoning.delta"), *answer.select("reasoning.done")]:
        assert (event["item_id"], event["output_index"], event["content_index"]) == place
    assert answer.output[added["output_index"]]["id"] == added["item"]["id"]


def test_fr_004_sequence_numbers_increase_over_all_events_of_the_stream() -> None:
    answer = reasoning_answer()
    assert [event["sequence_number"] for event in answer.events] == list(range(len(answer.events)))


def test_fr_005_reasoning_is_an_output_item_streamed_and_not() -> None:
    answer = reasoning_answer()
    for output in (answer.output, answer.response_without_stream["output"]):
        [item] = [item for item in output if item["type"] == "reasoning"]
        assert item["content"] == [{"type": "reasoning_text", "text": "".join(THOUGHT)}]
        assert (item["summary"], item["status"]) == ([], "completed")
        assert item["id"].startswith("rs_")


def test_fr_006_the_reasoning_item_stands_before_the_message() -> None:
    assert [item["type"] for item in reasoning_answer().output] == ["reasoning", "message"]


def test_fr_007_models_that_do_not_reason_give_no_reasoning_events() -> None:
    for answer in (plain_answer(), Answer(*reasoning_chunks("", ""), *text_chunks(*ANSWER), *final_chunks())):
        assert b"reasoning" not in b"".join(answer.pieces[1:-2])
        assert [item["type"] for item in answer.output] == ["message"]


def test_fr_008_the_sequence_of_text_events_is_unchanged() -> None:
    assert plain_answer().event_types == [
        *["created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"],
        *["output_text.done", "content_part.done", "output_item.done", "completed"],
    ]


def test_fr_009_the_openapi_document_describes_the_reasoning_events() -> None:
    stream = openapi_document()["paths"]["/v1/responses"]["post"]["responses"]["200"]["content"]["text/event-stream"][
        "schema"
    ]
    for name in ("response.reasoning.delta", "response.reasoning.done"):
        assert name in stream["discriminator"]["mapping"]
        assert {"item_id", "output_index", "content_index", "sequence_number"} <= set(
            schemas()[0].events[name]["required"]
        )


def test_fr_010_there_are_at_least_17_event_types() -> None:
    assert len(openapi.EVENTS) == 24


# --- success criteria ------------------------------------------------------------------------------------------------


def test_sc_001_reasoning_is_visible_before_the_answer_begins() -> None:
    answer = reasoning_answer()
    assert max(sequence_numbers(answer, "reasoning.delta")) < min(sequence_numbers(answer, "output_text.delta"))


def test_sc_004_the_expected_sequence_of_a_reasoning_model() -> None:
    assert reasoning_answer().event_types == [
        *["created", "in_progress"],
        *["output_item.added", "content_part.added", "reasoning.delta", "reasoning.done", "content_part.done"],
        "output_item.done",
        *["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"],
        *["output_item.done", "completed"],
    ]


# --- user story 1: streaming -----------------------------------------------------------------------------------------


def test_story_1_scenario_1_each_piece_of_reasoning_is_a_delta_as_it_comes() -> None:
    answer = reasoning_answer()
    with_delta = [events for piece in answer.pieces if (events := piece.count(b"event: response.reasoning.delta"))]
    # One read of the upstream, one write to the client.
    assert with_delta == [1] * len(THOUGHT)


def test_story_1_scenario_2_reasoning_is_done_before_text_begins() -> None:
    answer = reasoning_answer()
    [done] = sequence_numbers(answer, "reasoning.done")
    message = next(event for event in answer.select("output_item.added") if event["item"]["type"] == "message")
    assert done < message["sequence_number"] < min(sequence_numbers(answer, "output_text.delta"))


def test_story_1_scenario_3_the_finished_response_has_reasoning_and_text() -> None:
    reasoning, message = reasoning_answer().output
    assert reasoning["content"][0]["text"] == "".join(THOUGHT)
    assert message["content"][0]["text"] == "".join(ANSWER)


def test_story_1_scenario_4_no_reasoning_no_reasoning_events() -> None:
    assert not [event for event in plain_answer().events if "reasoning" in event["type"]]


# --- user story 2: whole responses -----------------------------------------------------------------------------------


def test_story_2_scenario_1_the_whole_response_has_the_chain_of_thought_first() -> None:
    whole = reasoning_answer().response_without_stream
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message"]
    assert whole["output"][0]["content"][0]["text"] == "".join(THOUGHT)
    assert whole["usage"]["output_tokens_details"] == USAGE["completion_tokens_details"]


def test_story_2_scenario_2_the_whole_response_of_another_model_has_none() -> None:
    assert [item["type"] for item in plain_answer().response_without_stream["output"]] == ["message"]


# --- user story 3: agentic loops -------------------------------------------------------------------------------------


def test_story_3_scenario_1_reasoning_comes_before_the_call_s_arguments() -> None:
    answer = Answer(
        *reasoning_chunks(*THOUGHT), *call_chunks("weather", '{"city":', '"Paris"}'), *final_chunks("tool_calls")
    )
    assert max(sequence_numbers(answer, "reasoning.done")) < min(
        sequence_numbers(answer, "function_call_arguments.delta")
    )
    assert answer.event_types[2:-1] == [
        *["output_item.added", "content_part.added", "reasoning.delta", "reasoning.done", "content_part.done"],
        "output_item.done",
        *["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"],
    ]
    assert answer.output[1] | {"id": ""} == {
        "type": "function_call",
        "id": "",
        "call_id": "call_0",
        "name": "weather",
        "arguments": '{"city":"Paris"}',
        "status": "completed",
    }


def test_story_3_scenario_2_each_turn_has_its_own_reasoning_item_and_sequence_numbers_continue() -> None:
    encoder = make_encoder()
    run = Run(ModelCall("m", []), Minter(b"seed"), server_tools=frozenset({"weather"}))
    stream = encoder.start()
    effects = run.start()
    turns = [
        [*reasoning_chunks("First, the weather."), *call_chunks("weather", "{}"), *final_chunks("tool_calls")],
        [*reasoning_chunks("It rains."), *text_chunks("Take a coat."), *final_chunks()],
    ]
    for turn in turns:
        [effect] = effects
        assert isinstance(effect, CallModel)
        for batch in model_batches(sse_frames(*turn)):
            events, effects = run.feed(batch)
            stream += encoder.feed(events, NOW)
        if effects:
            [tools] = effects
            assert isinstance(tools, CallTools)
            events, effects = run.add_results(
                [ToolReturnPart("weather", "rain", call.tool_call_id) for call in tools.calls]
            )
            stream += encoder.feed(events, NOW)
    assert verify(stream) == []
    written = events_of(stream)
    assert [event["sequence_number"] for event in written] == list(range(len(written)))
    output = written[-1]["response"]["output"]
    assert [item["type"] for item in output] == [
        *["reasoning", "function_call", "function_call_output"],
        *["reasoning", "message"],
    ]
    assert [item["content"][0]["text"] for item in output if item["type"] == "reasoning"] == [
        "First, the weather.",
        "It rains.",
    ]
    assert output[0]["id"] != output[3]["id"]
    assert written[-1]["response"]["usage"]["total_tokens"] == 2 * USAGE["total_tokens"]


# --- edge cases ------------------------------------------------------------------------------------------------------


def test_edge_empty_reasoning_gives_no_events() -> None:
    answer = Answer(*reasoning_chunks("", "", ""), *text_chunks(*ANSWER), *final_chunks())
    assert answer.event_types == plain_answer().event_types
    assert not [event for event in answer.events if "reasoning" in event["type"]]


def test_edge_opaque_only_reasoning_is_an_item_without_deltas() -> None:
    detail = {"type": "reasoning.encrypted", "data": "gAAAA", "format": "openai-responses-v1", "index": 0}
    answer = Answer(chunk(reasoning_details=[detail]), *text_chunks(*ANSWER), *final_chunks())
    assert answer.event_types[2:5] == ["output_item.added", "output_item.done", "output_item.added"]
    assert answer.output[0]["type"] == "reasoning"
    assert "content" not in answer.output[0]


def test_edge_reasoning_and_text_in_one_chunk_give_both_in_this_order_and_one_write() -> None:
    answer = Answer(chunk(content="4.", reasoning_content="2 + 2"), *final_chunks())
    [piece] = [piece for piece in answer.pieces if b"reasoning.delta" in piece]
    assert b"output_text.delta" in piece
    assert answer.event_types[2:10] == [
        *["output_item.added", "content_part.added", "reasoning.delta", "reasoning.done", "content_part.done"],
        *["output_item.done", "output_item.added", "content_part.added"],
    ]


def test_edge_cut_during_reasoning_closes_it_and_the_response_is_incomplete() -> None:
    answer = Answer(*reasoning_chunks(*THOUGHT[:2]), *final_chunks("length"))
    assert answer.event_types[2:] == [
        *["output_item.added", "content_part.added", "reasoning.delta", "reasoning.done", "content_part.done"],
        *["output_item.done", "incomplete"],
    ]
    [done] = answer.select("reasoning.done")
    assert done["text"] == "".join(THOUGHT[:2])
    [item] = answer.output
    assert item["status"] == "incomplete"
    assert answer.response["status"] == "incomplete"
    assert answer.response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_edge_filtered_during_reasoning_is_incomplete_for_that_reason() -> None:
    answer = Answer(*reasoning_chunks(THOUGHT[0]), *final_chunks("content_filter"))
    assert answer.response["incomplete_details"] == {"reason": "content_filter"}


def test_edge_very_long_reasoning_is_not_truncated() -> None:
    pieces = [f"{number} " * 40 for number in range(4000)]
    answer = Answer(*reasoning_chunks(*pieces), *text_chunks("."), *final_chunks())
    assert [event["delta"] for event in answer.select("reasoning.delta")] == pieces
    assert answer.select("reasoning.done")[0]["text"] == answer.output[0]["content"][0]["text"] == "".join(pieces)


def test_edge_the_stream_breaks_off_during_reasoning() -> None:
    answer = Answer(*reasoning_chunks(*THOUGHT), done=False)
    assert answer.event_types[-6:] == [
        *["reasoning.delta", "reasoning.done", "content_part.done", "output_item.done"],
        *["error", "failed"],
    ]
    assert answer.response["error"]["code"] == "stream_truncated"
    assert answer.output[0]["status"] == "incomplete"


def test_edge_parallel_calls_that_interleave_come_one_after_the_other() -> None:
    first, second = call_chunks("a", '{"x":', "1}", id="c1"), call_chunks("b", '{"y":', "2}", id="c2", index=1)
    mixed = [first[0], second[0], second[1], first[1], first[2], second[2]]
    answer = Answer(*reasoning_chunks("t"), *mixed, *final_chunks("tool_calls"))
    assert verify(answer.stream) == []
    assert [(item["call_id"], item["arguments"]) for item in answer.output[1:]] == [
        ("c1", '{"x":1}'),
        ("c2", '{"y":2}'),
    ]


@pytest.mark.parametrize("answer", [reasoning_answer, plain_answer])
def test_every_stream_is_legal_and_ends_with_done(answer: Callable[[], Answer]) -> None:
    stream = answer().stream
    assert verify(stream) == []
    assert stream.endswith(b"\n\ndata: [DONE]\n\n")


def test_openai_s_dialect_has_its_own_event_names() -> None:
    run = Run(ModelCall("m", []), Minter(b"seed"))
    batches: list[list[Event]] = [
        run.feed(b)[0] for b in model_batches(sse_frames(*reasoning_chunks("t"), *text_chunks("a"), *final_chunks()))
    ]
    stream = encode(batches, "openai")
    assert verify(stream, "openai") == []
    assert b"event: response.reasoning_text.delta\n" in stream
    assert b"response.reasoning.delta" not in stream
    assert verify(stream) != []
