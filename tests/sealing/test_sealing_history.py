"""Item, seal, token, client, history: opaque data returns to its provider completely, and to no other provider.

The request of a wire for the conversation that the server stored is compared with the request for the conversation
that a client returned, which has seen text and calls only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.emit import response_events
from pellucid.events import ItemEndEvent, ItemStartEvent, PartEndEvent
from pellucid.fold import fold
from pellucid.parts import (
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
    RefusalPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.history import parts_to_send
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.sealing import AttachedHistory, Sealed, Sealer, SealError, attach, seal_item
from pellucid.sealing.items import VisiblePart, has_sealable_data
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.examples import costly
from tests.sealing.sealing_kit import KEYS, texts
from tests.sealing.sealing_kit import parts as any_parts

SEALER = Sealer(KEYS)
ELSEWHERE = Origin("elsewhere", "other", "x")
ROWS: dict[str, Profile] = {}
for row in builtin_profiles().values():
    ROWS.setdefault(row.wire, row)

MARK = "bWFya2Vk"  # base64, for the wires on which signatures are bytes
PROVIDERS: dict[str, Any] = {"id": f"id-{MARK}", "provider_name": "p"}
SIGNED: dict[str, Any] = {**PROVIDERS, "signature": MARK, "provider_details": {"x": MARK}}
PARTS: list[ModelResponsePart] = [
    ThinkingPart("thought", **SIGNED),
    ThinkingPart("in short", form="summary", **SIGNED),
    ThinkingPart("", form="redacted", **SIGNED),
    ThinkingPart("unsigned"),
    TextPart("text", **SIGNED),
    TextPart("", **SIGNED),
    TextPart("plain"),
    RefusalPart("no", **PROVIDERS, provider_details={"x": MARK}),
    ToolCallPart("f", '{"a": 1.0, "b": "ä"}', "c1", **SIGNED),
    ToolCallPart("f", {"a": 1}, "c1", **SIGNED),
    ToolCallPart("f", "", "c1", **SIGNED),
    ToolCallPart("f", '{"a":1}', "c1"),
    BuiltinToolCallPart("web_search", '{"query":"x"}', "b1", **SIGNED),
    BuiltinToolReturnPart("web_search", {"results": []}, "b1", **PROVIDERS, provider_details={"x": MARK}),
    FilePart("aGk=", "image/png", **SIGNED),
    CompactionPart("earlier", **SIGNED),
    CompactionPart(None, **SIGNED),
    OpaquePart("new", {"type": "new", "x": MARK}, **PROVIDERS),
]

each_wire = pytest.mark.parametrize("wire", WIRES)
own_or_foreign = pytest.mark.parametrize("own", [True, False], ids=["own", "foreign"])


def test_the_parts_cover_every_kind() -> None:
    assert {type(part) for part in PARTS} | {SealedPart} == set(get_args(ModelResponsePart))
    assert set(WIRES) == set(ROWS)


def items(response: ModelResponse) -> list[tuple[ItemStartEvent, list[ModelResponsePart], ItemEndEvent]]:
    out: list[tuple[ItemStartEvent, list[ModelResponsePart], ItemEndEvent]] = []
    for event in response_events(response):
        match event:
            case ItemStartEvent():
                start, parts = event, []
            case PartEndEvent():
                parts.append(event.part)
            case ItemEndEvent():
                out.append((start, parts, event))
    return out


def client_part(part: ModelResponsePart) -> ModelResponsePart | None:
    """Return the part as a client has it and returns it."""
    match part:
        case TextPart():
            return TextPart(part.content, complete=part.complete, item_id=part.item_id)
        case RefusalPart():
            return RefusalPart(part.content, complete=part.complete, item_id=part.item_id)
        case ToolCallPart():
            # A client that parsed the arguments and serialised them again.
            args = json.dumps(json.loads(part.args_as_json().replace("1.0", "1")), indent=1)
            return ToolCallPart(part.tool_name, args, part.tool_call_id, complete=part.complete, item_id=part.item_id)
        case _:
            return None


def client_response(response: ModelResponse, *, first: bool = False, thoughts: bool = False) -> ModelResponse:
    """Return the response as a client returns it: carriers after or before their items, with or without reasoning."""
    back: list[ModelResponsePart] = []
    assert response.origin is not None
    for start, parts, end in items(response):
        sealed = seal_item(parts, start, end, response.origin, 7)
        tokens: list[ModelResponsePart] = []
        if sealed is not None:
            assert (sealed.item_id, sealed.made_for, sealed.sealed_at) == (start.id, response.origin, 7)
            assert all(getattr(part, "origin", None) == response.origin for part in sealed.parts)
            tokens = [SealedPart(SEALER.seal(sealed, tenant="a"), start.id)]
        visible = [part for part in map(client_part, parts) if part is not None]
        if thoughts:
            shown = [part for part in parts if isinstance(part, ThinkingPart) and part.content]
            visible += [ThinkingPart(part.content, form=part.form, item_id=start.id) for part in shown]
        back += [*tokens, *visible] if first else [*visible, *tokens]
    return ModelResponse(back)


def opened(part: SealedPart) -> Sealed:
    return SEALER.open(part.token, tenant="a")


def attached_response(response: ModelResponse, **how: bool) -> ModelResponse:
    attached = attach([client_response(response, **how)], opened)
    assert not attached.unclaimed
    [message] = attached.messages
    assert isinstance(message, ModelResponse)
    return message


def numbered(parts: list[ModelResponsePart]) -> list[ModelResponsePart]:
    return [replace(part, item_id=f"item_{number}") for number, part in enumerate(parts)]


def bare(parts: list[ModelResponsePart]) -> list[Any]:
    """Return the parts as values, without their origin and the form of their arguments."""
    out = []
    for part in parts:
        value = {**msgspec.to_builtins(part), "origin": None}
        if isinstance(part, ToolCallPart):
            value["args"] = json.loads(part.args_as_json())
        if isinstance(part, VisiblePart) and not has_sealable_data(part):
            # An id alone does not have to be returned.
            value = {name: field for name, field in value.items() if not name.startswith("provider_") and name != "id"}
        out.append(value)
    return out


def body(wire: str, response: ModelResponse) -> Any:
    messages: list[ModelMessage] = [ModelRequest([UserPromptPart("hi")]), response]
    if response.tool_calls:
        results = [ToolReturnPart(call.tool_name, "1", call.tool_call_id) for call in response.tool_calls]
        messages.append(ModelRequest([*results]))
    messages.append(ModelRequest([UserPromptPart("and?")]))
    written = WIRES[wire].encode(ModelCall("m", messages), ROWS[wire], target(wire))
    return parsed(json.loads(msgspec.json.encode(written)))


def expected_body(wire: str, stored: ModelResponse) -> Any:
    """Return the body with the stored response, which that with the response of the client must equal.

    Over Responses, a part that was separated from its response has its id only after its reasoning.
    """
    if wire == "openai_responses":
        parts = [replace(part, origin=stored.origin) for part in stored.parts if not isinstance(part, SealedPart)]
        stored = replace(stored, parts=parts, origin=None)
    return body(wire, stored)


def parsed(value: Any) -> Any:
    """Parse the arguments in the body: clients may serialise them differently."""
    if isinstance(value, dict):
        return {name: parsed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [parsed(inner) for inner in value]
    if isinstance(value, str) and value[:1] == "{":
        return json.loads(value)
    return value


def target(wire: str) -> Origin:
    return Origin(ROWS[wire].name, wire, "m")


@own_or_foreign
@each_wire
def test_every_kind_of_part_survives(wire: str, own: bool) -> None:
    maker = target(wire) if own else ELSEWHERE
    with Cases() as case:
        for number, part in enumerate(PARTS):
            for first, thoughts in product((False, True), repeat=2):
                with case(f"{part.part_kind} {number}, {first=}, {thoughts=}"):
                    stored = ModelResponse(numbered([part]), origin=maker)
                    back = attached_response(stored, first=first, thoughts=thoughts)
                    assert bare(back.parts) == bare(
                        [client_part(p) or p if not is_sealed(p) else p for p in stored.parts]
                    )
                    sent, expected = (parts_to_send(response, target(wire), ROWS[wire]) for response in (back, stored))
                    assert bare(sent) == bare(expected)
                    assert body(wire, back) == expected_body(wire, stored)
                    if not own:
                        assert MARK.encode() not in msgspec.json.encode([sent, body(wire, back)])


def is_sealed(part: ModelResponsePart) -> bool:
    return not isinstance(part, VisiblePart) or has_sealable_data(part)


@own_or_foreign
@each_wire
@given(st.permutations(PARTS), st.booleans(), st.booleans())
@costly
def test_turns_of_all_kinds_survive(
    wire: str, own: bool, parts: list[ModelResponsePart], first: bool, thoughts: bool
) -> None:
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    ids = {id(call): f"c{number}" for number, call in enumerate(calls)}
    named = [replace(p, tool_call_id=ids[id(p)]) if isinstance(p, ToolCallPart) else p for p in parts]
    stored = ModelResponse(numbered(named), origin=target(wire) if own else ELSEWHERE)
    back = attached_response(stored, first=first, thoughts=thoughts)
    assert bare(back.parts) == bare(stored.parts)
    assert body(wire, back) == expected_body(wire, stored)


@given(st.lists(any_parts, max_size=6), st.booleans())
def test_any_response_survives(parts: list[ModelResponsePart], first: bool) -> None:
    origin = Origin("p", "w", "m")
    named = [
        replace(part, tool_call_id=f"c{place}", args={"n": place}) if isinstance(part, ToolCallPart) else part
        for place, part in enumerate(parts)
    ]
    # Log-probabilities are never returned; parts without opaque data are not sealed; empty parts are not sent.
    plain = [replace(part, logprobs=None) if isinstance(part, TextPart) else part for part in named]
    full = [
        replace(part, signature="s", provider_details={"x": 1}) if hasattr(part, "signature") else part
        for part in plain
    ]
    expected = ModelResponse(
        numbered([replace(part, origin=None, id="i" if has_sealable_data(part) else None) for part in full]),
        origin=origin,
    )
    assert bare(attached_response(expected, first=first).parts) == bare(expected.parts)


@given(st.permutations(PARTS))
@costly
def test_the_sealed_parts_are_those_of_fold(parts: list[ModelResponsePart]) -> None:
    response = ModelResponse(numbered(parts), origin=ELSEWHERE)
    folded = fold([*response_events(response)]).response
    assert folded is not None
    sealed = [seal_item(ended, start, end, ELSEWHERE, 0) for start, ended, end in items(response)]
    whole = [part for item in sealed if item is not None for part in item.parts if not isinstance(part, VisiblePart)]
    assert [replace(part, origin=None) for part in whole] == [
        part for part in folded.parts if not isinstance(part, VisiblePart)
    ]


def test_data_of_the_item_end_event_is_sealed_with_its_parts() -> None:
    start, end = (
        ItemStartEvent(0, "reasoning", "rs_1", "native"),
        ItemEndEvent(0, "completed", "enc", {"n": 1}, ELSEWHERE),
    )
    origin = Origin("p", "w", "m")
    sealed = seal_item([ThinkingPart("a", form="summary"), ThinkingPart("b", form="summary")], start, end, origin, 0)
    assert sealed is not None
    assert sealed.made_for == ELSEWHERE
    assert sealed.parts[0] == ThinkingPart(
        "a",
        signature="enc",
        provider_name="elsewhere",
        provider_details={"native": {"n": 1}},
        form="summary",
        item_id="rs_1",
        origin=ELSEWHERE,
    )
    empty = seal_item([], start, replace(end, native=None), origin, 0)
    assert empty is not None
    assert empty.parts == [
        ThinkingPart("", id="native", signature="enc", provider_name="elsewhere", item_id="rs_1", origin=ELSEWHERE)
    ]


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([TextPart("plain")], "message"),
        ([TextPart("with an id of its maker's alone", id="msg_1", provider_name="p")], "message"),
        ([ToolCallPart("f", "{}", "c")], "tool_call"),
        ([], "reasoning"),
        ([], "message"),
        ([SealedPart("token")], "reasoning"),
        ([ThinkingPart("", complete=False)], "reasoning"),
    ],
)
def test_parts_without_opaque_data_are_not_sealed(parts: list[ModelResponsePart], kind: Any) -> None:
    end = ItemEndEvent(0, "incomplete" if not parts else "completed")
    assert seal_item(parts, ItemStartEvent(0, kind, "x"), end, ELSEWHERE, 0) is None


# --- changes by a client -----------------------------------------------------------------------------------------


TEXT = TextPart("so", signature="s1", item_id="msg_1")
CALL = ToolCallPart("f", '{"a":1}', "c1", signature="s2", item_id="fc_1")
THOUGHT = ThinkingPart("why", signature="s0", item_id="rs_1")
STORED = ModelResponse([THOUGHT, TEXT, CALL], origin=ELSEWHERE)


def after(edit: Any) -> AttachedHistory:
    """Attach the history of a client that applied `edit` to every part."""
    edited = [part for returned_part in client_response(STORED).parts if (part := edit(returned_part)) is not None]
    return attach([ModelResponse(edited)], opened)


def signatures(attached: AttachedHistory) -> list[Any]:
    [message] = attached.messages
    assert isinstance(message, ModelResponse)
    return [getattr(part, "signature", None) for part in message.parts]


def changed(kind: type, **values: Any) -> Callable[[ModelResponsePart], ModelResponsePart]:
    def edit(part: ModelResponsePart) -> ModelResponsePart:
        return replace(part, **values) if isinstance(part, kind) else part

    return edit


def test_ids_may_be_left_out() -> None:
    attached = after(lambda part: replace(part, item_id=None))
    assert signatures(attached) == ["s0", "s1", "s2"]
    assert not attached.unclaimed


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (changed(TextPart, content="so."), ["s0", None, "s2"]),
        (changed(TextPart, item_id="msg_2"), ["s0", None, "s2"]),
        (changed(ToolCallPart, args='{"a":2}'), ["s0", "s1", None]),
        (changed(ToolCallPart, tool_name="g"), ["s0", "s1", None]),
        (changed(ToolCallPart, tool_call_id="c2"), ["s0", "s1", None]),
        (lambda part: None if isinstance(part, TextPart) else part, ["s0", "s2"]),
    ],
)
def test_a_signature_goes_to_no_other_text(edit: Any, expected: list[Any]) -> None:
    attached = after(edit)
    assert signatures(attached) == expected
    assert len(attached.unclaimed) == 1


@pytest.mark.parametrize("ids", [("msg_1", "msg_2"), ("msg_1", "msg_1")], ids=["two items", "one item"])
def test_of_two_equal_texts_each_has_its_own_signature(ids: tuple[str, str]) -> None:
    texts = [TextPart("so", signature=f"s{n}", item_id=item_id) for n, item_id in enumerate(ids, 1)]
    twice = ModelResponse([*texts], origin=ELSEWHERE)
    for first in (True, False):
        assert [part.signature for part in attached_response(twice, first=first).parts] == ["s1", "s2"]  # type: ignore[union-attr]
        returned_parts = [replace(part, item_id=None) for part in client_response(twice, first=first).parts]
        assert signatures(attach([ModelResponse(returned_parts)], opened)) == ["s1", "s2"]


def test_incomplete_parts_stay_incomplete() -> None:
    cut = ModelResponse([replace(CALL, args='{"a', complete=False)], origin=ELSEWHERE)
    [start, parts, end], *_ = items(cut)
    sealed = seal_item(parts, start, end, ELSEWHERE, 0)
    assert sealed is not None
    returned_parts: list[ModelResponsePart] = [
        ToolCallPart("f", '{"a', "c1"),
        SealedPart(SEALER.seal(sealed, tenant="a")),
    ]
    [message] = attach([ModelResponse(returned_parts)], opened).messages
    assert message.parts == [replace(CALL, args='{"a', complete=False, origin=ELSEWHERE, item_id=None)]


def test_a_repeated_token_counts_once() -> None:
    returned_parts = [
        part for part in client_response(STORED).parts for _ in range(2 if isinstance(part, SealedPart) else 1)
    ]
    assert signatures(attach([ModelResponse(returned_parts)], opened)) == ["s0", "s1", "s2"]


@given(texts)
def test_a_seal_replaces_its_visible_reasoning_only(other: str) -> None:
    returned_parts: list[ModelResponsePart] = [
        ThinkingPart("a summary", form="summary", item_id="rs_1"),
        *client_response(STORED, thoughts=True).parts,
        ThinkingPart("why"),
        ThinkingPart(other, item_id="rs_2"),
    ]
    [message] = attach([ModelResponse(returned_parts)], opened).messages
    thoughts = [part for part in message.parts if isinstance(part, ThinkingPart)]
    assert thoughts == [replace(THOUGHT, origin=ELSEWHERE), ThinkingPart(other, item_id="rs_2")]


def test_a_signature_does_not_leave_its_turn() -> None:
    [*parts] = client_response(STORED).parts
    messages: list[ModelMessage] = [
        ModelResponse([p for p in parts if not isinstance(p, TextPart)]),
        ModelRequest([]),
        ModelResponse([TEXT]),
    ]
    attached = attach(messages, opened)
    assert attached.messages[2] == messages[2]
    assert [part.signature for part in attached.unclaimed if isinstance(part, TextPart)] == ["s1"]


def test_an_error_of_a_token_is_raised() -> None:
    def opener(part: SealedPart) -> Sealed:
        try:
            return opened(part)
        except SealError as error:
            raise error.at("input[2].encrypted_content") from None

    with pytest.raises(SealError) as wrong:
        attach([ModelResponse([SealedPart("token")])], opener)
    assert (wrong.value.info.code, wrong.value.info.param) == ("seal_broken", "input[2].encrypted_content")


def test_foreign_returns_the_parts_of_other_providers() -> None:
    attached = attach([ModelRequest([]), client_response(STORED)], opened)
    assert len(attached.sealed) == len(attached.foreign(target("google"))) == 3
    assert attached.foreign(ELSEWHERE) == []
