"""Requests of the chat: fields, errors and their locations, event ids, and errors before a stream begins."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ERROR_KINDS, ErrorInfo, RequestError
from pellucid.parts import ModelRequest, SealedPart, UserPromptPart
from pellucid.protocols.chat import THINKING_LEVELS, Ask, Effort, answer_id, error_body, parse_request, question_id
from pellucid.protocols.errors import status_of
from pellucid.settings import ToolDefinition, validate_settings
from pellucid.storage.errors import ChatBusy, ChatMoved
from pellucid.view import VIEWS
from tests.cases import Cases


def parse(**body: Any) -> Any:
    return parse_request(msgspec.json.encode({"text": "Why?", **body}))


def test_a_question_needs_only_a_text() -> None:
    request = parse()
    call = request.call(server_tools=(ToolDefinition("look"),))
    assert call.messages == [ModelRequest([UserPromptPart("Why?")])] == [request.user_message]
    assert (call.model, call.settings, [tool.name for tool in call.tools]) == ("", {}, ["look"])
    body = request.body
    assert (body.conversation_id, body.model, body.effort, body.view, request.replaces) == (None,) * 5
    assert (request.client_tools, request.wants_summaries, request.max_tool_calls) == (frozenset(), False, None)
    assert request.token_path(SealedPart("x")) in Ask.__struct_fields__
    assert parse(conversation_id=None, model=None, effort=None, view=None, replaces=None) == request
    assert request.call([]).messages == []


def test_each_optional_field_is_read() -> None:
    with Cases() as case:
        for view in VIEWS:
            for effort in get_args(Effort):
                with case(f"{view}, {effort}"):
                    request = parse(conversation_id="chat_1", model="m/n", effort=effort, view=view, replaces="ask_7")
                    body = request.body
                    assert (body.conversation_id, body.model, body.view) == ("chat_1", "m/n", view)
                    assert (body.effort, request.replaces) == (effort, "evt_7")
                    settings = request.call([]).settings
                    assert settings == {"thinking": THINKING_LEVELS[effort]}
                    assert validate_settings(settings)
                    assert parse(replaces="evt_7").replaces == "evt_7"
                    assert parse(follows="ask_7", conversation_id="chat_1").follows == "evt_7"
                    assert parse(follows=None, replaces="evt_7").follows is None


WRONG: list[tuple[bytes, str | None, str]] = [
    (b"", None, "not valid JSON"),
    (b"[]", None, "must be a JSON object"),
    (b"{}", "text", "required"),
    (b'{"text":5}', "text", "Expected `str`"),
    (b'{"text":null}', "text", "Expected `str`"),
    (b'{"text":" \\n"}', "text", "empty"),
    (b'{"text":"x","txet":1}', "txet", "did you mean 'text'?"),
    (b'{"text":"x","conversation":"chat_1"}', "conversation", "did you mean 'conversation_id'?"),
    (b'{"text":"x","effort":"hihg"}', "effort", "'off', 'xhigh'"),
    (b'{"text":"x","effort":"none"}', "effort", "one of"),
    (b'{"text":"x","view":"all"}', "view", "'raw', 'sealed', 'summary'"),
    (b'{"text":"x","model":""}', "model", "leave it out"),
    (b'{"text":"x","conversation_id":""}', "conversation_id", "leave it out"),
    (b'{"text":"x","conversation_id":["chat_1"]}', "conversation_id", "Expected `str | null`"),
    (b'{"text":"x","replaces":"msg_1"}', "replaces", "'evt_'"),
    (b'{"text":"x","replaces":"evt_"}', "replaces", "'ask_'"),
    (b'{"text":"x","follows":"","conversation_id":"chat_1"}', "follows", "leave it out"),
    (b'{"text":"x","follows":"msg_1","conversation_id":"chat_1"}', "follows", "'evt_'"),
    (b'{"text":"x","follows":"evt_1"}', "conversation_id", "name the conversation"),
    (b'{"text":"x","follows":"evt_1","replaces":"evt_1","conversation_id":"c"}', "follows", "replaces names"),
    (b'{"text":"x","":1}', "", "no such field"),
]


def test_an_error_names_its_location() -> None:
    with Cases() as case:
        for body, param, expected in WRONG:
            with case(body):
                with pytest.raises(RequestError) as caught:
                    parse_request(body)
                info = caught.value.info
                assert (info.kind, info.param) == ("invalid_request", param)
                assert expected in info.message
                assert param is None or info.message.startswith(f"{param}: ")


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({LONG: 1}, "x…: there is no such field; there are: attachments, conversation_id, "),
        ({"effort": LONG}, "x…'; it must be one of 'high', "),
        ({"replaces": LONG}, "x…' is not an event's id"),
        ({"follows": LONG, "conversation_id": "chat_1"}, "x…' is not an event's id"),
    ],
)
def test_an_error_message_truncates_what_was_sent(body: Any, expected: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse(**body)
    info = caught.value.info
    assert expected in info.message
    assert len(info.message) < 250
    assert len(info.param or "") <= 81


@given(st.binary(max_size=40) | st.dictionaries(st.text(max_size=5), st.integers()).map(msgspec.json.encode))
def test_any_other_body_is_a_request_error(body: bytes) -> None:
    with pytest.raises(RequestError):
        parse_request(body)


@given(st.text(min_size=1))
def test_ids_of_question_and_answer_convert_into_each_other(rest: str) -> None:
    for id in (f"evt_{rest}", f"ask_{rest}"):
        assert (answer_id(id), question_id(id)) == (f"evt_{rest}", f"ask_{rest}")


@pytest.mark.parametrize("id", ["", "evt", "evt_", "chat_1", "resp_1", "EVT_1", "_1"])
def test_an_invalid_event_id_is_refused(id: str) -> None:
    for make in (answer_id, question_id):
        with pytest.raises(RequestError, match="not an event's id"):
            make(id)


def test_every_error_kind_has_a_body_and_a_status() -> None:
    with Cases() as case:
        for kind in ERROR_KINDS:
            with case(kind):
                assert error_body(ErrorInfo(kind, "no", upstream_message="sorry")) == {
                    "error": {"message": "no: sorry", "code": kind}
                }
                assert error_body(ErrorInfo(kind, "no", "c", "p")) == {
                    "error": {"message": "no", "code": "c", "param": "p"}
                }
                assert status_of(ErrorInfo(kind, "no")) in range(400, 600)
                assert (status_of(ErrorInfo(kind, "no")) == 409) == (kind == "conflict")


def test_a_chat_that_is_busy_or_has_moved_is_a_conflict() -> None:
    for error, code in (ChatBusy(), "conversation_busy"), (ChatMoved(), "conversation_moved"):
        assert (status_of(error.info), error.info.code) == (409, code)
