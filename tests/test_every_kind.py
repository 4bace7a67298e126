"""Every package that reads parts and events handles every kind: none is lost because it is new or rare."""

from collections.abc import Collection
from itertools import product
from typing import Any, get_args

import msgspec
import pytest

from pellucid.errors import RequestError
from pellucid.events import (
    ITEM_OF,
    ErrorEvent,
    Event,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    ResponseEndEvent,
    RunEndEvent,
    SideEvent,
    SummaryEvent,
)
from pellucid.fold import fold
from pellucid.parts import (
    DELTA_OF,
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    PartDelta,
    RefusalPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.protocols import agui, ai_sdk, chat, chat_completions, messages
from pellucid.protocols.agui import encode as agui_encode
from pellucid.protocols.agui.verify import verify as verify_agui
from pellucid.protocols.ai_sdk.verify import verify as verify_ai_sdk
from pellucid.protocols.chat import answer_builder as chat_account
from pellucid.protocols.chat.verify import verify as verify_chat
from pellucid.protocols.openresponses import Encoder, parse_request
from pellucid.protocols.openresponses import encode as openresponses_encode
from pellucid.protocols.openresponses.verify import verify
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.every_event import every_event, turn_with_part

PARTS: list[ModelResponsePart] = [
    ThinkingPart("thought", signature="s", provider_name="p"),
    TextPart("text"),
    RefusalPart("no"),
    ToolCallPart("f", '{"a":1}', "c1"),
    BuiltinToolCallPart("web_search", '{"query":"x"}', "b1", provider_name="p"),
    BuiltinToolReturnPart("web_search", {"results": []}, "b1", provider_name="p"),
    FilePart("aGk=", "image/png", provider_name="p"),
    CompactionPart("earlier", provider_name="p"),
    OpaquePart("new", {"type": "new", "x": 1}, provider_name="p"),
    SealedPart("token"),
]


def test_the_tables_name_every_kind() -> None:
    assert {type(part) for part in PARTS} == set(get_args(ModelResponsePart)) == set(ITEM_OF)
    assert set(DELTA_OF.values()) == set(get_args(PartDelta))


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_encodes_every_part(wire: str) -> None:
    row = next(row for row in builtin_profiles().values() if row.wire == wire)
    target = Origin(row.name, wire, "m")
    with Cases() as case:
        for part, maker in product(PARTS, (target, Origin("elsewhere", "other", "x"))):
            messages: list[ModelMessage] = [ModelRequest([UserPromptPart("hi")]), ModelResponse([part], origin=maker)]
            if isinstance(part, ToolCallPart):
                messages.append(ModelRequest([ToolReturnPart("f", "1", "c1")]))
            messages.append(ModelRequest([UserPromptPart("and?")]))
            call = ModelCall("m", messages)
            with case(f"{part.part_kind} of {maker.provider}"):
                if isinstance(part, SealedPart):
                    with pytest.raises(RequestError):
                        WIRES[wire].encode(call, row, target)
                else:
                    msgspec.json.encode(WIRES[wire].encode(call, row, target))


NOT_SHOWN: dict[str, set[type[Any]]] = {
    "agui": {ErrorEvent, ResponseEndEvent, FunctionToolCallEvent, FinalResultEvent, SummaryEvent},
    "ai_sdk": {ErrorEvent, ResponseEndEvent, FunctionToolCallEvent, FinalResultEvent, SideEvent, SummaryEvent},
    "chat": {ErrorEvent, FinalResultEvent, SummaryEvent},
    "chat_completions": {
        *(ErrorEvent, ResponseEndEvent, FunctionToolCallEvent, FinalResultEvent, SideEvent, SummaryEvent),
    },
    "messages": {ErrorEvent, FunctionToolCallEvent, FunctionToolResultEvent, FinalResultEvent, SideEvent, SummaryEvent},
    "openresponses": {ErrorEvent, ResponseEndEvent, FunctionToolCallEvent, FinalResultEvent, SideEvent, SummaryEvent},
}
"""The kinds of events that a protocol does not show. An error is shown with the run's end, which repeats it; a summary
is a part when an encoder receives it; the chat's endpoint reads side events of AG-UI itself."""

HANDLERS: dict[str, Collection[type[Any]]] = {
    "agui": agui_encode.HANDLERS,
    "ai_sdk": ai_sdk.Encoder.HANDLERS,
    "chat": chat_account.HANDLERS,
    "chat_completions": chat_completions.Encoder.HANDLERS,
    "messages": messages.Encoder.HANDLERS,
    "openresponses": openresponses_encode.HANDLERS,
}


@pytest.mark.parametrize("protocol", HANDLERS)
def test_a_protocol_lists_every_kind_of_event_as_shown_or_not(protocol: str) -> None:
    assert set(get_args(Event)) - {PartDeltaEvent} - set(HANDLERS[protocol]) == NOT_SHOWN[protocol]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.part_kind)
def test_turns_of_every_kind_of_part_are_valid_and_can_be_encoded(part: ModelResponsePart) -> None:
    events = [*turn_with_part(part), RunEndEvent("completed")]
    response = fold(events).response
    assert response is not None
    assert [type(folded) for folded in response.parts] == [type(part)]
    encoder = Encoder(parse_request(b'{"input":"x"}').response("resp_1", "m", 0))
    assert verify(encoder.start() + encoder.feed(events, 0)) == []


