"""What a request becomes: everything for Anthropic's models, unchanged; for other models, what they understand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pellucid.errors import RequestError
from pellucid.models import infer_model
from pellucid.models.model import Model
from pellucid.parts import ModelResponse, OpaquePart, SealedPart, TextPart, ThinkingPart, ToolCallPart
from pellucid.protocols.messages import parse_request
from tests.cases import Cases

CACHE = {"type": "ephemeral", "ttl": "1h"}
SEARCH_RESULT = {
    "type": "search_result",
    "source": "https://e.org",
    "title": "E",
    "content": [{"type": "text", "text": "Found."}],
}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "e"}}
SEARCH_RESULTS = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://e.org", "title": "E", "encrypted_content": "x"}],
}
PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
TEXT = {"type": "text", "media_type": "text/plain", "data": "Text."}
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
FUNCTION = {"name": "f", "input_schema": {"type": "object"}, "cache_control": CACHE, "defer_loading": True}
BODY: dict[str, Any] = {
    "model": "claude-opus-4-8",
    "max_tokens": 4000,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1"},
        {"type": "text", "text": "You are a tool.", "cache_control": CACHE},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, SEARCH_RESULT]},
        {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": CACHE}]},
        {
            "role": "assistant",
            "content": [SEARCH, SEARCH_RESULTS, {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "r"}],
                    "is_error": True,
                    "cache_control": CACHE,
                },
                {
                    "type": "document",
                    "source": TEXT,
                    "title": "T",
                    "citations": {"enabled": True},
                },
            ],
        },
    ],
    "tools": [FUNCTION, WEB_SEARCH],
    "thinking": {"type": "adaptive", "display": "omitted"},
    "output_config": {"effort": "max"},
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
    "metadata": {"user_id": "u"},
    "temperature": 1,
}
HEADERS = {"anthropic-beta": "a-1, b-2", "anthropic-version": "2023-06-01"}


def request_of(model_name: str, body: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any], list[str]]:
    """Return the headers and the body that a model's provider gets, and the warnings."""
    model = infer_model(model_name)
    assert isinstance(model, Model)
    request = parse_request(json.dumps(body).encode(), HEADERS)
    call = request.call()
    sent = model.request(call.for_wire(model.origin.api), "key")
    return sent.headers, sent.body, model.warnings(call)


def test_anthropics_models_get_everything_unchanged() -> None:
    headers, body, _ = request_of("anthropic:claude-opus-4-8", BODY)
    for name in ("system", "messages", "thinking", "output_config", "context_management", "metadata", "max_tokens"):
        assert body[name] == BODY[name], name
    assert body["tools"] == [FUNCTION, WEB_SEARCH]
    assert {"a-1", "b-2"} <= set(headers["anthropic-beta"].split(","))
    assert headers["anthropic-version"] == "2023-06-01"


def test_a_reader_who_does_not_say_otherwise_sees_summaries_of_anthropics_models() -> None:
    _, body, _ = request_of("anthropic:claude-opus-4-8", BODY | {"thinking": {"type": "adaptive"}})
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize("name", ["openai-responses:gpt-5", "deepseek:deepseek-reasoner", "google:gemini-3-pro"])
def test_other_models_get_nothing_that_only_anthropics_know(name: str) -> None:
    headers, body, warnings = request_of(name, BODY)
    sent = json.dumps(body)
    for text in (
        "cache_control",
        "context_management",
        "web_search",
        "defer_loading",
        "search_result",
    ):
        assert text not in sent, text
    assert "Found." in sent
    assert "You are a tool." in sent
    assert not {"anthropic-beta", "anthropic-version"} & {name.lower() for name in headers}
    assert [warning for warning in warnings if "tools[1]" in warning]
    assert not [warning for warning in warnings if "wire_settings" in warning]


def test_a_model_without_summaries_gives_no_warning_to_a_reader_who_did_not_ask_for_them() -> None:
    body = {name: BODY[name] for name in ("model", "messages", "max_tokens")}
    _, _, warnings = request_of("deepseek:deepseek-reasoner", body | {"thinking": {"type": "adaptive"}})
    assert warnings == []


def test_tools_that_are_left_out_are_one_warning() -> None:
    tools = [{"type": f"web_search_{number}", "name": f"s{number}"} for number in range(1000)]
    _, _, warnings = request_of("deepseek:deepseek-reasoner", {**BODY, "tools": [FUNCTION, *tools]})
    [warning] = [warning for warning in warnings if "tools[" in warning]
    assert "992 more" in warning


