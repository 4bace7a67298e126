"""Every kind of part and event is encoded: in a field, as a seal, or deliberately not at all."""

from typing import get_args

import msgspec

from pellucid.errors import ERROR_KINDS, ErrorInfo
from pellucid.events import (
    Event,
    RunEndEvent,
)
from pellucid.fold import fold
from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    ModelResponsePart,
    OpaquePart,
    RefusalPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pellucid.protocols.chat_completions import error_body
from pellucid.protocols.chat_completions.verify import verify
from pellucid.protocols.errors import status_of
from tests.cases import Cases
from tests.chat_completions.chat_completions_kit import NOW, check_chunks, chunks_of, make_encoder
from tests.every_event import every_event, turn_with_part

EXAMPLES: dict[type[ModelResponsePart], tuple[ModelResponsePart, set[str]]] = {
    ThinkingPart: (ThinkingPart("thought", signature="s", provider_name="p"), {"reasoning_content", "reasoning"}),
    TextPart: (TextPart("text"), {"content"}),
    RefusalPart: (RefusalPart("no"), {"refusal"}),
    ToolCallPart: (ToolCallPart("f", '{"a":1}', "c1"), {"tool_calls"}),
    BuiltinToolCallPart: (BuiltinToolCallPart("web_search", '{"query":"x"}', "b1", provider_name="p"), set()),
    BuiltinToolReturnPart: (BuiltinToolReturnPart("web_search", {"results": []}, "b1", provider_name="p"), set()),
    FilePart: (FilePart("aGk=", "image/png", provider_name="p"), set()),
    CompactionPart: (CompactionPart("earlier", provider_name="p"), set()),
    OpaquePart: (OpaquePart("new", {"type": "new", "x": 1}, provider_name="p"), set()),
    SealedPart: (SealedPart("token"), set()),
}


def delta_fields_of(events: list[Event]) -> set[str]:
    encoder = make_encoder()
    stream = encoder.start() + encoder.feed(events, NOW)
    assert verify(stream) == []
    check_chunks(chunks_of(stream))
    _, *chunks = chunks_of(stream)
    return {name for chunk in chunks for choice in chunk.get("choices", []) for name in choice["delta"]}


def test_the_table_names_every_kind() -> None:
    assert set(EXAMPLES) == set(get_args(ModelResponsePart))


def test_every_part_has_its_delta_fields_and_its_seal_is_in_the_details() -> None:
    with Cases() as case:
        for kind in EXAMPLES:
            with case(kind.__name__):
                part, fields = EXAMPLES[kind]
                events = [*turn_with_part(part), RunEndEvent("completed")]
                fold(events)
                assert delta_fields_of(events) == fields
                assert delta_fields_of([*turn_with_part(part, "seal"), RunEndEvent("completed")]) == {
                    *fields,
                    "reasoning_details",
                }


def test_every_event_can_be_encoded() -> None:
    assert delta_fields_of(every_event()) == {"tool_calls"}


def test_every_kind_of_error_has_a_status_and_a_body() -> None:
    with Cases() as case:
        for kind in ERROR_KINDS:
            with case(kind):
                info = msgspec.convert({"kind": kind, "message": "m", "said": "s"}, ErrorInfo)
                assert 400 <= status_of(info) < 600
                assert error_body(info)["error"].keys() == {"message", "type", "param", "code"}
                assert error_body(info)["error"]["message"] == "m: s"
