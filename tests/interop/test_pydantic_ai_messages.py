"""A history is unchanged after conversion to the other library and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from pydantic_ai import messages as theirs
from pydantic_ai.usage import RequestUsage

from pellucid import parts as ours
from pellucid.interop.pydantic_ai import from_pydantic, to_pydantic
from pellucid.interop.pydantic_ai.messages import apply_patch, difference
from tests.examples import many
from tests.interop.histories import (
    OUR_REQUEST_PARTS,
    OUR_RESPONSE_PARTS,
    json_values,
    our_messages,
    their_messages,
)
from tests.providers_openai_responses.responses_kit import body, response_of, sent


def through_their_json(messages: list[theirs.ModelMessage]) -> list[theirs.ModelMessage]:
    """Return the messages after serialisation and parsing by Pydantic AI."""
    adapter = theirs.ModelMessagesTypeAdapter
    return adapter.validate_json(adapter.dump_json(messages))


def through_our_json(messages: list[ours.ModelMessage]) -> list[ours.ModelMessage]:
    return msgspec.json.decode(msgspec.json.encode(messages), type=list[ours.ModelMessage])


# --- the properties ----------------------------------------------------------------------------------------------


@many
@given(json_values, json_values)
def test_a_patch_makes_any_value_of_any_other(whole: Any, back: Any) -> None:
    patch = difference(whole, back)
    if patch is None:
        assert msgspec.json.encode(whole, order="sorted") == msgspec.json.encode(back, order="sorted")
    else:
        assert msgspec.json.encode(apply_patch(patch, back), order="sorted") == msgspec.json.encode(
            whole, order="sorted"
        )


def test_the_strategies_cover_every_kind_of_part() -> None:
    kinds = {kind.__struct_config__.tag for kind in [*OUR_RESPONSE_PARTS, *OUR_REQUEST_PARTS]}
    schemas = msgspec.json.schema(ours.ModelRequest), msgspec.json.schema(ours.ModelResponse)
    assert {str(kind) for kind in kinds} == {
        value["properties"]["part_kind"]["enum"][0]
        for schema in schemas
        for value in schema["$defs"].values()
        if "part_kind" in value["properties"]
    }


@given(our_messages)
def test_our_messages_round_trip(messages: list[ours.ModelMessage]) -> None:
    there = to_pydantic(messages)
    assert msgspec.to_builtins(from_pydantic(there)) == msgspec.to_builtins(messages)
    assert from_pydantic(there) == messages
    assert from_pydantic(through_their_json(there)) == messages  # also when their application stored them


@given(their_messages)
def test_their_messages_round_trip(messages: list[theirs.ModelMessage]) -> None:
    here = from_pydantic(messages)
    back = to_pydantic(here)
    assert back == through_their_json(messages)
    assert through_their_json(back) == back
    assert to_pydantic(through_our_json(here)) == back  # also when our application stored them


@given(their_messages)
def test_a_second_round_trip_changes_nothing(messages: list[theirs.ModelMessage]) -> None:
    once = from_pydantic(messages)
    assert from_pydantic(to_pydantic(once)) == once


@given(our_messages, json_values)
def test_an_invalid_patch_is_ignored(messages: list[ours.ModelMessage], nonsense: Any) -> None:
    there = to_pydantic(messages)
    for message in there:
        message.metadata = {**(message.metadata or {}), "pellucid": nonsense}
    here = from_pydantic(there)
    assert to_pydantic(here) == through_their_json(there)


# --- rules that a round trip does not show -----------------------------------------------------------------------


def test_common_fields_are_converted_to_the_field_of_the_other_library() -> None:
    [request, response] = to_pydantic(
        [
            ours.ModelRequest(
                [ours.UserPromptPart([ours.Text("What?"), ours.Image(data="aGk=", media_type="image/png")])]
            ),
            ours.ModelResponse(
                [
                    ours.ThinkingPart("Hm.", id="rs_1", signature="sig", provider_name="openai", form="summary"),
                    ours.TextPart("It.", annotations=[{"type": "url_citation", "url": "https://a.test"}]),
                    ours.ToolCallPart("look", '{"a":1}', "call_1"),
                ],
                usage=ours.Usage(7, 9, 4),
                origin=ours.Origin("openai", "openai_responses", "gpt-5"),
                model_name="gpt-5-2025",
                provider_response_id="resp_1",
                finish_reason="tool_call",
                native_finish_reason="tool_calls",
            ),
        ]
    )
    assert isinstance(request.parts[0], theirs.UserPromptPart)
    assert request.parts[0].content == ["What?", theirs.BinaryImage(b"hi", media_type="image/png")]
    assert isinstance(response, theirs.ModelResponse)
    thinking, text, call = response.parts
    assert thinking == theirs.ThinkingPart("Hm.", id="rs_1", signature="sig", provider_name="openai")
    assert isinstance(text, theirs.TextPart)
    assert text.citations == [theirs.Citation([theirs.WebCitationSource("https://a.test")])]
    assert call == theirs.ToolCallPart("look", '{"a":1}', "call_1")
    assert response.usage == RequestUsage(input_tokens=7, output_tokens=9, output_reasoning_tokens=4)
    assert (response.model_name, response.provider_name) == ("gpt-5-2025", "openai")
    assert (response.provider_response_id, response.finish_reason) == ("resp_1", "tool_call")
    assert response.provider_details == {"finish_reason": "tool_calls"}


@pytest.mark.parametrize("secret", ["the secret", "another secret"])
def test_a_patch_is_void_if_the_part_was_changed(secret: str) -> None:
    """Text that was removed from a history does not return from a patch."""
    there = to_pydantic([ours.ModelResponse([ours.TextPart(secret, logprobs=[{"token": secret}])])])
    [response] = there
    [text] = response.parts
    assert isinstance(text, theirs.TextPart)
    text.content = "gone"
    assert secret not in str(from_pydantic(there)[0].parts)

    request = theirs.ModelRequest([theirs.UserPromptPart([theirs.TextContent(secret, metadata=1)])])
    [here] = from_pydantic([request])
    edited = msgspec.structs.replace(here, parts=[ours.UserPromptPart("gone")])
    assert secret not in str(to_pydantic([edited])[0].parts)


def test_no_patch_makes_a_system_prompt_of_a_user_prompt() -> None:
    [there] = to_pydantic([ours.ModelRequest([ours.UserPromptPart("hi", name="n")])])
    assert there.metadata is not None
    there.metadata["pellucid"]["parts"]["0"][1] = {"in": {"part_kind": {"is": "system-prompt"}}}
    assert from_pydantic([there])[0].parts == [ours.UserPromptPart("hi")]


def test_an_object_of_the_application_is_converted_to_json() -> None:
    returned = theirs.ToolReturnPart("f", {"at": datetime(2026, 1, 1, tzinfo=UTC), "for": timedelta(hours=1)}, "c")
    [request] = from_pydantic([theirs.ModelRequest([returned])])
    assert isinstance(request.parts[0], ours.ToolReturnPart)
    assert request.parts[0].content == {"at": "2026-01-01T00:00:00Z", "for": "PT1H"}
    assert to_pydantic([request]) == through_their_json([theirs.ModelRequest([returned])])


def test_what_an_edited_history_requires_is_still_known() -> None:
    """pydantic/pydantic-ai#3230: a history processor removes the reasoning, and OpenAI refuses the call with its id."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
    [message] = to_pydantic([response_of(body(reasoning, call))])
    assert isinstance(message, theirs.ModelResponse)
    edited = replace(message, parts=[part for part in message.parts if not isinstance(part, theirs.ThinkingPart)])
    result = ours.ModelRequest([ours.ToolReturnPart("f", "r", "c1")])
    for history, ids in ((message, ["rs_1", "fc_1", None]), (edited, [None, None])):
        assert [item.get("id") for item in sent(*from_pydantic([history]), result)] == ids
