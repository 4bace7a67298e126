"""Tools of coding agents become functions, and calls of these functions become calls of the tools again."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.events import Event
from pellucid.parts import (
    Image,
    ModelRequest,
    ModelResponse,
    OpaquePart,
    Origin,
    Text,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.protocols.openresponses import Encoder, Request, parse_request
from pellucid.protocols.openresponses.client_tools import MAX_NAME_CHARS, TextArgument, function_name, text_of_arguments
from pellucid.protocols.openresponses.types import CustomToolCallItem
from pellucid.protocols.openresponses.verify import verify
from pellucid.providers.openai_responses.encode import encode
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.tool_schema import check_tool_choice
from pellucid.settings import NativeTool, ToolChoice
from tests.openresponses.openresponses_kit import NOW, call_chunks, decoded_events, events_of, final_chunks

LARK = 'start: "add " NUMBER\nNUMBER: /[0-9]+/'
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "plain", "parameters": SCHEMA},
    {
        "type": "namespace",
        "name": "mcp__files",
        "description": "Files.",
        "tools": [{"type": "function", "name": "read", "parameters": SCHEMA}, {"type": "custom", "name": "write"}],
    },
    {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": LARK}},
    {"type": "tool_search", "execution": "client", "description": "Find tools", "parameters": SCHEMA},
    {"type": "local_shell"},
    {"type": "web_search"},
]
TEXT = "add 12"
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("plain", '{"q":"a"}', {"type": "function_call", "name": "plain", "arguments": '{"q":"a"}'}),
    (
        "mcp__files__read",
        '{"q":"a"}',
        {"type": "function_call", "name": "read", "namespace": "mcp__files", "arguments": '{"q":"a"}'},
    ),
    (
        "mcp__files__write",
        '{"input": "x\\n"}',
        {"type": "custom_tool_call", "name": "write", "namespace": "mcp__files", "input": "x\n"},
    ),
    ("patch", json.dumps({"input": TEXT}), {"type": "custom_tool_call", "name": "patch", "input": TEXT}),
    ("tool_search", '{"q":"a"}', {"type": "tool_search_call", "execution": "client", "arguments": {"q": "a"}}),
    (
        "local_shell",
        '{"command":["ls"]}',
        {"type": "local_shell_call", "action": {"type": "exec", "env": {}, "command": ["ls"]}},
    ),
]


def request(*items: Any, tools: list[dict[str, Any]] = TOOLS, **more: Any) -> Request:
    return parse_request(json.dumps({"input": list(items) or "Hi", "tools": tools, **more}).encode())


def answer(parsed: Request, batches: list[list[Event]], seals: bool = False) -> list[dict[str, Any]]:
    """The events of the stream, after checking that they are legal."""
    encoder = Encoder(parsed.response("resp_1", "m", NOW), tools=parsed.tools.by_function, seals=seals)
    stream = encoder.start() + b"".join(encoder.feed(batch, NOW) for batch in batches)
    assert verify(stream) == []
    return events_of(stream)


def output(parsed: Request, function: str, arguments: str, cut: int) -> dict[str, Any]:
    """The item of a call whose arguments come in pieces of this size."""
    pieces = [arguments[at : at + cut] for at in range(0, len(arguments), cut)]
    events = answer(
        parsed, [[event] for event in decoded_events(*call_chunks(function, *pieces), *final_chunks("tool_calls"))]
    )
    (done,) = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == [done]
    item: dict[str, Any] = done
    return item


@pytest.mark.parametrize("cut", [1, 3, 1000])
@pytest.mark.parametrize(("function", "arguments", "expected"), CALLS, ids=[call[0] for call in CALLS])
def test_a_call_is_returned_as_a_call_of_the_clients_tool(
    function: str, arguments: str, expected: dict[str, Any], cut: int
) -> None:
    parsed = request()
    assert function in parsed.client_tools
    item = output(parsed, function, arguments, cut)
    assert {name: item[name] for name in expected} == expected
    assert ("namespace" in item) == ("namespace" in expected)


@pytest.mark.parametrize("size", [5, 12, 15, len(json.dumps({"input": TEXT})) - 1])
def test_a_custom_call_that_was_cut_off_is_not_done(size: int) -> None:
    """A client runs what is done, and half a text looks like a whole one."""
    arguments = json.dumps({"input": TEXT})[:size]
    events = answer(request(), [decoded_events(*call_chunks("patch", arguments), *final_chunks("length"))])
    kinds = [event["type"] for event in events]
    assert kinds.count("response.output_item.added") == 1
    assert not [kind for kind in kinds if kind.endswith("input.done") or kind == "response.output_item.done"]
    deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["status"], item["input"]) == ("custom_tool_call", "incomplete", "".join(deltas))
    assert kinds[-1] == "response.incomplete"


@pytest.mark.parametrize(("function", "arguments", "expected"), CALLS, ids=[call[0] for call in CALLS])
def test_a_call_that_is_sent_back_is_a_call_of_the_same_function(
    function: str, arguments: str, expected: dict[str, Any]
) -> None:
    item = output(request(), function, arguments, 1000)
    kind = "custom_tool_call_output" if expected["type"] == "custom_tool_call" else "function_call_output"
    result: dict[str, Any] = {"type": kind, "call_id": item["call_id"], "output": "done"}
    expected_result = "done"
    if function == "tool_search":
        result = {
            "type": "tool_search_output",
            "call_id": item["call_id"],
            "tools": [{"type": "function", "name": "f"}],
        }
        expected_result = "These tools can be called now: f"
    sent, returned = request({"role": "user", "content": "go"}, item, result).messages()[1:]
    call = sent.parts[0]
    assert isinstance(call, ToolCallPart)
    assert (call.tool_name, call.args_as_dict()) == (function, json.loads(arguments))
    assert returned == ModelRequest([ToolReturnPart(function, expected_result, item["call_id"])])


def test_tools_are_functions_with_the_grammar_in_words() -> None:
    call = request().call(())
    assert [tool.name for tool in call.tools] == [
        *("plain", "mcp__files__read", "mcp__files__write", "patch", "tool_search", "local_shell")
    ]
    tools = {tool.name: tool for tool in call.tools}
    assert "Files." in (tools["mcp__files__read"].description or "")
    assert LARK in (tools["patch"].description or "")
    assert tools["patch"].wire_fields == {
        "openai_responses": {
            "type": "custom",
            "name": "patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": LARK},
        }
    }
    assert call.native_tools == (NativeTool("openai_responses", "web_search", "tools[5]", {"type": "web_search"}),)


@pytest.mark.parametrize("source", ["additional_tools", "tool_search_output"])
def test_tools_may_come_in_the_input(source: str) -> None:
    item = {
        "type": source,
        "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "late"}]}],
    }
    parsed = request({"role": "user", "content": "go"}, item)
    assert parsed.client_tools >= {"plain", "n__late"}
    assert output(parsed, "n__late", "{}", 1)["namespace"] == "n"


@given(st.text(max_size=80), st.text(min_size=1, max_size=80))
def test_every_function_name_is_accepted_by_providers(namespace: str, name: str) -> None:
    full = function_name(namespace, name)
    if namespace:
        assert len(full) <= MAX_NAME_CHARS
        assert full.isascii()
        assert full.replace("_", "").replace("-", "").isalnum() or not full.replace("_", "").replace("-", "")


@pytest.mark.parametrize(
    ("choice", "function"),
    [
        ({"type": "function", "name": "plain"}, "plain"),
        ({"type": "function", "name": "read", "namespace": "mcp__files"}, "mcp__files__read"),
        ({"type": "custom", "name": "patch"}, "patch"),
        ({"type": "local_shell"}, "local_shell"),
    ],
    ids=str,
)
def test_a_tool_can_be_required(choice: dict[str, Any], function: str) -> None:
    parsed = request(tool_choice=choice)
    assert parsed.call(()).tool_choice == ToolChoice("required", (function,))
    assert parsed.response("r", "m", NOW).tool_choice == choice


WEB, FILES = {"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["vs_1"]}
PLAIN = {"type": "function", "name": "f"}


@pytest.mark.parametrize(
    ("choice", "offered", "sent"),
    [
        (WEB, [PLAIN, WEB, FILES], WEB),
        ({"type": "function", "name": "f"}, [PLAIN, WEB, FILES], {"type": "function", "name": "f"}),
        ({"type": "allowed_tools", "tools": [WEB]}, [WEB], None),
        ({"type": "allowed_tools", "tools": [FILES, PLAIN], "mode": "required"}, [PLAIN, FILES], "required"),
        ({"type": "allowed_tools", "tools": [PLAIN]}, [PLAIN], None),
    ],
)
def test_tools_that_openai_runs_can_be_chosen(choice: Any, offered: list[Any], sent: Any) -> None:
    profile = builtin_profiles()["openai-responses"]
    call = request(tools=[PLAIN, WEB, FILES], tool_choice=choice).call(()).for_wire("openai_responses")
    body = encode(call, profile, Origin("openai", "openai_responses", "m"))
    assert [
        {key: tool[key] for key in tool if key not in ("parameters", "strict")} for tool in body["tools"]
    ] == offered
    assert body.get("tool_choice") == sent


def test_a_tool_that_is_not_offered_cannot_be_chosen() -> None:
    call = request(tools=[PLAIN, WEB], tool_choice=WEB).call(()).for_wire("openai_chat")
    with pytest.raises(RequestError, match="web_search"):
        check_tool_choice(call)
    with pytest.raises(RequestError, match="of one of the tools"):
        request(tools=[PLAIN], tool_choice=WEB).call(())


@pytest.mark.parametrize("entry", [{"type": 1, "name": []}, {"type": [], "name": "f"}, {"name": {}}, {"type": None}, 5])
def test_nonsense_among_allowed_tools_is_refused(entry: Any) -> None:
    for choice in (entry, {"type": "allowed_tools", "tools": [entry]}):
        with pytest.raises(RequestError) as caught:
            request(tools=[PLAIN, WEB], tool_choice=choice).call(())
        assert str(caught.value.info.param).startswith("tool_choice")


def test_two_tools_of_one_name_are_refused_in_one_list_and_replaced_by_a_later_one() -> None:
    shell, function = {"type": "custom", "name": "sh"}, {"type": "function", "name": "sh"}
    with pytest.raises(RequestError, match="another tool is called 'sh'"):
        request(tools=[shell, function])
    assert len(request(tools=[function, dict(function)]).tools.functions) == 1
    later = request({"type": "additional_tools", "tools": [shell]}, tools=[function])
    assert later.tools.by_function["sh"].kind == "custom"


def test_an_mcp_server_is_no_additional_tool() -> None:
    server = {"type": "mcp", "server_label": "s", "server_url": "https://e.org", "require_approval": "never"}
    with pytest.raises(RequestError, match="named in tools"):
        request({"type": "additional_tools", "tools": [server]})


def test_a_search_that_openai_runs_is_its_own_tool() -> None:
    search = {"type": "tool_search", "execution": "server"}
    assert [tool.native for tool in request(tools=[search, PLAIN]).call(()).native_tools] == [search]


def test_the_result_of_a_call_that_was_cut_off_is_sent_as_text() -> None:
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Beg", "status": "incomplete"}
    result = {"type": "custom_tool_call_output", "call_id": "c1", "output": "a syntax error"}
    warnings: list[str] = []
    messages = request({"role": "user", "content": "go"}, call, result).messages(warnings=warnings)
    assert "a syntax error" in str(messages[-1])
    assert not any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    (warning,) = warnings
    assert "it is sent as text" in warning


def test_the_echo_of_allowed_tools_names_each_of_them() -> None:
    entries = [
        {"type": "local_shell"},
        {"type": "custom", "name": "patch"},
        {"type": "function", "name": "read", "namespace": "mcp__files"},
    ]
    parsed = request(tool_choice={"type": "allowed_tools", "tools": entries})
    assert [tool.name for tool in parsed.call(()).tools] == ["mcp__files__read", "patch", "local_shell"]
    assert parsed.response("r", "m", NOW).tool_choice == {"type": "allowed_tools", "tools": entries, "mode": "auto"}


def test_ten_thousand_allowed_tools_are_looked_up_once() -> None:
    tools = [{"type": "function", "name": f"f{i}"} for i in range(10_000)]
    parsed = request(tools=tools, tool_choice={"type": "allowed_tools", "tools": tools})
    began = time.thread_time()
    assert len(parsed.call(()).tools) == 10_000
    assert time.thread_time() - began < 5, "CPU seconds of this thread; it is some 0.02"


# --- the text of a custom tool ---------------------------------------------------------------------------------------


UNESCAPED = [
    ('{"input":"print("hello")"}', 'print("hello")'),
    ('{"input":"a\\qb"}', "a\\qb"),
    ('{"input":"add 1', "add 1"),
    ('{"input": "say "hi""}', 'say "hi"'),
    ("add 1", "add 1"),
]


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(("arguments", "text"), UNESCAPED)
def test_a_text_that_the_model_did_not_escape_is_whole(arguments: str, text: str, size: int) -> None:
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    parsed = request()
    encoder = Encoder(parsed.response("resp_1", "m", NOW), tools=parsed.tools.by_function)
    stream = encoder.start()
    for event in decoded_events(*call_chunks("patch", *pieces), *final_chunks("tool_calls")):
        stream += encoder.feed([event], NOW)
    assert verify(stream) == []
    (item,) = encoder.response.output
    assert isinstance(item, CustomToolCallItem)
    assert item.input == text
    if item.status == "completed":
        assert any("as JSON" in warning for warning in encoder.warnings)


def test_no_arguments_are_an_empty_text() -> None:
    assert output(request(), "patch", "{}", 1)["input"] == ""


@given(st.text(), st.lists(st.integers(min_value=0, max_value=400)), st.booleans(), st.sampled_from(["", " ", "\n  "]))
def test_the_text_streams_however_the_arguments_are_cut(text: str, cuts: list[int], ascii: bool, space: str) -> None:
    arguments = f"{space}{{{space}{json.dumps('input')}{space}:{space}{json.dumps(text, ensure_ascii=ascii)}{space}}}"
    places = sorted({0, len(arguments), *(cut for cut in cuts if cut < len(arguments))})
    argument = TextArgument()
    streamed = [argument.feed(arguments[start:end]) for start, end in itertools.pairwise(places)]
    assert text.startswith("".join(streamed))
    assert argument.rest(arguments) == (text, text[len("".join(streamed)) :])


@given(st.text())
def test_a_text_streams_to_its_end(text: str) -> None:
    """Nothing waits for the end of the arguments."""
    argument = TextArgument()
    assert "".join(map(argument.feed, json.dumps({"input": text}))) == text


@given(st.text() | st.from_regex(r'\{"input": *"(\\u[dD]8|\\x|[^"])*', fullmatch=False))
def test_arguments_of_any_form_have_a_text(arguments: str) -> None:
    argument = TextArgument()
    streamed = "".join(map(argument.feed, arguments))
    whole, rest = argument.rest(arguments)
    assert streamed + rest == whole


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"patch": "x"}', "x"), ('{"a": 1}', '{"a": 1}'), ('"x"', "x"), ("x", "x"), ('{"a":"x","input":"y"}', "y")],
)
def test_the_text_of_other_arguments(arguments: str, text: str) -> None:
    assert text_of_arguments(arguments) == text


@pytest.mark.parametrize(
    ("format", "text", "fits"),
    [
        ({"type": "text"}, "anything", True),
        ({"type": "grammar", "syntax": "lark", "definition": LARK}, "add 12", True),
        ({"type": "grammar", "syntax": "lark", "definition": LARK}, "add", False),
        ({"type": "grammar", "syntax": "lark", "definition": LARK}, "add 12 ", False),
        ({"type": "grammar", "syntax": "regex", "definition": "é+"}, "éé", True),
        ({"type": "grammar", "syntax": "regex", "definition": "é+"}, "\ud800", False),
    ],
    ids=str,
)
def test_a_text_that_the_grammar_does_not_permit_is_returned_with_a_warning(
    format: dict[str, Any], text: str, fits: bool
) -> None:
    parsed = request(tools=[{"type": "custom", "name": "c", "format": format}])
    encoder = Encoder(parsed.response("resp_1", "m", NOW), tools=parsed.tools.by_function)
    events = decoded_events(*call_chunks("c", json.dumps({"input": text})), *final_chunks("tool_calls"))
    stream = encoder.start() + encoder.feed(events, NOW)
    assert (encoder.warnings == []) == fits
    assert (b"\n: the input of the call" in stream) == (not fits)
    assert verify(stream) == []


# --- what is not valid -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "path", "says"),
    [
        ([{"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}}],
         "tools[0].format.definition", "Lark"),
        ([{"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "regex", "definition": "("}}],
         "tools[0].format.definition", "regular expression"),
        ([{"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "bnf", "definition": "x"}}],
         "tools[0].format.syntax", "lark"),
        ([{"type": "custom", "name": "c"}, {"type": "namespace", "name": "n", "tools": [{"type": "x", "name": "c"}]}],
         "tools[1].tools[0].type", "function"),
        ([{"type": "function", "name": "n__c"},
          {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c"}]}],
         "tools[1].tools[0].name", "n__c"),
        ([{"type": "namespace", "name": "n"}], "tools[0].tools", "required"),
        ([{"type": "custom"}], "tools[0].name", "required"),
        ([{"no": "type"}], "tools[0].type", ""),
        ([5], "tools[0]", ""),
    ],
    ids=str,
)  # fmt: skip
def test_the_error_of_an_invalid_tool_names_it(tools: list[Any], path: str, says: str) -> None:
    with pytest.raises(RequestError) as caught:
        request(tools=tools)
    assert caught.value.info.param == path
    assert says in caught.value.info.message


def test_ten_thousand_tools_are_accepted() -> None:
    tools = [{"type": "namespace", "name": f"n{i}", "tools": [{"type": "custom", "name": "t"}]} for i in range(10_000)]
    assert len(request(tools=tools).client_tools) == 10_000


# --- items of other makers -------------------------------------------------------------------------------------------

FOREIGN = st.dictionaries(
    st.sampled_from(["status", "call_id", "content", "output", "summary", "tools", "action", "text"]),
    st.none() | st.text(max_size=5) | st.lists(st.dictionaries(st.sampled_from(["type", "text"]), st.text(max_size=5))),
)


@given(
    FOREIGN,
    st.none() | st.text(max_size=5),
    st.sampled_from(["web_search_call", "x_output", "agent_message", "other", "reasoning_v2", ""]),
)
def test_an_unknown_item_type_becomes_an_opaque_part_or_text(fields: dict[str, Any], id: str | None, kind: str) -> None:
    item = {**fields, "id": id, "type": kind}
    (message,) = request(item).messages()
    (part,) = message.parts
    if isinstance(part, OpaquePart):
        assert isinstance(message, ModelResponse)
        assert (part.native, part.wire) == (item, "openai_responses")
        assert kind in part.text
    else:
        assert isinstance(part, UserPromptPart)
        text = part.content[0]
        assert isinstance(text, Text)
        assert text.wire_fields == {"openai_responses": item}
        assert kind in text.text


def test_an_unknown_content_type_becomes_readable_text() -> None:
    item = {
        "role": "user",
        "content": [{"type": "screenshot", "caption": "a cat"}, {"type": "input_text", "text": "x"}],
    }
    assert request(item).messages() == [
        ModelRequest([UserPromptPart([Text('[screenshot] {"caption":"a cat"}'), Text("x")])])
    ]


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}


@pytest.mark.parametrize(
    ("item", "content"),
    [
        ({"type": "function_call_output", "call_id": None, "name": "f", "output": "42"}, "[Result of f]\n42"),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "42"}, "[Result of a call]\n42"),
        (
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "see"}, IMAGE]},
            [Text("[Result of a call]"), Text("see"), Image(url="data:image/png;base64,AA==")],
        ),
    ],
    ids=str,
)
def test_a_result_without_its_call_becomes_a_user_message(item: dict[str, Any], content: Any) -> None:
    warnings: list[str] = []
    assert request(item).messages(warnings=warnings) == [ModelRequest([UserPromptPart(content)])]
    assert len(warnings) == 1
    assert warnings[0].startswith("input[0]: ")


def test_a_list_as_result_keeps_its_images() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "see"}, IMAGE]}
    part = request(call, result).messages()[-1].parts[0]
    assert isinstance(part, ToolReturnPart)
    assert part.content == [Text("see"), Image(url="data:image/png;base64,AA==")]


def test_reasoning_may_hold_plain_text() -> None:
    """Codex sends `text` where it received `reasoning_text` from some providers."""
    item = {"type": "reasoning", "summary": [], "content": [{"type": "text", "text": "t"}], "encrypted_content": None}
    (message,) = request(item, {"role": "assistant", "content": "x"}).messages()
    assert [type(part).__name__ for part in message.parts] == ["ThinkingPart", "TextPart"]
    assert message.parts[1] == TextPart("x")


def test_a_result_without_its_call_is_an_error_if_the_input_continues_a_response() -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": "42"}
    with pytest.raises(RequestError) as caught:
        request(item, previous_response_id="resp_1").messages(warnings=[])
    assert caught.value.info.param == "input[0].call_id"
