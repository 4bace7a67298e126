"""Hypothesis strategies for any message of ours and any message of Pydantic AI."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import strategies as st
from pydantic_ai import messages as theirs
from pydantic_ai.usage import RequestUsage

from pellucid import parts as ours
from pellucid.interop.pydantic_ai.conventions import PROVIDERS
from pellucid.providers.profiles import builtin_profiles

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
real_origins = st.sampled_from(
    [
        ours.Origin(row.responses or row.profile, builtin_profiles()[row.responses or row.profile].wire, "m")
        for row in PROVIDERS.values()
    ]
)
origins = st.none() | st.builds(ours.Origin, names, names, names, st.none() | names) | real_origins
providers = maybe | st.sampled_from([*PROVIDERS, "openai-responses", "google-gla"])
ids = maybe | st.sampled_from(["redacted_thinking", "redacted_content", "reasoning_content", "content", "rs_1"])
call_ids = words | st.sampled_from(["call_1|fc_1", "pyd_ai_1", "metadata:web_search"])
wire_details = st.sampled_from(
    [
        {"thought_signature": "c2ln"},
        {"raw_content": ["a"]},
        {"raw_content": ["a", "b"]},
        {"native": {"type": "web_search_call", "id": "ws_1"}},
        {"type": "reasoning.encrypted", "format": None, "index": 0},
        {"extra_content": {"google": {"thought_signature": "c2ln"}}},
        {"citations": [{"type": "url_citation", "url": "https://a.test"}]},
        {"encrypted_content": "blob"},
        {"phase": "commentary", "namespace": "n", "anthropic_caller": {"type": "x"}},
    ]
)
links_cited = st.builds(
    lambda url, more: {"type": "url_citation", "url": url, **more},
    links,
    st.dictionaries(names, json_values, max_size=2),
) | st.fixed_dictionaries(
    {"type": st.just("url_citation"), "url": links, "title": words, "start_index": numbers, "end_index": numbers}
)


def optional(kind: type[msgspec.Struct], **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for instances of one of our structs, with a strategy for each field by its name."""
    fields = {name: FIELDS[name] for name in kind.__struct_fields__ if name not in known} | known
    return st.builds(kind, **fields)


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    # What clients of one wire sent: Pydantic AI has no place for it.
    **dict.fromkeys(("wire_fields", "wire"), st.none()),
    "visible_texts": st.just(()),
    "content": words,
    "id": ids,
    "signature": maybe,
    "provider_name": providers,
    "provider_details": details | wire_details,
    "dynamic_ref": maybe,
    "form": st.sampled_from(["raw", "summary", "redacted"]),
    "complete": st.booleans(),
    "item_id": maybe,
    "origin": origins,
    "annotations": st.none() | st.lists(links_cited | objects, max_size=2),
    "logprobs": st.none() | st.lists(objects, max_size=2),
    "tool_name": names,
    "args": st.none() | words | objects,
    "tool_call_id": call_ids,
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
OUR_RESPONSE_PARTS: dict[type[msgspec.Struct], st.SearchStrategy[Any]] = {
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
OUR_REQUEST_PARTS: dict[type[msgspec.Struct], st.SearchStrategy[Any]] = {
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
same = {"id": ids, "provider_name": providers, "provider_details": details | wire_details}
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
    theirs.ThinkingPart: st.builds(theirs.ThinkingPart, words, signature=maybe, **same),
    theirs.TextPart: st.builds(
        theirs.TextPart, words, citations=st.none() | st.lists(citations, min_size=1, max_size=2), **same
    ),
    theirs.ToolCallPart: st.builds(theirs.ToolCallPart, names, st.none() | words | objects, call_ids, **same),
    theirs.NativeToolCallPart: st.builds(
        theirs.NativeToolCallPart,
        names | st.sampled_from(["web_search", "code_execution", "mcp_server:a"]),
        st.none() | words | objects,
        call_ids,
        **same,
    ),
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
        provider_name=providers,
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
