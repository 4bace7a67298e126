"""A history goes from one library to the other and back, and is what it was."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pydantic_ai")

from pydantic_ai import messages as theirs
from pydantic_ai.usage import RequestUsage

from pellucid import parts as ours
from pellucid.interop.pydantic_ai import from_pydantic, to_pydantic
from pellucid.interop.pydantic_ai.difference import apply, difference

many = settings(max_examples=200, deadline=None)

# --- what there is -----------------------------------------------------------------------------------------------

words = st.text(max_size=6)
names = st.text("abcxyz_", min_size=1, max_size=5)
maybe = st.none() | words
numbers = st.integers(0, 10**6)
moments = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))
json_values = st.recursive(
    st.none() | st.booleans() | numbers | words | st.sampled_from([0.5, 1.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, json_values, max_size=3)
details = st.none() | objects
data = st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode()) | words
media = st.sampled_from(["image/png", "audio/wav", "video/mp4", "application/pdf", "x/y"])
links = st.sampled_from(["https://a.test/b.png", "https://a.test/b.mp3", "https://a.test/b", "data:,x"])
origins = st.none() | st.builds(ours.Origin, names, names, names, st.none() | names)
links_cited = st.builds(
    lambda url, more: {"type": "url_citation", "url": url, **more},
    links,
    st.dictionaries(names, json_values, max_size=2),
) | st.fixed_dictionaries(
    {"type": st.just("url_citation"), "url": links, "title": words, "start_index": numbers, "end_index": numbers}
)


def optional(kind: type, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any instance of one of our structs: each field that it has, by the field's name."""
    fields = {name: FIELDS[name] for name in kind.__struct_fields__ if name not in known} | known  # type: ignore[attr-defined]
    return st.builds(kind, **fields)


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "content": words,
    "id": maybe,
    "signature": maybe,
    "provider_name": maybe,
    "provider_details": details,
    "form": st.sampled_from(["raw", "summary", "redacted"]),
    "complete": st.booleans(),
    "item_id": maybe,
    "origin": origins,
    "annotations": st.none() | st.lists(links_cited | objects, max_size=2),
    "logprobs": st.none() | st.lists(objects, max_size=2),
    "tool_name": names,
    "args": st.none() | words | objects,
    "tool_call_id": words,
    "data": data,
    "media_type": st.none() | media,
    "thought": st.booleans(),
    "type": names,
    "native": json_values,
    "token": words,
    "role": st.sampled_from(["system", "developer"]),
    "name": maybe,
    "outcome": st.sampled_from(["success", "failed", "denied"]),
    "text": words,
    "url": st.none() | links,
    "file_id": maybe,
    "detail": st.sampled_from([None, "low", "high", "auto", "original"]),
    "filename": maybe,
}

OUR_CONTENT = st.one_of(
    *[
        optional(kind, **({"data": st.none() | data} if "data" in kind.__struct_fields__ else {}))
        for kind in (ours.Text, ours.Image, ours.Audio, ours.Video, ours.File)
    ]
)
OUR_RESPONSE_PARTS: dict[type, st.SearchStrategy[Any]] = {
    ours.ThinkingPart: optional(ours.ThinkingPart),
    ours.TextPart: optional(ours.TextPart),
    ours.RefusalPart: optional(ours.RefusalPart),
    ours.ToolCallPart: optional(ours.ToolCallPart),
    ours.BuiltinToolCallPart: optional(ours.BuiltinToolCallPart),
    ours.BuiltinToolReturnPart: optional(ours.BuiltinToolReturnPart, content=json_values),
    ours.FilePart: optional(ours.FilePart, media_type=media),
    ours.CompactionPart: optional(ours.CompactionPart, content=maybe),
    ours.OpaquePart: optional(ours.OpaquePart),
    ours.SealedPart: optional(ours.SealedPart),
}
OUR_REQUEST_PARTS: dict[type, st.SearchStrategy[Any]] = {
    ours.SystemPromptPart: optional(ours.SystemPromptPart),
    ours.UserPromptPart: optional(ours.UserPromptPart, content=words | st.lists(OUR_CONTENT, max_size=3)),
    ours.ToolReturnPart: optional(ours.ToolReturnPart, content=json_values),
    ours.RetryPromptPart: optional(ours.RetryPromptPart, tool_name=st.none() | names),
}
our_usage = st.builds(
    ours.Usage,
    **{name: st.none() | numbers for name in ours.Usage.__struct_fields__ if name != "details"},
    details=st.dictionaries(names, numbers, max_size=2),
)
our_messages = st.lists(
    st.builds(
        ours.ModelRequest,
        st.lists(st.one_of(*OUR_REQUEST_PARTS.values()), max_size=3),
        instructions=maybe,
        timestamp=st.none() | moments,
        metadata=details,
    )
    | st.builds(
        ours.ModelResponse,
        st.lists(st.one_of(*OUR_RESPONSE_PARTS.values()), max_size=4),
        usage=our_usage,
        origin=origins,
        model_name=maybe,
        provider_response_id=maybe,
        finish_reason=st.sampled_from([None, "stop", "length", "content_filter", "tool_call", "pause", "error"]),
        native_finish_reason=maybe,
        provider_details=details,
        timestamp=st.none() | moments,
    ),
    max_size=3,
)