def test_every_protocol_encodes_every_event() -> None:
    encoder = Encoder(parse_request(b'{"input":"x"}').response("resp_1", "m", 0))
    assert verify(encoder.start() + encoder.feed(every_event(), 0)) == []


AGUI = {
    "thinking": "REASONING_MESSAGE_CONTENT",
    "text": "TEXT_MESSAGE_CONTENT",
    "refusal": "TEXT_MESSAGE_CONTENT",
    "tool-call": "TOOL_CALL_ARGS",
}
"""The events for each kind of part; other kinds are sent only as sealed data."""


@pytest.mark.parametrize("dialect", agui.DIALECTS)
def test_ag_ui_encodes_every_part(dialect: agui.DialectName) -> None:
    with Cases() as case:
        for part in PARTS:
            encoder = agui.Encoder("t", "r", dialect)
            stream = encoder.start() + encoder.feed([*turn_with_part(part, "seal"), RunEndEvent("completed")], 0)
            events = [msgspec.json.decode(line.removeprefix(b"data: ")) for line in stream.split(b"\n\n")[:-1]]
            types = [event["type"] for event in events]
            content = AGUI.get(part.part_kind)
            deltas = [event["delta"] for event in events if "delta" in event]
            with case(part.part_kind):
                assert verify_agui(events, dialect) is None
                if dialect == "thinking":
                    content = content and content.replace("REASONING_", "THINKING_TEXT_")
                else:
                    seals = [(event.get("encryptedValue"), event.get("encryptedContent")) for event in events]
                    assert any("seal" in pair for pair in seals)
                assert (content in types, bool(deltas)) == (content is not None, content is not None)


@pytest.mark.parametrize("dialect", agui.DIALECTS)
def test_ag_ui_encodes_every_event(dialect: agui.DialectName) -> None:
    events: list[Event] = [agui.CustomEvent(name="n", value=1).as_side_event(), *every_event()]
    encoder = agui.Encoder("t", "r", dialect)
    stream = encoder.start() + encoder.feed(events, 0)
    sent_events = [msgspec.json.decode(line.removeprefix(b"data: ")) for line in stream.split(b"\n\n")[:-1]]
    assert verify_agui(sent_events, dialect) is None
    types = [event["type"] for event in sent_events]
    assert ("CUSTOM" in types, "TOOL_CALL_RESULT" in types, types[-1]) == (True, True, "RUN_ERROR")


CHAT = {
    "thinking": ("reasoning", "reasoning_part_delta"),
    "text": ("text", "text_delta"),
    "refusal": ("refusal", "text_delta"),
    "tool-call": ("tool_call", "tool_call_started"),
    "builtin-tool-call": ("web_search_call", "web_search_call_started"),
    "builtin-tool-return": ("web_search_call", "web_search_call_result"),
    "file": ("file", "message_final"),
    "compaction": (None, "message_final"),
    "opaque": (None, "message_final"),
    "sealed": ("reasoning", "reasoning_segment_meta"),
}
"""The chat segment of each kind of part, and an event that shows it; opaque parts are not sent."""


def chat_events(events: list[Event]) -> list[dict[str, Any]]:
    encoder = chat.Encoder(chat.message_started("evt_1", "chat_1", "m", 0))
    stream = encoder.start() + encoder.feed(events, 0)
    assert verify_chat(stream) == []
    return [msgspec.json.decode(frame.split(b"\ndata: ")[1]) for frame in stream.split(b"\n\n")[:-1]]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.part_kind)
def test_the_chat_encodes_every_part(part: ModelResponsePart) -> None:
    frames = chat_events([*turn_with_part(part), RunEndEvent("completed")])
    segment, event = CHAT[part.part_kind]
    assert [one["type"] for one in frames[-1]["event"]["segments"]] == ([segment] if segment else [])
    assert event in [frame["type"] for frame in frames]


def test_the_chat_encodes_every_event() -> None:
    types = [frame["type"] for frame in chat_events(every_event())]
    assert types[-2:] == ["message_error", "message_final"]
    assert "tool_result" in types


AI_SDK = {
    "thinking": "reasoning-end",
    "text": "text-end",
    "refusal": "text-end",
    "tool-call": "tool-input-available",
    "builtin-tool-call": "data-pellucid",
    "builtin-tool-return": "data-pellucid",
    "file": "file",
    "compaction": "data-pellucid",
    "opaque": "data-pellucid",
    "sealed": "reasoning-end",
}
"""The chunk that holds the seal of each kind of part in the AI SDK's stream."""


def ai_sdk_chunks(events: list[Event]) -> list[dict[str, Any]]:
    encoder = ai_sdk.Encoder("msg_1", "m")
    stream = encoder.start() + encoder.feed(events, 0)
    assert verify_ai_sdk(stream) == []
    return [msgspec.json.decode(line.removeprefix(b"data: ")) for line in stream.split(b"\n\n")[:-2]]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.part_kind)
def test_the_ai_sdk_stream_encodes_every_part(part: ModelResponsePart) -> None:
    chunks = ai_sdk_chunks([*turn_with_part(part, "seal"), RunEndEvent("completed")])
    [sealed] = [chunk for chunk in chunks if "seal" in msgspec.json.encode(chunk).decode().split('"')]
    assert sealed["type"] == AI_SDK[part.part_kind]


def test_the_ai_sdk_stream_encodes_every_event() -> None:
    types = [chunk["type"] for chunk in ai_sdk_chunks(every_event())]
    assert types[-3:] == ["error", "finish-step", "finish"]
    assert "tool-output-available" in types
