"""The input of a run is parsed to parts in their order; an error names its location."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.parts import (
    Audio,
    File,
    Image,
    ModelRequest,
    ModelResponse,
    Origin,
    SealedPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    Video,
)
from pellucid.protocols.agui.history import is_carrier_of
from pellucid.protocols.agui.request import Request, parse_input
from pellucid.sealing import Keys, Sealed, Sealer, SealError, attach

USER = {"id": "u1", "role": "user", "content": "Why?"}
AGAIN = {"id": "u2", "role": "user", "content": "And?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def thought(id: str = "r1", content: Any = "hm", **more: Any) -> dict[str, Any]:
    return {"id": id, "role": "reasoning", "content": content, **more}


def answer(id: str = "a1", **more: Any) -> dict[str, Any]:
    return {"id": id, "role": "assistant", **more}


def result(id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"id": f"of-{id}", "role": "tool", "toolCallId": id, "content": "42", **more}


def read(*messages: Any, query: dict[str, str] | None = None, **more: Any) -> Request:
    body = {"threadId": "t", "runId": "r", "messages": list(messages), **more}
    return parse_input(msgspec.json.encode(body), query)


def refused(*messages: Any, query: dict[str, str] | None = None, **more: Any) -> tuple[str, str | None]:
    with pytest.raises(RequestError) as error:
        read(*messages, query=query, **more).call()
    return error.value.info.message, error.value.info.param


def test_a_turn_is_one_response_in_its_order() -> None:
    request = read(
        USER,
        thought("rs_1", encryptedValue="first", metadata={"pellucid": {"form": "summary"}}),
        answer("msg_1", content="Let me see.", encryptedValue="second"),
        thought("rs_2:2", "more"),
        answer("x", toolCalls=[{**CALL, "encryptedValue": "third"}]),
        result(),
        AGAIN,
        tools=[{"name": "look", "description": "Looks.", "parameters": {"type": "object"}}],
    )
    first, turn, second = request.call().messages
    assert first == ModelRequest([UserPromptPart("Why?")])
    assert turn == ModelResponse(
        [
            SealedPart("first", "rs_1", ("hm",)),
            ThinkingPart("hm", form="summary", item_id="rs_1"),
            SealedPart("second", "msg_1"),
            TextPart("Let me see.", item_id="msg_1"),
            ThinkingPart("more", item_id="rs_2"),
            SealedPart("third", "c1"),
            ToolCallPart("look", "{}", "c1"),
        ]
    )
    assert second == ModelRequest([ToolReturnPart("look", "42", "c1"), UserPromptPart("And?")])
    assert [tool.name for tool in request.tools] == ["look"]
    places = [request.token_path(part) for part in turn.parts if isinstance(part, SealedPart)]
    assert places == [
        "messages[1].encryptedValue",
        "messages[2].encryptedValue",
        "messages[4].toolCalls[0].encryptedValue",
    ]


def test_the_shapes_of_the_proposal_are_parsed() -> None:
    request = read(USER, thought(content=["one ", "two"], encryptedContent="it"), answer(content="So."), AGAIN)
    turn = request.messages()[1]
    assert turn.parts[:2] == [SealedPart("it", "r1", ("one two",)), ThinkingPart("one two", item_id="r1")]
    assert request.token_path(SealedPart("it", "r1")) == "messages[1].encryptedContent"


@pytest.mark.parametrize(
    "turn",
    [
        [thought()],
        [thought(encryptedValue="v")],
        [thought(content="", encryptedValue="v"), thought("r2")],
        [thought(), answer(content="")],
    ],
)
def test_reasoning_that_led_to_nothing_goes_to_no_model(turn: list[Any]) -> None:
    for after in ([AGAIN], []):
        messages = read(USER, *turn, *after).messages()
        assert [message.kind for message in messages] == ["request"]
        assert [part.content for part in messages[0].parts if isinstance(part, UserPromptPart)] == (
            ["Why?", "And?"] if after else ["Why?"]
        )


def test_sealed_reasoning_at_the_end_of_a_finished_turn_is_kept() -> None:
    turn = read(USER, answer(content="So."), thought(content="cut", encryptedValue="v"), AGAIN).messages()[1]
    assert turn.parts == [TextPart("So.", item_id="a1"), SealedPart("v", "r1", ("cut",))]


def test_a_value_opens_only_for_its_thread_and_entity() -> None:
    origin = Origin("p", "anthropic", "m")
    item = Sealed([ThinkingPart("all of it", signature="s", origin=origin)], origin, "rs_1")
    sealer = Sealer(Keys.generate())
    token = sealer.seal(item, tenant="acme", thread="t", entity="rs_1")

    def opened(request: Request) -> list[Any]:
        def open_(part: SealedPart) -> Sealed:
            return sealer.open(part.token, tenant="acme", thread=request.thread_id, entity=part.item_id)

        return attach(request.messages(), open_).messages[1].parts

    history = [USER, thought("rs_1", "in short", encryptedValue=token), answer(content="So."), AGAIN]
    assert opened(read(*history)) == [*item.parts, TextPart("So.", item_id="a1")]
    moved = [USER, thought("rs_2", "in short", encryptedValue=token), answer(content="So."), AGAIN]
    with pytest.raises(SealError, match="another entity"):
        opened(read(*moved))
    with pytest.raises(SealError, match="another thread"):
        opened(read(*history, threadId="elsewhere"))
    with pytest.raises(SealError):
        opened(read(USER, thought("rs_1", encryptedValue=f"{token[:-4]}AAAA"), answer(content="So."), AGAIN))


@pytest.mark.parametrize(
    ("entity", "holds"),
    [
        ("msg_1", True),
        ("msg_1:2", True),
        ("msg_1:span", True),
        ("rs_1", True),
        ("c1", True),
        ("msg_2", False),
        ("c2", False),
    ],
)
def test_a_sealed_value_is_bound_to_its_item_carrier_and_calls(entity: str, holds: bool) -> None:
    assert is_carrier_of(entity, "msg_1", ["c1"]) is holds
    assert is_carrier_of(entity, None, ["c1"]) is (entity == "c1")


def test_user_content_of_every_kind_is_parsed() -> None:
    data = {"type": "data", "value": "aGk=", "mimeType": "image/png"}
    url = {"type": "url", "value": "https://x/y"}
    content = [
        {"type": "text", "text": "see"},
        {"type": "image", "source": data},
        {"type": "image", "source": {"type": "file", "value": "f1"}},
        {"type": "audio", "source": {**data, "mimeType": "audio/wav"}},
        {"type": "video", "source": url},
        {"type": "document", "source": url, "metadata": {"filename": "a.pdf"}},
        {"type": "binary", "mimeType": "image/png", "data": "aGk="},
        {"type": "binary", "mimeType": "audio/wav", "url": "https://x/z"},
        {"type": "binary", "mimeType": "application/pdf", "id": "f2", "filename": "b.pdf"},
    ]
    [message] = read({**USER, "content": content, "name": "ann"}).messages()
    [part] = message.parts
    assert part == UserPromptPart(
        [
            Text("see"),
            Image(data="aGk=", media_type="image/png"),
            Image(file_id="f1"),
            Audio(data="aGk=", media_type="audio/wav"),
            Video(url="https://x/y"),
            File(url="https://x/y", filename="a.pdf"),
            Image(data="aGk=", media_type="image/png"),
            Audio(url="https://x/z", media_type="audio/wav"),
            File(file_id="f2", media_type="application/pdf", filename="b.pdf"),
        ],
        "ann",
    )


def test_tool_results_are_parsed() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    picture = [{"type": "image", "source": {"type": "url", "value": "https://x"}}]
    calls = [{**CALL, "id": id} for id in ("c1", "c2", "c3")]
    results = [result("c3", content=picture), result("c1", content=parts), result("c2", content="", error="broke")]
    message = read(USER, answer(toolCalls=calls), *results).messages()[2]
    assert message.parts == [
        ToolReturnPart("look", "a\nb", "c1"),
        ToolReturnPart("look", "broke", "c2", "failed"),
        ToolReturnPart("look", [Image(url="https://x")], "c3"),
    ]


def test_an_interrupt_that_has_a_call_s_id_is_answered_with_its_result() -> None:
    calls = [{**CALL, "id": id} for id in ("c1", "c2")]
    resume = [
        {"interruptId": "c2", "status": "cancelled"},
        {"interruptId": "c1", "status": "resolved", "payload": {"ok": True}},
        {"interruptId": "other", "status": "resolved"},
    ]
    request = read(USER, answer(toolCalls=calls), resume=resume)
    assert request.messages()[2].parts == [
        ToolReturnPart("look", {"ok": True}, "c1"),
        ToolReturnPart("look", "The user cancelled this.", "c2", "denied"),
    ]
    assert [entry.interrupt_id for entry in request.resume] == ["c2", "c1", "other"]


def test_context_is_a_system_prompt_after_the_client_s_own() -> None:
    system = [
        {"id": "s", "role": "system", "content": "Be kind."},
        {"id": "d", "role": "developer", "content": "Be brief."},
    ]
    [message] = read(*system, USER, context=[{"description": "The page", "value": "about"}]).messages()
    assert message.parts == [
        SystemPromptPart("Be kind."),
        SystemPromptPart("Be brief.", "developer"),
        SystemPromptPart("Context from the application:\n\nThe page:\nabout"),
        UserPromptPart("Why?"),
    ]


def test_activities_and_unknown_fields_are_ignored() -> None:
    activity = {"id": "x", "role": "activity", "activityType": "plan", "content": {}}
    request = read(activity, {**USER, "extra": 1}, state=None, tools=None, context=None, forwardedProps=None)
    assert request.messages() == [ModelRequest([UserPromptPart("Why?")])]


def test_gateway_options_are_parsed() -> None:
    props = {"pellucid": {"model": "m", "effort": "high", "view": "summary", "store": False}, "theirs": 1}
    options = read(USER, forwardedProps=props, query={"store": "true", "reasoning": "off", "key": "x"}).options
    assert (options.model, options.effort, options.view, options.store, options.reasoning) == (
        "m",
        "high",
        "summary",
        True,
        "off",
    )
    call = read(USER, forwardedProps=props).call()
    assert (call.model, call.settings) == ("m", {"thinking": "high"})
    assert read(USER, query={"effort": "none"}).call().settings == {"thinking": False}


BAD = [
    ({"messages": [{**USER, "content": [{"type": "text"}]}]}, "messages[0].content[0].text: it is required"),
    ({"messages": [{**USER, "content": [{"type": "binary", "mimeType": "image/png"}]}]}, "messages[0].content[0]: "),
    ({"messages": [{**USER, "role": "ghost"}]}, "messages[0].role: "),
    ({"messages": [{"id": "u", "role": "user"}]}, "messages[0].content: it is required"),
    ({"messages": [result()]}, "messages[0].toolCallId: no tool call with the id 'c1' comes before this result"),
    ({"messages": []}, "messages: at least one"),
    ({"messages": [thought()]}, "messages: at least one"),
    ({"tools": [{"name": "f", "description": "", "parameters": 1}]}, "tools[0].parameters: must be a JSON Schema"),
    ({"tools": [{"name": "f", "description": ""}] * 2}, "tools[1].name: 'f' is tools[0].name already"),
    ({"resume": [{"interruptId": "x", "status": "maybe"}]}, "resume[0].status: "),
    ({"threadId": 1}, "threadId: "),
    ({"forwardedProps": {"pellucid": {"effort": "huge"}}}, "forwardedProps.pellucid.effort: "),
    (
        {"forwardedProps": {"pellucid": {"modell": "x"}}},
        "forwardedProps.pellucid.modell: no such option; there are model, ",
    ),
    ({"forwardedProps": {"pellucid": 1}}, "forwardedProps.pellucid: "),
    ({"query": {"store": "perhaps"}}, "store: "),
]


@pytest.mark.parametrize(("change", "expected"), BAD, ids=[expected for _, expected in BAD])
def test_an_error_names_its_location(change: dict[str, Any], expected: str) -> None:
    messages = change.pop("messages", [USER]) if "messages" in change else [USER]
    message, param = refused(*messages, **change)
    assert message.startswith(expected)
    assert param == expected.partition(":")[0]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'"x"', b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError, match="the body"):
        parse_input(body)


WHOLE: dict[str, Any] = {
    "threadId": "t",
    "runId": "r",
    "messages": [
        USER,
        thought(encryptedValue="v", metadata={"pellucid": {"form": "raw", "complete": True}}),
        answer(content="so", encryptedValue="w", toolCalls=[{**CALL, "encryptedValue": "x"}]),
        result(content=[{"type": "image", "source": {"type": "url", "value": "https://x"}}], error="e"),
        {"id": "y", "role": "activity", "activityType": "a", "content": {}},
        {**AGAIN, "content": [{"type": "binary", "mimeType": "a/b", "data": "aGk="}]},
    ],
    "tools": [{"name": "f", "description": "d", "parameters": {}}],
    "context": [{"description": "d", "value": "v"}],
    "resume": [{"interruptId": "c1", "status": "resolved", "payload": {}}],
    "forwardedProps": {"pellucid": {"model": "m", "store": True}},
}


@given(st.data())
def test_any_input_is_parsed_or_refused_with_its_location(data: st.DataObject) -> None:
    body = deepcopy(WHOLE)
    for _ in range(data.draw(st.integers(0, 3))):
        holder: Any = body
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(holder[key], dict | list) and data.draw(st.booleans()):
                holder = holder[key]
                continue
            odd: st.SearchStrategy[Any] = st.sampled_from(
                [None, 1, True, "", "x", [], {}, "\ud800", [[]], {"pellucid": []}]
            )
            holder[key] = data.draw(odd)
            break
    refused = call = None
    try:
        request = parse_input(json.dumps(body).encode())
        call = request.call()
    except RequestError as error:
        refused = error.info
    if call is None:
        assert refused is not None
        assert refused.kind == "invalid_request"
        assert refused.message.startswith((refused.param or "the body", "Expected"))
        return
    sealed = [part for message in call.messages for part in message.parts if isinstance(part, SealedPart)]
    assert "messages" not in [request.token_path(part) for part in sealed]
    assert any(isinstance(message, ModelRequest) for message in call.messages)