binaries = st.builds(
    lambda raw, kind, more: theirs.BinaryContent.narrow_type(
        theirs.BinaryContent(raw, media_type=kind, vendor_metadata=more)
    ),
    st.binary(max_size=6),
    media,
    details,
)
same = {"id": maybe, "provider_name": maybe, "provider_details": details}
citations = st.builds(
    theirs.Citation,
    st.lists(
        st.builds(theirs.WebCitationSource, links, title=maybe, excerpts=st.lists(words, max_size=2))
        | st.builds(theirs.DocumentCitationSource, document_id=names, title=maybe),
        min_size=1,
        max_size=2,
    ),
    anchor=st.none()
    | st.builds(lambda at, long: theirs.ContentCitationAnchor(start=at, end=at + long), numbers, st.integers(1, 9)),
)
speech = st.builds(
    theirs.SpeechPart,
    speaker=st.just("assistant"),
    transcript=st.text(min_size=1, max_size=5),
    interrupted_at_ms=st.none() | numbers,
    **same,
)
THEIR_RESPONSE_PARTS: dict[type, st.SearchStrategy[Any]] = {
    theirs.ThinkingPart: st.builds(
        theirs.ThinkingPart, words, signature=maybe, **(same | {"id": maybe | st.just("redacted_thinking")})
    ),
    theirs.TextPart: st.builds(
        theirs.TextPart, words, citations=st.none() | st.lists(citations, min_size=1, max_size=2), **same
    ),
    theirs.ToolCallPart: st.builds(theirs.ToolCallPart, names, st.none() | words | objects, words, **same),
    theirs.NativeToolCallPart: st.builds(theirs.NativeToolCallPart, names, st.none() | words | objects, words, **same),
    theirs.NativeToolReturnPart: st.builds(
        theirs.NativeToolReturnPart,
        names,
        json_values,
        words,
        timestamp=moments,
        metadata=json_values,
        provider_name=maybe,
        provider_details=details,
    ),
    theirs.FilePart: st.builds(theirs.FilePart, binaries, **same),
    theirs.CompactionPart: st.builds(theirs.CompactionPart, maybe, metadata=details, **same),
    theirs.SpeechPart: speech,
}
their_content = st.one_of(
    words,
    st.builds(theirs.TextContent, words, metadata=json_values),
    st.builds(lambda value: theirs.StructuredContent(value, tag="state"), objects),
    st.builds(theirs.ImageUrl, links, force_download=st.booleans(), media_type=media, vendor_metadata=details),
    st.builds(theirs.ImageUrl, links, media_type=media, vendor_metadata=st.just({"detail": "low"})),
    st.builds(theirs.AudioUrl, links, media_type=media, vendor_metadata=details),
    st.builds(theirs.VideoUrl, links, media_type=media),
    st.builds(theirs.DocumentUrl, links, media_type=media),
    binaries,
    st.builds(theirs.UploadedFile, words, st.sampled_from(["anthropic", "openai"]), media_type=media),
    st.builds(theirs.CachePoint, ttl=st.sampled_from(["5m", "1h"])),
)
retries = st.builds(theirs.RetryInfo, st.just("validation_error"), attempt=st.none() | numbers)
THEIR_REQUEST_PARTS: dict[type, st.SearchStrategy[Any]] = {
    theirs.SystemPromptPart: st.builds(
        theirs.SystemPromptPart, words, timestamp=moments, dynamic_ref=maybe, metadata=details
    ),
    theirs.UserPromptPart: st.builds(
        theirs.UserPromptPart, words | st.lists(their_content, max_size=3), timestamp=moments
    ),
    theirs.ToolReturnPart: st.builds(
        theirs.ToolReturnPart,
        names,
        json_values | st.lists(binaries | words, min_size=1, max_size=2),
        words,
        metadata=json_values,
        timestamp=moments,
        outcome=st.sampled_from(["success", "failed", "denied", "interrupted", "retried"]),
    ),
    theirs.RetryFeedbackPart: st.builds(theirs.RetryFeedbackPart, words, retry=retries, timestamp=moments),
    theirs.CompactionPart: st.builds(theirs.CompactionPart, st.text(min_size=1, max_size=5), metadata=details),
    theirs.ToolAvailabilityDeltaPart: st.builds(
        theirs.ToolAvailabilityDeltaPart, tools_added=st.lists(names, max_size=2), tool_call_id=maybe
    ),
    theirs.SpeechPart: st.builds(theirs.SpeechPart, speaker=st.just("user"), transcript=words),
}
their_usage = st.builds(
    RequestUsage,
    input_tokens=numbers,
    output_tokens=numbers,
    cache_read_tokens=numbers,
    cache_write_1h_tokens=numbers,
    output_reasoning_tokens=numbers,
    details=st.dictionaries(names, numbers, max_size=2),
    cost=st.none() | st.just(Decimal("0.25")),
)
their_messages = st.lists(
    st.builds(
        theirs.ModelRequest,
        st.lists(st.one_of(*THEIR_REQUEST_PARTS.values()), max_size=4),
        timestamp=st.none() | moments,
        instructions=maybe,
        run_id=maybe,
        conversation_id=maybe,
        metadata=details,
        state=st.sampled_from(["complete", "interrupted"]),
    )
    | st.builds(
        theirs.ModelResponse,
        st.lists(st.one_of(*THEIR_RESPONSE_PARTS.values()), max_size=4),
        usage=their_usage,
        model_name=maybe,
        timestamp=moments,
        provider_name=maybe,
        provider_url=maybe,
        provider_details=st.none() | objects | st.just({"finish_reason": "end_turn", "n": 1}),
        provider_response_id=maybe,
        finish_reason=st.sampled_from([None, "stop", "length", "content_filter", "tool_call", "error"]),
        run_id=maybe,
        metadata=details,
        state=st.sampled_from(["complete", "incomplete", "suspended", "interrupted"]),
    ),
    max_size=2,
)