@pytest.mark.parametrize(("choice", "mode"), [("any", "required"), ("auto", "auto")])
def test_a_request_whose_only_tools_are_left_out_is_refused(choice: str, mode: str) -> None:
    body = BODY | {"tools": [WEB_SEARCH], "tool_choice": {"type": choice}}
    request = parse_request(json.dumps(body).encode())
    assert request.call().for_wire("anthropic").tool_choice.mode == mode
    with pytest.raises(RequestError, match="'web_search' is not offered here") as caught:
        request.call().for_wire("openai_chat")
    assert caught.value.info.param == "tools[0].type"


def assistant_parts(*blocks: Any) -> tuple[list[Any], list[str]]:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": list(blocks)}]
    request = parse_request(json.dumps({"model": "m", "messages": messages}).encode())
    [message] = [message for message in request.messages if isinstance(message, ModelResponse)]
    return message.parts, list(request.warnings)


def test_blocks_become_parts_in_their_order() -> None:
    parts, warnings = assistant_parts(
        {"type": "thinking", "thinking": "One.", "signature": "a.b.c.d.e"},
        {"type": "text", "text": "So"},
        {"type": "redacted_thinking", "data": "f.g.h.i.j"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        {"type": "new_kind", "x": 1},
        {"type": "compaction", "content": "In short"},
        {"type": "image", "source": PNG},
        {"type": "document", "source": TEXT, "title": "T"},
    )
    assert parts == [
        SealedPart("a.b.c.d.e", visible_texts=("One.",)),
        TextPart("So"),
        SealedPart("f.g.h.i.j"),
        ToolCallPart("f", {}, "t"),
        OpaquePart("new_kind", {"type": "new_kind", "x": 1}, wire="anthropic", text='[new_kind] {"x":1}'),
        OpaquePart("compaction", {"type": "compaction", "content": "In short"}, wire="anthropic", text="In short"),
        OpaquePart("image", {"type": "image", "source": PNG}, wire="anthropic", text="[image]"),
        OpaquePart("document", {"type": "document", "source": TEXT, "title": "T"}, wire="anthropic", text="T\nText."),
    ]
    assert warnings == []


def test_a_signature_of_another_maker_is_left_out_with_a_warning() -> None:
    parts, [warning] = assistant_parts(
        {"type": "thinking", "thinking": "One.", "signature": "EqQBCkgIARAB=="},
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4="},
        {"type": "text", "text": "So"},
    )
    assert parts == [ThinkingPart("One."), TextPart("So")]
    assert "2 thinking block(s)" in warning


def test_thoughts_without_a_signature_are_named_if_the_model_does_not_take_them() -> None:
    thought = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "One."}, {"type": "text", "text": "A"}],
    }
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}, thought, {"role": "user", "content": "?"}]}
    _, _, warnings = request_of("anthropic:claude-opus-4-8", body)
    assert [warning for warning in warnings if "1 thought(s) without a signature" in warning]
    _, _, warnings = request_of("deepseek:deepseek-reasoner", body)
    assert not [warning for warning in warnings if "signature" in warning]


@pytest.mark.parametrize("tokens", [-1, 0, 2000])
def test_a_budget_below_one_is_none(tokens: int) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    call = parse_request({**body, "thinking": {"type": "enabled", "budget_tokens": tokens}}).call()
    assert call.settings.get("thinking_budget") == (tokens if tokens > 0 else None)
    assert call.settings["wire_settings"]["anthropic"]["anthropic_thinking"]["budget_tokens"] == tokens


