"""The body of a `useChat` request is parsed to parts in their order; an error names its location."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.parts import (
    Audio,
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    File,
    FilePart,
    Image,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RefusalPart,
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
from pellucid.protocols.ai_sdk import parse_request, recognises
from tests.examples import costly

PIXEL = "data:image/png;base64,aGk="


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def ui_message(*parts: Any, role: str = "assistant", id: str = "m") -> dict[str, Any]:
    return {"id": id, "role": role, "parts": list(parts)}


def ours(**marks: Any) -> dict[str, Any]:
    return {"providerMetadata": {"pellucid": marks, "other": {"x": 1}}}


def read(*messages: Any, **more: Any) -> list[ModelMessage]:
    return parse_request(json.dumps({"messages": list(messages), **more}).encode()).messages


ASK, ON = ui_message(text("Why?"), role="user"), ui_message(text("And?"), role="user")


def parts_between_questions(*parts: Any) -> list[ModelMessage]:
    """Parse an assistant message of these parts, between two questions."""
    first, *middle = read(ASK, ui_message(*parts), ON)
    assert isinstance(first, ModelRequest)
    if not middle:
        assert first.parts == [UserPromptPart("Why?"), UserPromptPart("And?")]
        return []
    *middle, last = middle
    assert isinstance(last, ModelRequest)
    assert last.parts[-1] == UserPromptPart("And?")
    return middle if len(last.parts) == 1 else [*middle, ModelRequest(last.parts[:-1])]


def tool(state: str, **more: Any) -> dict[str, Any]:
    return {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c1", "state": state, "input": {"a": 1}, **more}


CALL = ToolCallPart("f", {"a": 1}, "c1")


def test_an_answer_is_parsed_to_its_parts_in_order() -> None:
    answer = [
        {"type": "step-start"},
        {"type": "reasoning", "text": "Hm.", "state": "done", **ours(item="rs_1", form="summary")},
        text("One."),
        {"type": "source-url", "sourceId": "s", "url": "https://a.b/"},
        {"type": "reasoning", "text": "Ah.", **ours(item="rs_2", sealed="token")},
        text("No.", **ours(refusal=True)),
        {"type": "data-weather", "data": {"x": 1}},
        {"type": "file", "mediaType": "image/png", "url": PIXEL},
        {"type": "something-new", "text": "?"},
    ]
    [response] = parts_between_questions(*answer)
    assert response.parts == [
        ThinkingPart("Hm.", form="summary", item_id="rs_1"),
        TextPart("One."),
        SealedPart("token", "rs_2", ("Ah.",)),
        ThinkingPart("Ah.", item_id="rs_2"),
        RefusalPart("No."),
        FilePart("aGk=", "image/png"),
    ]


def test_steps_are_turns_and_tool_results_are_between_them() -> None:
    static = {"type": "tool-add-two", "toolCallId": "c2", "state": "output-error", "input": "{", "errorText": "no"}
    answer = [
        *({"type": "step-start"}, tool("output-available", output={"n": 1}), static),
        *({"type": "step-start"}, text("Done.")),
    ]
    first, results, second = parts_between_questions(*answer)
    assert first.parts == [CALL, ToolCallPart("add-two", "{", "c2")]
    assert results.parts == [ToolReturnPart("f", {"n": 1}, "c1"), ToolReturnPart("add-two", "no", "c2", "failed")]
    assert second.parts == [TextPart("Done.")]


REFUSED = {"approval": {"id": "a", "approved": False, "reason": "not now"}}


@pytest.mark.parametrize(
    ("part", "result"),
    [
        (tool("input-available"), None),
        (tool("approval-requested", approval={"id": "a"}), None),
        (tool("approval-responded", approval={"id": "a", "approved": True}), None),
        (tool("approval-responded", **REFUSED), ToolReturnPart("f", "not now", "c1", "denied")),
        (tool("output-denied", **REFUSED), ToolReturnPart("f", "not now", "c1", "denied")),
        (tool("output-available", output=None), ToolReturnPart("f", None, "c1")),
        (tool("output-available", output=1, preliminary=True), None),
        (tool("output-error", errorText="broke"), ToolReturnPart("f", "broke", "c1", "failed")),
    ],
    ids=lambda value: value["state"] if isinstance(value, dict) else "",
)
def test_every_state_of_a_call(part: dict[str, Any], result: ToolReturnPart | None) -> None:
    first, *results = parts_between_questions(part)
    assert first.parts == [CALL]
    assert [one for message in results for one in message.parts] == ([] if result is None else [result])


@pytest.mark.parametrize("part", [tool("input-streaming"), tool("output-error", errorText="cut")], ids=["open", "cut"])
def test_an_incomplete_call_is_dropped(part: dict[str, Any]) -> None:
    cut = {"resultProviderMetadata": {"pellucid": {"complete": False}}} if part["state"] == "output-error" else {}
    [response] = parts_between_questions(text("Well."), {**part, **cut})
    assert response.parts == [TextPart("Well.")]


def test_a_builtin_tool_is_restored_from_its_seal_or_its_visible_part() -> None:
    seen = tool("output-available", output=[1], providerExecuted=True)
    [response] = parts_between_questions(seen)
    assert response.parts == [BuiltinToolCallPart("f", {"a": 1}, "c1"), BuiltinToolReturnPart("f", [1], "c1")]
    carried = {**seen, "callProviderMetadata": {"pellucid": {"item": "bt_1"}}}
    seal = {"type": "data-pellucid", "id": "bt_1", "data": {"item": "bt_1", "sealed": "token"}}
    [response] = parts_between_questions(carried, seal)
    assert response.parts == [SealedPart("token", "bt_1")]
    assert parts_between_questions(tool("input-available", providerExecuted=True)) == []


def test_incomplete_or_unanswered_thoughts_are_dropped() -> None:
    thought = {"type": "reasoning", "text": "Hm.", **ours(item="rs_1", sealed="token")}
    assert parts_between_questions(thought) == []
    assert parts_between_questions({"type": "reasoning", "text": "Hm", "state": "streaming"}) == []
    [response] = parts_between_questions(text("One."), thought)
    assert response.parts == [TextPart("One."), SealedPart("token", "rs_1", ("Hm.",))]
    [response] = parts_between_questions(
        {"type": "reasoning", "text": "Hm", **ours(complete=False)}, text("One", state="streaming")
    )
    assert response.parts == [ThinkingPart("Hm", complete=False), TextPart("One", complete=False)]


def test_a_steering_message_keeps_its_position() -> None:
    steering = {"type": "steering-message", "id": "s", "parts": [text("Faster!")]}
    answer = [{"type": "step-start"}, tool("output-available", output=1), steering, {"type": "step-start"}, text("Ok.")]
    first, steering_request, second = parts_between_questions(*answer)
    assert first.parts == [CALL]
    assert steering_request.parts == [ToolReturnPart("f", 1, "c1"), UserPromptPart("Faster!")]
    assert second.parts == [TextPart("Ok.")]


@pytest.mark.parametrize(
    ("media_type", "url", "content"),
    [
        ("image/png", PIXEL, Image(data="aGk=", media_type="image/png")),
        ("image", PIXEL, Image(data="aGk=", media_type="image/png")),
        ("image/png", "https://a.b/c.png", Image(url="https://a.b/c.png", media_type="image/png")),
        ("audio/wav", "data:audio/wav;base64,aGk=", Audio(data="aGk=", media_type="audio/wav")),
        ("video/mp4", "https://a.b/c.mp4", Video(url="https://a.b/c.mp4", media_type="video/mp4")),
        ("application/pdf", "data:application/pdf;base64,aGk=", None),
    ],
)
def test_files_of_the_user(media_type: str, url: str, content: Any) -> None:
    file = {"type": "file", "mediaType": media_type, "url": url, "filename": "n"}
    [message] = read(ui_message(text("See:"), file, {"type": "data-x", "data": 1}, role="user"))
    content = content or File(data="aGk=", media_type=media_type, filename="n")
    assert message == ModelRequest([UserPromptPart([Text("See:"), content])])


def test_system_messages() -> None:
    [message] = read(ui_message(text("Be "), text("brief."), role="system"), ASK)
    assert message == ModelRequest([SystemPromptPart("Be brief."), UserPromptPart("Why?")])


def test_request_options_are_parsed() -> None:
    body = {"messages": [ASK], "id": "c", "trigger": "regenerate-message", "messageId": None, "mine": {"x": 1}}
    request = parse_request({**body, "model": "m", "effort": "high", "view": "sealed"})
    assert (request.model, request.body.view, request.continued_message_id) == ("m", "sealed", None)
    assert request.call().settings == {"thinking": "high"}
    assert parse_request({**body, "effort": "off"}).call().settings == {"thinking": False}
    assert parse_request(body).call().settings == {}
    assert parse_request({"messages": [ASK, ui_message(text("a"), id="m7")]}).continued_message_id == "m7"


@pytest.mark.parametrize(
    ("body", "param", "word"),
    [
        (b"{", None, "JSON"),
        ({}, "messages", "required"),
        ({"messages": []}, "messages", "at least one"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "messages[0].parts", "required"),
        ({"messages": [{"role": "data", "parts": []}]}, "messages[0].role", "'assistant'"),
        ({"messages": [ui_message({"type": "text"}, role="user")]}, "messages[0].parts[0].text", "required"),
        ({"messages": [ui_message({"type": "video"}, role="user")]}, "messages[0].parts[0].type", "text and files"),
        ({"messages": [ASK, ui_message({"x": 1})]}, "messages[1].parts[0].type", "needs a type"),
        ({"messages": [ASK, ui_message(tool("x", toolCallId=5))]}, "messages[1].parts[0].toolCallId", "str"),
        (
            {"messages": [ui_message({"type": "file", "mediaType": "image/png", "url": "blob:1"}, role="user")]},
            "messages[0].parts[0].url",
            "base64",
        ),
        ({"messages": [ASK], "effort": "lots"}, "effort", "'xhigh'"),
        ({"messages": [ASK], "view": "all"}, "view", "'sealed'"),
        ({"messages": [ASK], "model": 5}, "model", "str"),
    ],
)
def test_an_error_names_its_location(body: Any, param: str | None, word: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(RequestError) as wrong:
        parse_request(data)
    assert wrong.value.info.param == param
    assert word in wrong.value.info.message
    assert param is None or wrong.value.info.message.startswith(f"{param}: ")


def test_the_protocol_is_recognised_by_its_body() -> None:
    assert recognises({"messages": []})
    assert recognises({"messages": "hi"})  # recognised, then refused with an error
    assert recognises({"text": "Hi"}, [("protocol", "ai-sdk")])
    assert not recognises({"text": "Hi"}, [("view", "raw")])
    assert not recognises({"messages": []}, {"protocol": "chat"})


NAMES = ["type", "text", "state", "toolCallId", "toolName", "parts", "input", "pellucid", "sealed", "data", "approval"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=6,
)
parts = st.dictionaries(
    st.sampled_from(["text", "state", "toolCallId", "toolName", "input", "output", "data", "url", "mediaType", "parts"])
    | st.sampled_from(["providerMetadata", "callProviderMetadata", "approval", "errorText", "providerExecuted"]),
    json_values,
).flatmap(
    lambda rest: st.sampled_from(
        ["text", "reasoning", "file", "dynamic-tool", "tool-f", "data-pellucid", "steering-message", "step-start", ""]
    ).map(lambda kind: {**rest, "type": kind})
)


@costly
@given(st.lists(parts, max_size=3), st.sampled_from(["user", "assistant", "system"]))
def test_any_body_is_a_conversation_or_a_request_error(some: list[Any], role: str) -> None:
    with suppress(RequestError):
        messages = parse_request({"messages": [ASK, ui_message(*some, role=role)]}).messages
        assert all(isinstance(message, ModelRequest | ModelResponse) for message in messages)