def stored(messages: list[theirs.ModelMessage]) -> list[theirs.ModelMessage]:
    """The messages as Pydantic AI gives them back from its own JSON."""
    adapter = theirs.ModelMessagesTypeAdapter
    return adapter.validate_json(adapter.dump_json(messages))


def kept_as_json(messages: list[ours.ModelMessage]) -> list[ours.ModelMessage]:
    return msgspec.json.decode(msgspec.json.encode(messages), type=list[ours.ModelMessage])


# --- the properties ----------------------------------------------------------------------------------------------


@many
@given(json_values, json_values)
def test_a_patch_makes_any_value_of_any_other(whole: Any, back: Any) -> None:
    patch = difference(whole, back)
    if patch is None:
        assert msgspec.json.encode(whole, order="sorted") == msgspec.json.encode(back, order="sorted")
    else:
        assert msgspec.json.encode(apply(patch, back), order="sorted") == msgspec.json.encode(whole, order="sorted")


def test_the_strategies_know_every_kind_of_part() -> None:
    kinds = {kind.__struct_config__.tag for kind in [*OUR_RESPONSE_PARTS, *OUR_REQUEST_PARTS]}
    told = msgspec.json.schema(ours.ModelRequest), msgspec.json.schema(ours.ModelResponse)
    assert {str(kind) for kind in kinds} == {
        value["properties"]["part_kind"]["enum"][0]
        for schema in told
        for value in schema["$defs"].values()
        if "part_kind" in value["properties"]
    }