def test_bad_requests_name_the_place() -> None:
    user = {"role": "user", "content": "Hi"}
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "r"}
    used = [user, {"role": "assistant", "content": [use]}]
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("messages", {"messages": []}),
        ("messages", {}),
        ("messages[0].role", {"messages": [{"role": "robot", "content": ""}]}),
        ("messages[0].content[0].type", {"messages": [{"role": "user", "content": [{"text": "x"}]}]}),
        ("messages[0].content[0].text", {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}),
        ("messages[0].content[0].tool_use_id", {"messages": [{"role": "user", "content": [result]}]}),
        (
            "messages[2].content[1].tool_use_id",
            {
                "messages": [
                    user,
                    {"role": "assistant", "content": [use]},
                    {"role": "user", "content": [result] * 2},
                ]
            },
        ),
        ("messages[1].content[1].id", {"messages": [user, {"role": "assistant", "content": [use] * 2}]}),
        (
            "messages[4].content[0].tool_use_id",
            {"messages": [*used, user, {"role": "assistant", "content": "So."}, {"role": "user", "content": [result]}]},
        ),
        ("messages[0].content", {"messages": [{"role": "user", "content": []}]}),
        ("messages[0].content[0].type", {"messages": [{"role": "user", "content": [use]}]}),
        ("messages[1].content[0].type", {"messages": [user, {"role": "assistant", "content": [result]}]}),
        ("thread", {"messages": [user], "thread": {"type": "create"}}),
        ("system[0].type", {"messages": [user], "system": [{"type": "image"}]}),
        ("tools[0].name", {"messages": [user], "tools": [{"input_schema": {}}]}),
        ("tool_choice", {"messages": [user], "tool_choice": {"type": "tool", "name": "g"}}),
        ("tools[1].name", {"messages": [user], "tools": [FUNCTION, FUNCTION]}),
        ("tools[1].name", {"messages": [user], "tools": [{"name": "web_search"}, WEB_SEARCH]}),
        ("temperature", {"messages": [user], "temperature": "hot"}),
        ("thinking.type", {"messages": [user], "thinking": {"type": "always"}}),
        ("output_config.effort", {"messages": [user], "output_config": {"effort": "most"}}),
        ("output_format.type", {"messages": [user], "output_format": {"type": "text"}}),
        ("output_format", {"messages": [user], "output_format": schema, "output_config": {"format": schema}}),
    ]
    with Cases() as case:
        for param, body in bodies:
            with case(param), pytest.raises(RequestError) as raised:
                parse_request(json.dumps({"model": "m"} | body).encode()).call()
            assert (raised.value.info.param or "").startswith(param), raised.value.info


def test_wrong_words_are_answered_with_the_right_ones() -> None:
    user = {"role": "user", "content": "Hi"}
    with Cases() as case:
        for fields, right in [
            ({"thinking": {"type": "always"}}, "'adaptive', 'enabled', 'disabled', 'between_tools'"),
            ({"output_config": {"effort": "most"}}, "'low', 'medium', 'high', 'xhigh', 'max'"),
            ({"output_format": {"type": "text"}}, "'json_schema'"),
        ]:
            with case(right), pytest.raises(RequestError) as raised:
                parse_request(json.dumps({"messages": [user], **fields}).encode())
            sorted_words = sorted(right.split(", "))
            assert [word for word in sorted_words if word not in raised.value.info.message] == []


def test_the_older_name_of_the_output_format_means_the_same() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    format = {"type": "json_schema", "schema": schema}
    user = {"role": "user", "content": "Hi"}
    with Cases() as case:
        for name in ("anthropic:claude-opus-4-8", "openai-responses:gpt-5", "vllm:m"):
            with case(name):
                body = {"max_tokens": 9, "messages": [user]}
                _, old, old_warnings = request_of(name, {**body, "output_format": format})
                _, new, new_warnings = request_of(name, {**body, "output_config": {"format": format}})
                assert (old, old_warnings) == (new, new_warnings)
                assert "city" in json.dumps(old)


def test_blocks_with_unknown_fields_and_blank_blocks_are_unchanged_for_anthropics_models() -> None:
    blank = {"type": "text", "text": " ", "cache_control": CACHE}
    image = {"type": "image", "source": {"type": "url", "url": "https://e.org/i.png", "tokens": {"max": 9}}}
    document = {"type": "document", "source": {**TEXT, "pages": [1]}, "title": "T", "citations": {"enabled": True}}
    messages = [
        {"role": "user", "content": [image, document, blank]},
        {"role": "assistant", "content": [{"type": "text", "text": "So."}, blank]},
        {"role": "user", "content": [{"type": "text", "text": "And?"}]},
    ]
    _, body, _ = request_of("anthropic:claude-opus-4-8", {"max_tokens": 9, "messages": messages})
    assert body["messages"] == messages
    _, body, _ = request_of("google:gemini-3-pro", {"max_tokens": 9, "messages": messages})
    assert not [name for name in ("pages", "tokens", "cache_control") if f'"{name}"' in json.dumps(body)]


def test_files_of_an_assistant_stay_readable_for_other_models() -> None:
    link = {"type": "image", "source": {"type": "url", "url": "https://e.org/i.png"}}
    blocks = [{"type": "image", "source": PNG}, link, {"type": "document", "source": TEXT, "title": "T"}]
    user = {"role": "user", "content": "Hi"}
    messages = [user, {"role": "assistant", "content": blocks}, user]
    for name in ("openai-responses:gpt-5", "vllm:m", "google:gemini-3-pro", "mistral:magistral-medium"):
        _, body, _ = request_of(name, {"max_tokens": 9, "messages": messages})
        sent = json.dumps(body)
        assert [text for text in ("[image]", "https://e.org/i.png", "Text.") if text not in sent] == []