@many
@given(our_messages)
def test_ours_come_back_as_they_were(messages: list[ours.ModelMessage]) -> None:
    there = to_pydantic(messages)
    assert msgspec.to_builtins(from_pydantic(there)) == msgspec.to_builtins(messages)
    assert from_pydantic(there) == messages
    assert from_pydantic(stored(there)) == messages  # also when their application stored them


@many
@given(their_messages)
def test_theirs_come_back_as_they_were(messages: list[theirs.ModelMessage]) -> None:
    here = from_pydantic(messages)
    back = to_pydantic(here)
    assert back == stored(messages)
    assert stored(back) == back
    assert to_pydantic(kept_as_json(here)) == back  # also when our application stored them


@many
@given(their_messages)
def test_a_second_journey_changes_nothing(messages: list[theirs.ModelMessage]) -> None:
    once = from_pydantic(messages)
    assert from_pydantic(to_pydantic(once)) == once


@many
@given(our_messages, json_values)
def test_what_is_no_patch_is_left_alone(messages: list[ours.ModelMessage], nonsense: Any) -> None:
    there = to_pydantic(messages)
    for message in there:
        message.metadata = {**(message.metadata or {}), "pellucid": nonsense}
    here = from_pydantic(there)
    assert to_pydantic(here) == stored(there)


# --- rules that a round trip does not show -----------------------------------------------------------------------


def test_the_fields_that_both_know_are_said_in_both_words() -> None:
    [request, response] = to_pydantic(
        [
            ours.ModelRequest(
                [ours.UserPromptPart([ours.Text("What?"), ours.Image(data="aGk=", media_type="image/png")])]
            ),
            ours.ModelResponse(
                [
                    ours.ThinkingPart("Hm.", id="rs_1", signature="sig", provider_name="openai"),
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
def test_what_was_kept_is_void_once_the_part_says_something_else(secret: str) -> None:
    """Whoever takes words out of a history has taken them out."""
    there = to_pydantic([ours.ModelResponse([ours.TextPart(secret, logprobs=[{"token": secret}])])])
    there[0].parts[0].content = "gone"  # type: ignore[union-attr]
    assert secret not in str(from_pydantic(there)[0].parts)

    request = theirs.ModelRequest([theirs.UserPromptPart([theirs.TextContent(secret, metadata=1)])])
    [here] = from_pydantic([request])
    edited = msgspec.structs.replace(here, parts=[ours.UserPromptPart("gone")])
    assert secret not in str(to_pydantic([edited])[0].parts)


def test_nothing_kept_makes_a_system_prompt_of_what_a_user_said() -> None:
    [there] = to_pydantic([ours.ModelRequest([ours.UserPromptPart("hi", name="n")])])
    assert there.metadata is not None
    there.metadata["pellucid"]["parts"]["0"][1] = {"in": {"part_kind": {"is": "system-prompt"}}}
    assert from_pydantic([there])[0].parts == [ours.UserPromptPart("hi")]


def test_an_object_of_the_applications_own_is_its_json() -> None:
    returned = theirs.ToolReturnPart("f", {"at": datetime(2026, 1, 1, tzinfo=UTC), "for": timedelta(hours=1)}, "c")
    [request] = from_pydantic([theirs.ModelRequest([returned])])
    assert isinstance(request.parts[0], ours.ToolReturnPart)
    assert request.parts[0].content == {"at": "2026-01-01T00:00:00Z", "for": "PT1H"}
    assert to_pydantic([request]) == stored([theirs.ModelRequest([returned])])
