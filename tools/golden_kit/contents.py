"""What a client may put into a request, for each protocol: settings, tools, contents, and values that are wrong.

A setting is a label and the fields that it changes in a plain question. `thinking` has those that decide how a model is
to think, and what depends on it; they are sent to more models than the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from .protocols import FUNCTION, NEXT, QUESTION, Ask

Settings = dict[str, dict[str, Any]]
"""The fields that a setting changes, by its label."""
Address = Callable[[str], str]
"""The URL of a file of this type (`png`, `pdf`, `wav`, `mp4`), another one each time."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
VIEWS = ("raw", "summary", "sealed", "hidden")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF, WAV, MP4 = "JVBERi0xLjQK", "UklGRiQAAABXQVZF", "AAAAGGZ0eXBtcDQy"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "A city"}, "n": {"type": ["integer", "null"]}},
    "required": ["city", "n"],
    "additionalProperties": False,
}
RICH = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Place",
    "type": "object",
    "properties": {
        "kind": {"enum": ["city", "river", 3, None]},
        "at": {"$ref": "#/$defs/point"},
        "names": {"type": "array", "items": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"}, "maxItems": 3},
        "either": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number", "exclusiveMinimum": 0}]},
        "fixed": {"const": "x", "default": "x"},
    },
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    "patternProperties": {"^x-": {"type": "string"}},
}


class Protocol(NamedTuple):
    """How a question is put in one protocol, and all that may stand in it."""

    name: str
    ask: Callable[[str, Mapping[str, Any]], Ask]
    """The request for a model, with these fields changed."""
    settings: Callable[[Address], Settings]
    wrong: Callable[[], Settings]
    """What is refused, or ignored."""


def of_values(values: Mapping[str, Iterable[Any]], **always: Any) -> Settings:
    """A setting for each value of each field; `always` is sent with all of them."""
    return {_label(name, value): {**always, name: value} for name, choices in values.items() for value in choices}


def _label(name: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"{name} = {text if len(text) <= 90 else text[:80] + '…' + text[-9:]}"


def _data(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def join(*settings: Settings) -> Settings:
    """All of them. A label stands for one setting."""
    labels = [label for some in settings for label in some]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise ValueError(f"two settings are called {', '.join(sorted(twice))}")
    return {label: fields for some in settings for label, fields in some.items()}


# --- Chat Completions --------------------------------------------------------------------------------------------

_USER = {"role": "user", "content": QUESTION}
_TOOL = {"type": "function", "function": FUNCTION}
_OTHER_TOOL = {"type": "function", "function": {"name": "other"}}
_TOOLS = [_TOOL, _OTHER_TOOL]
_CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"city":"Lyon"}'}}
_CALL_2 = {"id": "call_2", "type": "function", "function": {"name": "other", "arguments": "{}"}}
_RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "found"}
_CHOICE = {"type": "function", "function": {"name": "look_up"}}


def _completion(model: str, fields: Mapping[str, Any]) -> Ask:
    return Ask("/v1/chat/completions", {"model": model, "messages": [_USER], **fields})


def _conversation(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def thinking() -> Settings:
    """How much to think, in every form of Chat Completions; and what a model that thinks may not take."""
    efforts = [{}, *({"reasoning_effort": effort} for effort in ("none", "high"))]
    call_message = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
    thought = {**call_message, "reasoning_content": "I look it up."}
    extra_settings: dict[str, dict[str, Any]] = {
        "temperature": {"temperature": 0.5},
        "sampling": {"temperature": 0.5, "top_p": 0.9, "top_k": 20, "logprobs": True, "presence_penalty": 0.5},
        "few tokens": {"max_completion_tokens": 500},
        "many tokens": {"max_completion_tokens": 30_000},
        "required": {"tools": _TOOLS, "tool_choice": "required"},
        "forced": {"tools": _TOOLS, "tool_choice": _CHOICE},
        "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}},
        "after a call": _conversation(_USER, call_message, _RESULT) | {"tools": _TOOLS},
        "after a call with its thought": _conversation(_USER, thought, _RESULT) | {"tools": _TOOLS},
        "after two answers": _conversation(
            _USER, thought, _RESULT, {"role": "assistant", "content": "So.", "reasoning": "It is so."}, _USER
        ),
    }
    return join(
        {"nothing": {}},
        of_values({"reasoning_effort": EFFORTS}),
        of_values(
            {
                "reasoning": [
                    *({"effort": effort} for effort in EFFORTS),
                    {"enabled": True},
                    {"enabled": False},
                    *({"max_tokens": budget} for budget in (1, 1024, 100_000)),
                    {"effort": "low", "max_tokens": 3000},
                    *({"summary": summary} for summary in ("auto", "concise", "detailed")),
                    {"effort": "high", "summary": "detailed"},
                ]
            }
        ),
        {
            " and ".join([name, *(f"effort {effort}" for effort in how.values())]): {**fields, **how}
            for name, fields in extra_settings.items()
            for how in efforts
        },
        {
            "budget and temperature": {"reasoning": {"max_tokens": 2048}, "temperature": 0.5},
            "budget and few tokens": {"reasoning": {"max_tokens": 4000}, "max_completion_tokens": 2000},
        },
    )


def _completion_settings(address: Address) -> Settings:
    schema = {"name": "place", "schema": SCHEMA}
    return join(
        thinking(),
        of_values(
            {
                "temperature": [0, 1, 2],
                "top_p": [0, 0.25, 1],
                "top_k": [0, 1, 40],
                "seed": [0, 7, -1],
                "presence_penalty": [-2, 0, 1.5],
                "frequency_penalty": [-2, 0, 1.5],
                "logit_bias": [{}, {"50256": -100}],
                "logprobs": [True, False],
                "top_logprobs": [0, 5],
                "max_tokens": [1, 4096],
                "max_completion_tokens": [1, 4096, 1_000_000],
                "stop": ["END", ["a", "b"], [], ["1", "2", "3", "4", "5", "6"]],
                "n": [1],
                "user": ["u-1"],
                "safety_identifier": ["s-1"],
                "prompt_cache_key": ["k-1"],
                "metadata": [{"a": "b"}, {}],
                "store": [True, False],
                "service_tier": ["auto", "default", "flex", "scale", "priority", "fast"],
                "verbosity": ["low", "medium", "high"],
                "modalities": [["text"], []],
                "stream_options": [{"include_usage": True}, {"include_obfuscation": False}],
                "reasoning_fields": ["both", "reasoning_content", "reasoning"],
                "include_reasoning": [True, False],
                "parallel_tool_calls": [True],
                "function_call": ["none", "auto"],
                "response_format": [
                    {"type": "text"},
                    {"type": "json_object"},
                    {"type": "json_schema", "json_schema": schema},
                    {"type": "json_schema", "json_schema": {**schema, "strict": True, "description": "A place."}},
                    {"type": "json_schema", "json_schema": {**schema, "strict": False}},
                    {"type": "json_schema", "json_schema": {"name": "rich", "schema": RICH}},
                    {"type": "json_schema", "json_schema": {}},
                ],
            }
        ),
        {"excluded": {"reasoning": {"exclude": True}}, "not excluded": {"reasoning": {"exclude": False}}},
        {"both token limits": {"max_tokens": 100, "max_completion_tokens": 200}},
        {"both users": {"user": "u-1", "safety_identifier": "s-1"}},
        {
            "stream": {"stream": True},
            "stream, temperature": {"stream": True, "temperature": 0.5},
            "stream, effort": {"stream": True, "reasoning_effort": "high"},
            "stream, excluded": {"stream": True, "reasoning": {"exclude": True}},
        },
        _with_prefix(
            "stream and ",
            of_values(
                {
                    "stream_options": [{"include_usage": True}, {"include_usage": False}],
                    "reasoning_fields": ["both", "reasoning_content", "reasoning"],
                },
                stream=True,
            ),
        ),
        _with_prefix(
            "tools and ",
            of_values(
                {
                    "tool_choice": [
                        "none",
                        "auto",
                        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [_CHOICE]}},
                        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [_CHOICE]}},
                        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": _TOOLS}},
                    ],
                    "parallel_tool_calls": [False, True],
                    "response_format": [{"type": "json_object"}, {"type": "json_schema", "json_schema": schema}],
                    "stream": [True],
                },
                tools=_TOOLS,
            ),
        ),
        _completion_tools(),
        _completion_messages(address),
        {
            "unknown fields": {
                "mood": "good",
                "extra_body": {"a": 1},
                "enable_thinking": True,
                "provider": {"sort": "x"},
            }
        },
        {"nulls": dict.fromkeys(("temperature", "tools", "tool_choice", "reasoning", "stop", "stream", "metadata"))},
        {
            "everything": {
                "messages": [{"role": "system", "content": "Be brief."}, _USER],
                "temperature": 0.5,
                "top_p": 0.9,
                "top_k": 20,
                "seed": 7,
                "presence_penalty": 0.5,
                "frequency_penalty": -0.5,
                "logit_bias": {"50256": -100},
                "stop": ["END"],
                "max_completion_tokens": 4096,
                "reasoning": {"effort": "medium", "summary": "auto"},
                "tools": _TOOLS,
                "tool_choice": "auto",
                "parallel_tool_calls": False,
                "response_format": {"type": "json_schema", "json_schema": schema},
                "verbosity": "low",
                "service_tier": "flex",
                "user": "u-1",
                "prompt_cache_key": "k-1",
                "logprobs": True,
                "top_logprobs": 2,
            }
        },
    )


def _completion_tools() -> Settings:
    def function(**changes: Any) -> dict[str, Any]:
        return {"type": "function", "function": {**FUNCTION, **changes}}

    bare = {"type": "function", "function": {"name": "other"}}
    tools: dict[str, list[Any]] = {
        "one": [_TOOL],
        "bare": [bare],
        "none": [],
        "strict": [function(strict=True, parameters=SCHEMA), bare],
        "not strict": [function(strict=False)],
        "no description": [function(description=None)],
        "no parameters": [function(parameters=None)],
        "rich parameters": [function(parameters=RICH)],
        "no properties": [function(parameters={"type": "object"})],
        "cached": [{**_TOOL, "cache_control": {"type": "ephemeral"}}],
    }
    return {f"tools: {label}": {"tools": value} for label, value in tools.items()}


def _completion_messages(address: Address) -> Settings:
    def user(*content: Any) -> dict[str, Any]:
        return _conversation({"role": "user", "content": list(content)})

    def image(url: str, **more: Any) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": url, **more}}

    def file(**fields: Any) -> dict[str, Any]:
        return {"type": "file", "file": fields}

    def audio(form: str) -> dict[str, Any]:
        return {"type": "input_audio", "input_audio": {"data": WAV, "format": form}}

    def text(words: str) -> dict[str, Any]:
        return {"type": "text", "text": words}

    def system(role: str, content: Any) -> dict[str, Any]:
        return {"role": role, "content": content}

    def assistant(**fields: Any) -> dict[str, Any]:
        return {"role": "assistant", **fields}

    def after_call(content: Any, **more: Any) -> dict[str, Any]:
        return _conversation(_USER, assistant(tool_calls=[_CALL]), {**_RESULT, "content": content}, **more)

    blocks = [text("One."), text("Two.")]
    cache_block = {**text("Long."), "cache_control": {"type": "ephemeral"}}
    detail = {"type": "reasoning.text", "text": "I look. ", "index": 0}
    old = {"role": "function", "name": "look_up", "content": "found"}
    pdf = _data("application/pdf", PDF)
    messages: dict[str, dict[str, Any]] = {
        "system": _conversation(system("system", "Be brief."), _USER),
        "system, blocks": _conversation(system("system", blocks), _USER),
        "system, empty": _conversation(system("system", ""), _USER),
        "system, two": _conversation(system("system", "Be brief."), system("system", "Be kind."), _USER),
        "system, later": _conversation(_USER, assistant(content="Yes."), system("system", "Be brief."), _USER),
        "system, last": _conversation(_USER, system("system", "Be brief.")),
        "system, alone": _conversation(system("system", "Be brief.")),
        "system, cached": _conversation(system("system", [cache_block]), _USER),
        "developer": _conversation(system("developer", "Be brief."), _USER),
        "developer, blocks": _conversation(system("developer", blocks), _USER),
        "system and developer": _conversation(system("system", "Be brief."), system("developer", "Be kind."), _USER),
        "user, blocks": user(*blocks),
        "user, empty": _conversation({"role": "user", "content": ""}),
        "user, no blocks": user(),
        "user, blank": _conversation({"role": "user", "content": "  \n"}),
        "user, name": _conversation({**_USER, "name": "Ada"}),
        "user, twice": _conversation(_USER, {"role": "user", "content": NEXT}),
        "user, cached": user(cache_block),
        "user, controls": _conversation(
            {"role": "user", "content": "a\u0000b\u0007 \ud83c\udf0a \u202e <think>x</think>"}
        ),
        "image, URL": user(text("What?"), image(address("png"))),
        "image, URL that is private": user(text("What?"), image("http://10.0.0.1/a.png")),
        "image, data": user(text("What?"), image(_data("image/png", PNG))),
        "image, data, JPEG": user(image(_data("image/jpeg", PNG))),
        "image, data, TIFF": user(image(_data("image/tiff", PNG))),
        "image, data, SVG not in base64": user(image("data:image/svg+xml,<svg/>")),
        "image, data without a type": user(image("data:;base64," + PNG)),
        **{f"image, detail {detail}": user(image(_data("image/png", PNG), detail=detail)) for detail in _DETAILS},
        "image, two": user(image(_data("image/png", PNG)), text("and"), image(_data("image/png", PNG))),
        "image, other scheme": user(image("gs://bucket/a.png")),
        "file, data": user(text("Read."), file(file_data=pdf, filename="a.pdf")),
        "file, data, no name": user(file(file_data=pdf)),
        "file, base64": user(file(file_data=PDF, filename="a.pdf")),
        "file, text": user(file(file_data=_data("text/plain", "SGk="), filename="a.txt")),
        "file, URL": user(file(file_data=address("pdf"), filename="a.pdf")),
        "file, id": user(file(file_id="file-1")),
        "file, two of one name": user(*[file(file_data=pdf, filename="a.pdf")] * 2),
        "audio, wav": user(text("Hear."), audio("wav")),
        "audio, mp3": user(audio("mp3")),
        "audio, other": user(audio("xyz")),
        "video, URL": user(text("See."), {"type": "video_url", "video_url": {"url": address("mp4")}}),
        "video, data": user({"type": "video_url", "video_url": {"url": _data("video/mp4", MP4)}}),
        "assistant first": _conversation(assistant(content="Hello."), _USER),
        "prefill": _conversation(_USER, assistant(content="It is")),
        "prefill, blank at the end": _conversation(_USER, assistant(content="It is  ")),
        "prefill, blocks": _conversation(_USER, assistant(content=[text("It is")])),
        "prefill, thinking": _conversation(_USER, assistant(content="It is"), reasoning_effort="high"),
        "prefill, thought": _conversation(_USER, assistant(reasoning_content="Let me see")),
        "assistant, two": _conversation(_USER, assistant(content="It"), assistant(content="is"), _USER),
        "assistant, refusal": _conversation(_USER, assistant(refusal="No."), _USER),
        "assistant, refusal block": _conversation(
            _USER, assistant(content=[{"type": "refusal", "refusal": "No."}]), _USER
        ),
        "assistant, nothing": _conversation(_USER, assistant(content=None), _USER),
        "assistant, empty": _conversation(_USER, assistant(content=""), _USER),
        "assistant, reasoning_content": _conversation(
            _USER, assistant(content="Yes.", reasoning_content="I look."), _USER
        ),
        "assistant, reasoning": _conversation(_USER, assistant(content="Yes.", reasoning="I look."), _USER),
        "assistant, details": _conversation(_USER, assistant(content="Yes.", reasoning_details=[detail]), _USER),
        "assistant, summary": _conversation(
            _USER,
            assistant(content="Yes.", reasoning_details=[{"type": "reasoning.summary", "summary": "In short."}]),
            _USER,
        ),
        "assistant, tags": _conversation(_USER, assistant(content="<think>I look.</think>Yes."), _USER),
        "call and result": after_call("found", tools=_TOOLS),
        "call and result, no tools": after_call("found"),
        "call and result, blocks": after_call(blocks, tools=_TOOLS),
        "call and result, empty": after_call("", tools=_TOOLS),
        "call and result, JSON": after_call('{"found": [1]}', tools=_TOOLS),
        "call and result, a list": after_call("[1, 2]", tools=_TOOLS),
        "call with text": _conversation(_USER, assistant(content="I look.", tool_calls=[_CALL]), _RESULT, tools=_TOOLS),
        "call with a thought": _conversation(
            _USER, assistant(reasoning_content="I look.", tool_calls=[_CALL]), _RESULT, tools=_TOOLS
        ),
        "calls, two": _conversation(
            _USER,
            assistant(tool_calls=[_CALL, _CALL_2]),
            {**_RESULT, "tool_call_id": "call_2"},
            _RESULT,
            _USER,
            tools=_TOOLS,
        ),
        "calls, two of one id": _conversation(
            _USER, assistant(tool_calls=[_CALL, _CALL]), _RESULT, _RESULT, tools=_TOOLS
        ),
        "call, no result": _conversation(_USER, assistant(tool_calls=[_CALL]), _USER, tools=_TOOLS),
        "call, last": _conversation(_USER, assistant(tool_calls=[_CALL]), tools=_TOOLS),
        "call, arguments not JSON": _conversation(
            _USER,
            assistant(tool_calls=[{**_CALL, "function": {"name": "look_up", "arguments": '{"city":'}}]),
            _RESULT,
            tools=_TOOLS,
        ),
        "call, arguments empty": _conversation(
            _USER, assistant(tool_calls=[{**_CALL, "function": {"name": "look_up", "arguments": ""}}]), _RESULT
        ),
        "call, long id": _conversation(
            _USER,
            assistant(tool_calls=[{**_CALL, "id": "call|with:signs/" + "x" * 70}]),
            {**_RESULT, "tool_call_id": "call|with:signs/" + "x" * 70},
            tools=_TOOLS,
        ),
        "call, first form": _conversation(_USER, assistant(function_call=_CALL["function"]), old, tools=_TOOLS),
    }
    return {f"messages: {label}": fields for label, fields in messages.items()}


_DETAILS = ("low", "high", "auto", "original")


def _wrong_completions() -> Settings:
    def content(*entries: Any) -> dict[str, Any]:
        return _conversation({"role": "user", "content": list(entries)})

    def tool(**fields: Any) -> dict[str, Any]:
        return {"tools": [{"type": "function", "function": fields}]}

    deep: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"a": deep}}
    return join(
        of_values(
            {
                "temperature": [-0.1, 2.1, "0.5", True, [], 1e400],
                "top_p": [-0.1, 1.1, "x"],
                "top_k": ["x", 1.5],
                "seed": ["x", 1.5, 2**70],
                "presence_penalty": [-2.1, 2.1],
                "frequency_penalty": [-2.1, 2.1],
                "logit_bias": [[], {"a": "b"}, {"a": 1.5}],
                "logprobs": [1, "true"],
                "top_logprobs": [-1, 21, 1.5],
                "max_tokens": [0, -1, 1.5, "9"],
                "max_completion_tokens": [0, "9"],
                "stop": [7, [7], {}],
                "n": [0, 2, "1"],
                "user": [7],
                "metadata": [[], {"a": 1}, "x"],
                "store": ["x"],
                "stream": ["x", 1],
                "stream_options": [[], {"include_usage": "x"}],
                "service_tier": ["fastest", 7],
                "verbosity": ["silent"],
                "modalities": [["audio"], ["text", "audio"], "text"],
                "audio": [{"voice": "alloy", "format": "wav"}],
                "web_search_options": [{}],
                "moderation": [{"model": "m"}],
                "functions": [[FUNCTION]],
                "function_call": [{"name": "look_up"}],
                "reasoning_effort": ["enormous", 7, ""],
                "reasoning": [
                    "high",
                    {"effort": "enormous"},
                    {"max_tokens": 0},
                    {"enabled": False, "effort": "high"},
                    {"enabled": False, "max_tokens": 100},
                    {"enabled": True, "effort": "none"},
                    {"effort": "none", "max_tokens": 100},
                    {"summary": "long"},
                    {"mood": "good"},
                ],
                "reasoning_fields": ["neither"],
                "include_reasoning": ["x"],
                "response_format": [
                    "json_object",
                    {"type": "xml"},
                    {},
                    {"type": "json_schema"},
                    {"type": "json_schema", "json_schema": {"schema": []}},
                    {"type": "json_schema", "json_schema": {"name": "x", "schema": deep}},
                ],
                "messages": [
                    "x",
                    {},
                    [7],
                    [{}],
                    [{"role": "user"}],
                    [{"role": "user", "content": 7}],
                    [{"role": "assistant", "audio": {"id": "a"}}],
                    [{"role": "tool", "tool_call_id": "call_1"}],
                    [_USER, _RESULT],
                    [_USER, {"role": "assistant", "tool_calls": [_CALL]}, _RESULT, _RESULT],
                    [_USER, {"role": "function", "name": "x", "content": "y"}],
                    [_USER, {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]}],
                    [_USER, {"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "x"}}]}],
                ],
                "model": [None, "", 7, "deepseek", "deepseek:", ":x", "x" * 300, "a\u0000b"],
                "tools": [
                    "x",
                    {},
                    [7],
                    [{"type": "custom", "custom": {"name": "x"}}],
                    [{"type": "web_search"}],
                    [{"type": "function"}],
                    [{"type": "web_search_20250305", "name": "web_search"}],
                    [_TOOL, _TOOL],
                ],
            }
        ),
        {
            "content: unknown type": content({"type": "hologram"}),
            "content: no type": content({"text": "x"}),
            "content: file without anything": content({"type": "file", "file": {}}),
            "content: image as text": content({"type": "image_url", "image_url": "x"}),
            "content: image without a URL": content({"type": "image_url", "image_url": {"url": ""}}),
            "content: wrong detail": content({"type": "image_url", "image_url": {"url": "data:,", "detail": "huge"}}),
            "content: not a URL": content({"type": "image_url", "image_url": {"url": "cat.png"}}),
            "content: not base64": content({"type": "image_url", "image_url": {"url": "data:image/png;base64,???"}}),
            "tool: no name": tool(),
            "tool: empty name": tool(name=""),
            "tool: name with a space": tool(name="look up"),
            "tool: long name": tool(name="x" * 65),
            "tool: parameters are a list": tool(name="x", parameters=[]),
            "tool: parameters too deep": tool(name="x", parameters=deep),
            "tool: strict as text": tool(name="x", strict="yes"),
            **{
                f"tool choice {n}": {"tools": _TOOLS, "tool_choice": choice}
                for n, choice in enumerate(
                    [
                        "maybe",
                        7,
                        {},
                        {"type": "function"},
                        {"type": "function", "function": {"name": "missing"}},
                        {"type": "allowed_tools"},
                        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
                        {"type": "allowed_tools", "allowed_tools": {"mode": "never", "tools": [_CHOICE]}},
                        {"type": "custom", "custom": {"name": "x"}},
                    ]
                )
            },
            **{
                f"tool choice without tools: {choice}": {"tool_choice": choice}
                for choice in ("none", "auto", "required")
            },
            "two efforts": {"reasoning_effort": "low", "reasoning": {"effort": "high"}},
            "one effort twice": {"reasoning_effort": "low", "reasoning": {"effort": "low"}},
            "parallel calls without tools": {"parallel_tool_calls": True},
        },
    )


def _with_prefix(prefix: str, settings: Settings) -> Settings:
    return {prefix + label: fields for label, fields in settings.items()}


# --- OpenResponses -----------------------------------------------------------------------------------------------

_USER_ITEM = {"type": "message", "role": "user", "content": QUESTION}
_FUNCTION = {"type": "function", **FUNCTION}
_FUNCTIONS = [_FUNCTION, {"type": "function", "name": "other"}]
_CALL_ITEM = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": '{"city":"Lyon"}'}
_RESULT_ITEM = {"type": "function_call_output", "call_id": "call_1", "output": "found"}
_FUNCTION_CHOICE = {"type": "function", "name": "look_up"}


def _response(model: str, fields: Mapping[str, Any]) -> Ask:
    return Ask("/v1/responses", {"model": model, "input": QUESTION, "store": False, **fields})


def _input(*items: Any, **more: Any) -> dict[str, Any]:
    return {"input": list(items), **more}


def _response_settings(address: Address) -> Settings:
    schema = {"type": "json_schema", "name": "place", "schema": SCHEMA}
    formats: list[dict[str, Any]] = [
        {"type": "text"},
        {"type": "json_object"},
        schema,
        {**schema, "strict": True, "description": "A place."},
        {**schema, "strict": False},
        {"type": "json_schema", "name": "rich", "schema": RICH},
        {"type": "json_schema"},
    ]
    choices: list[Any] = [
        "none",
        "auto",
        "required",
        _FUNCTION_CHOICE,
        {"type": "allowed_tools", "mode": "auto", "tools": [_FUNCTION_CHOICE]},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [_FUNCTION_CHOICE, {"type": "function", "name": "other"}],
        },
        {"type": "allowed_tools", "tools": [_FUNCTION_CHOICE]},
    ]
    extra_settings: Settings = {
        "temperature": {"temperature": 0.5},
        "few tokens": {"max_output_tokens": 500},
        "forced": {"tools": _FUNCTIONS, "tool_choice": _FUNCTION_CHOICE},
    }
    return join(
        {"nothing": {}},
        of_values(
            {
                "temperature": [0, 0.5, 2],
                "top_p": [0, 0.25, 1],
                "presence_penalty": [-2, 0, 1.5],
                "frequency_penalty": [-2, 0, 1.5],
                "max_output_tokens": [16, 4096, 1_000_000],
                "max_tool_calls": [1, 50],
                "top_logprobs": [0, 5],
                "include": [[], ["reasoning.encrypted_content"], ["message.output_text.logprobs"]],
                "reasoning": [
                    {},
                    *({"effort": effort} for effort in EFFORTS),
                    *({"summary": summary} for summary in ("auto", "concise", "detailed")),
                    {"generate_summary": "concise"},
                    {"effort": "high", "summary": "auto"},
                    {"effort": "none", "summary": "auto"},
                ],
                "text": [
                    {},
                    *({"format": form} for form in formats),
                    *({"verbosity": verbosity} for verbosity in ("low", "medium", "high")),
                    {"format": {"type": "json_object"}, "verbosity": "low"},
                ],
                "metadata": [{"a": "b"}, {}],
                "user": ["u-1"],
                "safety_identifier": ["s-1"],
                "prompt_cache_key": ["k-1"],
                "service_tier": ["auto", "default", "flex", "priority"],
                "truncation": ["auto", "disabled"],
                "store": [True],
                "parallel_tool_calls": [True],
                "stream_options": [{"include_obfuscation": False}],
                "instructions": ["Be brief.", ""],
                "stream": [True],
            }
        ),
        {
            f"effort {effort} and {name}": fields | {"reasoning": {"effort": effort}}
            for effort in ("none", "low", "high")
            for name, fields in extra_settings.items()
        },
        _with_prefix(
            "tools and ",
            of_values(
                {
                    "tool_choice": choices,
                    "parallel_tool_calls": [False, True],
                    "text": [{"format": {"type": "json_object"}}, {"format": schema}],
                    "max_tool_calls": [1],
                    "stream": [True],
                },
                tools=_FUNCTIONS,
            ),
        ),
        {
            f"tools: {label}": {"tools": tools}
            for label, tools in {
                "one": [_FUNCTION],
                "bare": [{"type": "function", "name": "other"}],
                "none": [],
                "strict": [{**_FUNCTION, "strict": True, "parameters": SCHEMA}],
                "not strict": [{**_FUNCTION, "strict": False}],
                "no parameters": [{**_FUNCTION, "parameters": None, "description": None}],
                "rich parameters": [{**_FUNCTION, "parameters": RICH}],
            }.items()
        },
        _response_inputs(address),
        {"instructions and system": _input({**_USER_ITEM, "role": "system"}, _USER_ITEM, instructions="Be brief.")},
        {"unknown fields": {"mood": "good", "top_k": 20, "seed": 7, "stop": ["x"], "thinking": {"type": "enabled"}}},
        {"nulls": dict.fromkeys(("temperature", "tools", "tool_choice", "reasoning", "text", "stream", "metadata"))},
        {
            "everything": {
                "input": [{"type": "message", "role": "developer", "content": "Be kind."}, _USER_ITEM],
                "instructions": "Be brief.",
                "temperature": 0.5,
                "top_p": 0.9,
                "presence_penalty": 0.5,
                "frequency_penalty": -0.5,
                "max_output_tokens": 4096,
                "max_tool_calls": 3,
                "reasoning": {"effort": "medium", "summary": "auto"},
                "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
                "top_logprobs": 2,
                "tools": _FUNCTIONS,
                "tool_choice": "auto",
                "parallel_tool_calls": False,
                "text": {"format": schema, "verbosity": "low"},
                "service_tier": "flex",
                "metadata": {"a": "b"},
                "user": "u-1",
                "prompt_cache_key": "k-1",
                "truncation": "auto",
            }
        },
    )


def _response_inputs(address: Address) -> Settings:
    def user(*content: Any) -> dict[str, Any]:
        return _input({**_USER_ITEM, "content": list(content)})

    def image(**fields: Any) -> dict[str, Any]:
        return {"type": "input_image", **fields}

    def file(**fields: Any) -> dict[str, Any]:
        return {"type": "input_file", **fields}

    def text(words: str, kind: str = "input_text") -> dict[str, Any]:
        return {"type": kind, "text": words}

    def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": content, **more}

    def result_of(output: Any) -> dict[str, Any]:
        return _input(_USER_ITEM, _CALL_ITEM, {**_RESULT_ITEM, "output": output}, tools=_FUNCTIONS)

    png, pdf = _data("image/png", PNG), _data("application/pdf", PDF)
    words = [text("One."), text("Two.")]
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look."}]}
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "I look."}]}
    inputs: dict[str, dict[str, Any]] = {
        "text": {"input": "Hello."},
        "empty text": {"input": ""},
        "without a type": _input({"role": "user", "content": QUESTION}),
        **{f"{role}": _input(message(role, "Be brief."), _USER_ITEM) for role in ("system", "developer")},
        **{f"{role}, blocks": _input(message(role, words), _USER_ITEM) for role in ("system", "developer")},
        "system, later": _input(_USER_ITEM, message("assistant", "Yes."), message("system", "Be brief."), _USER_ITEM),
        "user, blocks": user(*words),
        "user, twice": _input(_USER_ITEM, message("user", NEXT)),
        "user, text of other types": user(text("a", "text"), text("b", "output_text")),
        "image, URL": user(text("What?"), image(image_url=address("png"))),
        "image, data": user(image(image_url=png)),
        **{f"image, detail {detail}": user(image(image_url=png, detail=detail)) for detail in _DETAILS},
        "image, id": user(image(file_id="file-1")),
        "image, private": user(image(image_url="http://10.0.0.1/a.png")),
        "file, data": user(text("Read."), file(file_data=pdf, filename="a.pdf")),
        "file, base64": user(file(file_data=PDF, filename="a.pdf")),
        "file, base64 without a name": user(file(file_data=PDF)),
        "file, URL": user(file(file_url=address("pdf"), filename="a.pdf")),
        "file, id": user(file(file_id="file-1")),
        "video, URL": user({"type": "input_video", "video_url": address("mp4")}),
        "video, data": user({"type": "input_video", "video_url": _data("video/mp4", MP4)}),
        "audio": user({"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}),
        "prefill": _input(_USER_ITEM, message("assistant", "It is")),
        "prefill, thinking": _input(_USER_ITEM, message("assistant", "It is"), reasoning={"effort": "high"}),
        "assistant, blocks": _input(_USER_ITEM, message("assistant", [text("It is", "output_text")]), _USER_ITEM),
        "assistant, cut": _input(_USER_ITEM, message("assistant", "It i", status="incomplete"), _USER_ITEM),
        "assistant, phase": _input(_USER_ITEM, message("assistant", "It is", phase="commentary"), _USER_ITEM),
        "assistant, refusal": _input(
            _USER_ITEM, message("assistant", [{"type": "refusal", "refusal": "No."}], id="msg_1"), _USER_ITEM
        ),
        "reasoning, summary": _input(_USER_ITEM, summary, message("assistant", "Yes."), _USER_ITEM),
        "reasoning, content": _input(_USER_ITEM, thought, message("assistant", "Yes."), _USER_ITEM),
        "reasoning, empty": _input(_USER_ITEM, {**summary, "summary": []}, message("assistant", "Yes."), _USER_ITEM),
        "reasoning, cut": _input(
            _USER_ITEM, {**thought, "status": "incomplete"}, message("assistant", "Y"), _USER_ITEM
        ),
        "reasoning, last": _input(_USER_ITEM, thought),
        "reasoning and a call": _input(_USER_ITEM, thought, _CALL_ITEM, _RESULT_ITEM, tools=_FUNCTIONS),
        "result": result_of("found"),
        "result, no tools": _input(_USER_ITEM, _CALL_ITEM, _RESULT_ITEM),
        "result, empty": result_of(""),
        "result, blocks": result_of(words),
        "result, image": result_of([text("see"), image(image_url=png)]),
        "result, image by URL": result_of([image(image_url=address("png"))]),
        "result, file": result_of([file(file_data=pdf, filename="a.pdf")]),
        "result, file by URL": result_of([file(file_url=address("pdf"))]),
        "result, video and audio": result_of(
            [
                {"type": "input_video", "video_url": _data("video/mp4", MP4)},
                {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
            ]
        ),
        "result, and a question": _input(_USER_ITEM, _CALL_ITEM, _RESULT_ITEM, message("user", NEXT), tools=_FUNCTIONS),
        "calls, two": _input(
            _USER_ITEM,
            _CALL_ITEM,
            {**_CALL_ITEM, "call_id": "call_2"},
            {**_RESULT_ITEM, "call_id": "call_2"},
            _RESULT_ITEM,
            tools=_FUNCTIONS,
        ),
        "call, no result": _input(_USER_ITEM, _CALL_ITEM, _USER_ITEM, tools=_FUNCTIONS),
        "call, cut": _input(_USER_ITEM, {**_CALL_ITEM, "arguments": '{"ci', "status": "incomplete"}, _USER_ITEM),
    }
    return {f"input: {label}": fields for label, fields in inputs.items()}


def _wrong_responses() -> Settings:
    def content(*entries: Any) -> dict[str, Any]:
        return _input({"type": "message", "role": "user", "content": list(entries)})

    mcp = {"type": "mcp", "server_label": "m", "server_url": "http://10.0.0.1/mcp", "require_approval": "never"}
    return join(
        of_values(
            {
                "temperature": [-0.1, 2.1, "0.5", True, []],
                "top_p": [-0.1, 1.1],
                "presence_penalty": [-2.1, 2.1],
                "frequency_penalty": [-2.1, 2.1],
                "max_output_tokens": [0, 15, 1.5, "99"],
                "max_tool_calls": [0, "1"],
                "top_logprobs": [-1, 21],
                "include": ["x", ["everything"], ["file_search_call.results"]],
                "reasoning": ["high", {"effort": "enormous"}, {"summary": "long"}, {"max_tokens": 100}],
                "text": ["x", {"format": "json"}, {"format": {"type": "xml"}}, {"verbosity": "silent"}],
                "metadata": [[], {"a": 1}, {"a" * 65: "b"}, {"a": "b" * 513}, {f"k{n}": "v" for n in range(17)}],
                "user": [7],
                "safety_identifier": ["x" * 65],
                "prompt_cache_key": ["x" * 65],
                "service_tier": ["fast"],
                "truncation": ["middle"],
                "store": ["x"],
                "stream": [1],
                "stream_options": [[], {"include_obfuscation": "x"}],
                "background": [True],
                "instructions": [7, ["x"]],
                "previous_response_id": ["resp_0", 7],
                "conversation": ["conv_0", {"id": "conv_0"}, 7, {}],
                "model": [None, "", 7, "deepseek", "deepseek:", "x" * 300],
                "input": [
                    None,
                    [],
                    7,
                    {},
                    [7],
                    [{}],
                    [{"type": "what"}],
                    [{"type": "message", "role": "king", "content": "x"}],
                    [{"type": "message", "role": "user"}],
                    [{"type": "message", "role": "user", "content": 7}],
                    [{"type": "item_reference", "id": "msg_0"}],
                    [{"id": "msg_0"}],
                    [{"type": "web_search_call", "id": "ws_1", "status": "completed"}],
                    [{"type": "compaction", "encrypted_content": "x"}],
                    [_USER_ITEM, _RESULT_ITEM],
                    [_USER_ITEM, _CALL_ITEM, _RESULT_ITEM, _RESULT_ITEM],
                    [_USER_ITEM, {**_CALL_ITEM, "call_id": ""}],
                    [_USER_ITEM, {**_CALL_ITEM, "arguments": {"city": "Lyon"}}],
                    [{"type": "reasoning", "summary": "x"}],
                ],
                "tools": [
                    "x",
                    [7],
                    [{}],
                    [{"type": "web_search"}],
                    [{"type": "web_search_preview", "search_context_size": "low"}],
                    [{"type": "file_search", "vector_store_ids": ["v"]}],
                    [{"type": "code_interpreter", "container": {"type": "auto"}}],
                    [{"type": "image_generation"}],
                    [{"type": "computer_use_preview"}],
                    [{"type": "custom", "name": "x"}],
                    [{"type": "local_shell"}],
                    [{"type": "function"}],
                    [{"type": "function", "name": "look up"}],
                    [{"type": "function", "name": "x" * 65}],
                    [{"type": "function", "name": "x", "parameters": []}],
                    [_FUNCTION, _FUNCTION],
                    [mcp],
                    [{**mcp, "require_approval": "always"}],
                    [{**mcp, "allowed_tools": 7}],
                    [{**mcp, "server_url": "file:///etc/passwd"}],
                    [{**mcp, "server_url": "not a URL"}],
                ],
            }
        ),
        {
            "content: unknown type": content({"type": "hologram"}),
            "content: image without anything": content({"type": "input_image"}),
            "content: file without anything": content({"type": "input_file"}),
            "content: a refusal of the user": content({"type": "refusal", "refusal": "No."}),
            "content: an image of the system": _input(
                {"type": "message", "role": "system", "content": [{"type": "input_image", "image_url": "data:,"}]}
            ),
            "content: an image of the assistant": _input(
                {"type": "message", "role": "assistant", "content": [{"type": "input_image", "image_url": "data:,"}]}
            ),
            "content: not a URL": content({"type": "input_image", "image_url": "cat.png"}),
            "content: other scheme": content({"type": "input_image", "image_url": "s3://bucket/a.png"}),
            **{
                f"tool choice {n}": {"tools": _FUNCTIONS, "tool_choice": choice}
                for n, choice in enumerate(
                    [
                        "maybe",
                        7,
                        {},
                        {"type": "function"},
                        {"type": "function", "name": "missing"},
                        {"type": "allowed_tools", "tools": []},
                        {"type": "allowed_tools", "mode": "never", "tools": [_FUNCTION_CHOICE]},
                        {"type": "web_search"},
                        {"type": "custom", "name": "x"},
                    ]
                )
            },
            **{f"tool choice without tools: {choice}": {"tool_choice": choice} for choice in ("none", "required")},
            "two to go on from": {"previous_response_id": "resp_0", "conversation": "conv_0"},
        },
    )


# --- AG-UI -------------------------------------------------------------------------------------------------------

_RUN_USER = {"id": "u1", "role": "user", "content": QUESTION}
_RUN_CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"city":"Lyon"}'}}
_RUN_RESULT = {"id": "t1", "role": "tool", "toolCallId": "call_1", "content": "found"}


def _run(model: str, fields: Mapping[str, Any]) -> Ask:
    body = {"threadId": "thread", "runId": "run", "messages": [_RUN_USER], "tools": [], "context": [], "state": {}}
    more = {name: value for name, value in fields.items() if name != "query"}
    query = f"model={quote(model, safe='')}" + (f"&{fields['query']}" if "query" in fields else "&dialect=1.0")
    return Ask(f"/ag-ui?{query}", {**body, **more})


def _props(**options: Any) -> dict[str, Any]:
    return {"forwardedProps": {"pellucid": options}}


def _run_settings(address: Address) -> Settings:
    options: dict[str, list[Any]] = {
        "effort": list(EFFORTS),
        "view": list(VIEWS),
        "reasoning": ["on", "off"],
        "chunks": [True, False],
        "snapshot": [True, False],
        "dialect": ["1.0", "0.x", "thinking", "proposal"],
    }

    def conversation(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"messages": [{**message, "id": f"m{n}"} for n, message in enumerate(messages)], **more}

    def user(*parts: dict[str, Any]) -> dict[str, Any]:
        return conversation({"role": "user", "content": list(parts)})

    def part(kind: str, source: str, value: str, media_type: str | None = None, **more: Any) -> dict[str, Any]:
        typed = {} if media_type is None else {"mimeType": media_type}
        return {"type": kind, "source": {"type": source, "value": value, **typed, **more}}

    def binary(**fields: Any) -> dict[str, Any]:
        return {"type": "binary", **fields}

    call_message = {"role": "assistant", "content": "I look.", "toolCalls": [_RUN_CALL]}
    tool = FUNCTION | {"metadata": {"a": "b"}}
    answer = {"role": "assistant", "content": "Yes."}
    return join(
        {"nothing": {}},
        {
            f"option {name} = {json.dumps(value)}": _props(**{name: value})
            | ({"query": ""} if name == "dialect" else {})
            for name, values in options.items()
            for value in values
        },
        {
            f"query {name} = {value}": {"query": f"{name}={str(value).lower() if isinstance(value, bool) else value}"}
            for name, values in options.items()
            for value in values
        },
        {
            "query over option": _props(effort="low") | {"query": "effort=high"},
            "other props": {"forwardedProps": {"temperature": 0.5, "x": [1]}},
            "props that are no object": {"forwardedProps": "x"},
            "no dialect": {"query": ""},
            "parent run": {"parentRunId": "run-0"},
            "version": {"protocolVersion": "1.0", "query": ""},
            "state": {"state": {"a": [1, {"b": None}]}},
            "context": {
                "context": [{"description": "Where", "value": "Lyon"}, {"description": "When", "value": "now"}]
            },
            "tools": {"tools": [tool, {"name": "other", "description": "", "parameters": None}]},
            "tools, rich": {"tools": [{**FUNCTION, "parameters": RICH}]},
            "tools and effort": {"tools": [FUNCTION], **_props(effort="high")},
            "answers of an interrupt": {"resume": [{"interruptId": "i-1", "status": "resolved", "payload": {"a": 1}}]},
            "answers of two interrupts": {
                "resume": [
                    {"interruptId": "i-1", "status": "cancelled"},
                    {"interruptId": "i-2", "status": "resolved", "payload": "yes"},
                ]
            },
            "unknown fields": {"mood": "good", "temperature": 0.5},
            "system": conversation({"role": "system", "content": "Be brief."}, _RUN_USER),
            "developer": conversation({"role": "developer", "content": "Be brief."}, _RUN_USER),
            "system, later": conversation(_RUN_USER, answer, {"role": "system", "content": "Be brief."}, _RUN_USER),
            "names": conversation({"role": "system", "content": "x", "name": "s"}, {**_RUN_USER, "name": "Ada"}),
            "user, blocks": user({"type": "text", "text": "One."}, {"type": "text", "text": "Two."}),
            "user, ids in blocks": user({"type": "text", "text": "One.", "id": "b", "metadata": {"a": 1}}),
            "image, data": user(part("image", "data", PNG, "image/png")),
            "image, URL": user({"type": "text", "text": "What?"}, part("image", "url", address("png"))),
            "image, URL with a type": user(part("image", "url", address("png"), "image/png")),
            "image, file": user(part("image", "file", "file-1", provider="openai")),
            "audio, data": user(part("audio", "data", WAV, "audio/wav")),
            "audio, URL": user(part("audio", "url", address("wav"))),
            "video, data": user(part("video", "data", MP4, "video/mp4")),
            "video, URL": user(part("video", "url", address("mp4"))),
            "document, data": user(part("document", "data", PDF, "application/pdf")),
            "document, URL": user(part("document", "url", address("pdf"))),
            "document, file": user(part("document", "file", "file-1")),
            "binary, data": user(binary(mimeType="image/png", data=PNG)),
            "binary, URL": user(binary(mimeType="application/pdf", url=address("pdf"), filename="a.pdf")),
            "binary, id": user(binary(mimeType="application/pdf", id="file-1")),
            "binary, audio": user(binary(mimeType="audio/wav", data=WAV)),
            "prefill": conversation(_RUN_USER, answer),
            "two turns": conversation(_RUN_USER, answer, _RUN_USER),
            "reasoning": conversation(_RUN_USER, {"role": "reasoning", "content": "I look."}, answer, _RUN_USER),
            "reasoning, a list": conversation(
                _RUN_USER, {"role": "reasoning", "content": ["I ", "look."]}, answer, _RUN_USER
            ),
            "reasoning, last": conversation(_RUN_USER, {"role": "reasoning", "content": "I look."}),
            "activity": conversation(
                _RUN_USER, {"role": "activity", "activityType": "PLAN", "content": {"a": 1}}, answer, _RUN_USER
            ),
            "result": conversation(_RUN_USER, call_message, _RUN_RESULT, tools=[FUNCTION]),
            "result, error": conversation(
                _RUN_USER, call_message, {**_RUN_RESULT, "content": "", "error": "It broke."}
            ),
            "result, error with content": conversation(_RUN_USER, call_message, {**_RUN_RESULT, "error": "It broke."}),
            "result, blocks": conversation(
                _RUN_USER,
                call_message,
                {**_RUN_RESULT, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            ),
            "result, image": conversation(
                _RUN_USER, call_message, {**_RUN_RESULT, "content": [part("image", "data", PNG, "image/png")]}
            ),
            "call, no result": conversation(_RUN_USER, call_message, _RUN_USER),
            "call with a thought": conversation(
                _RUN_USER,
                {"role": "reasoning", "content": "I look."},
                {"role": "assistant", "toolCalls": [_RUN_CALL]},
                _RUN_RESULT,
                tools=[FUNCTION],
            ),
            "snapshot of a history": conversation(
                {"role": "system", "content": "Be brief."}, _RUN_USER, answer, _RUN_USER, **_props(snapshot=True)
            ),
        },
    )


def _wrong_runs() -> Settings:
    def conversation(*messages: Any) -> dict[str, Any]:
        return {"messages": list(messages)}

    return join(
        of_values(
            {
                "threadId": [None, 7],
                "runId": [None, 7],
                "messages": [
                    None,
                    "x",
                    [],
                    [7],
                    [{"role": "user", "content": "x"}],
                    [{"id": "u", "role": "user"}],
                    [{"id": "u", "role": "user", "content": 7}],
                    [{"id": "u", "role": "user", "content": [{"type": "hologram"}]}],
                    [{"id": "u", "role": "user", "content": [{"type": "image"}]}],
                    [{"id": "u", "role": "user", "content": [{"type": "binary", "mimeType": "image/png"}]}],
                    [{"id": "a", "role": "activity", "activityType": "x", "content": {}}],
                ],
                "tools": [
                    "x",
                    [{"name": "x"}],
                    [FUNCTION, FUNCTION],
                    [{**FUNCTION, "parameters": []}],
                    [{**FUNCTION, "name": "look up"}],
                ],
                "context": ["x", [{"value": "y"}]],
                "resume": ["x", [{"interruptId": "i", "status": "maybe"}]],
                "protocolVersion": ["9.9", 7],
            }
        ),
        {
            f"option {name} = {json.dumps(value)}": _props(**{name: value})
            for name, value in {
                "effort": "enormous",
                "view": "naked",
                "reasoning": True,
                "store": "yes",
                "dialect": "2.0",
                "chunks": "true",
                "snapshot": 1,
                "mood": "good",
                "model": 7,
            }.items()
        },
        {
            f"query {query}": {"query": query}
            for query in (
                *("effort=enormous", "effort=", "view=naked", "chunks=maybe", "snapshot=null", "dialect=2.0"),
                *("reasoning=maybe", "unknown=x"),
            )
        },
        {
            "options that are no object": {"forwardedProps": {"pellucid": 7}},
            "result without a call": conversation(_RUN_USER, _RUN_RESULT),
            "result twice": conversation(
                _RUN_USER, {"id": "a", "role": "assistant", "toolCalls": [_RUN_CALL]}, _RUN_RESULT, _RUN_RESULT
            ),
            "two messages of one id": conversation(_RUN_USER, _RUN_USER),
        },
    )


# --- the AI SDK --------------------------------------------------------------------------------------------------

_PAGE_USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}


def _page(model: str, fields: Mapping[str, Any]) -> Ask:
    body = {"id": "page", "messages": [_PAGE_USER], "trigger": "submit-message", "model": model}
    return Ask("/api/chat?protocol=ai-sdk", {**body, **fields})


def _page_settings(address: Address) -> Settings:
    def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"id": f"{role}-1", "role": role, "parts": list(parts)}

    def user(*parts: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [message("user", *parts)]}

    def after(*parts: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [_PAGE_USER, message("assistant", {"type": "step-start"}, *parts), _PAGE_USER]}

    def file(media_type: str, url: str, **more: Any) -> dict[str, Any]:
        return {"type": "file", "mediaType": media_type, "url": url, **more}

    def text(words: str, **more: Any) -> dict[str, Any]:
        return {"type": "text", "text": words, **more}

    def tool(state: str, **more: Any) -> dict[str, Any]:
        return {"type": "tool-look_up", "toolCallId": "call_1", "state": state, "input": {"city": "Lyon"}, **more}

    thought = {"type": "reasoning", "text": "I look.", "state": "done"}
    return join(
        {"nothing": {}},
        of_values({"effort": ["off", *EFFORTS], "view": VIEWS, "trigger": ["regenerate-message"]}),
        {
            "effort and a view": {"effort": "high", "view": "summary"},
            "unknown fields": {"mood": "good", "temperature": 0.5, "tools": [FUNCTION]},
            "message id": {"messageId": "x"},
            "system": {"messages": [message("system", text("Be brief."), text(" Please.")), _PAGE_USER]},
            "system, empty": {"messages": [message("system"), _PAGE_USER]},
            "user, two texts": user(text("One."), text("Two.")),
            "user, other parts": user({"type": "step-start"}, {"type": "data-x", "data": 1}, text("x")),
            "file, image as data": user(text("What?"), file("image/png", _data("image/png", PNG))),
            "file, image by URL": user(file("image/png", address("png"))),
            "file, document as data": user(file("application/pdf", _data("application/pdf", PDF), filename="a.pdf")),
            "file, document by URL": user(file("application/pdf", address("pdf"), filename="a.pdf")),
            "file, audio": user(file("audio/wav", _data("audio/wav", WAV))),
            "file, video": user(file("video/mp4", _data("video/mp4", MP4))),
            "file, text": user(file("text/plain", _data("text/plain", "SGk="), filename="a.txt")),
            "file, type of its URL": user(file("image/jpeg", _data("image/png", PNG))),
            "answer": after(text("Yes.", state="done")),
            "answer, cut": after(text("Ye", state="streaming")),
            "answer, thought": after(thought, text("Yes.")),
            "answer, thought alone": after(thought),
            "answer, file": after(text("See:"), file("image/png", _data("image/png", PNG))),
            "answer, sources": after({"type": "source-url", "sourceId": "s", "url": "https://x.example"}, text("Yes.")),
            "answer, two steps": after(text("I look."), {"type": "step-start"}, text("Yes.")),
            "answer last": {"messages": [_PAGE_USER, message("assistant", text("It is"))]},
            "call": after(tool("output-available", output={"found": [1]}), text("Yes.")),
            "call, text": after(tool("output-available", output="found"), text("Yes.")),
            "call, null": after(tool("output-available", output=None), text("Yes.")),
            "call, a list": after(tool("output-available", output=[1, "a"]), text("Yes.")),
            "call, preliminary": after(tool("output-available", output="f", preliminary=True), text("Yes.")),
            "call, error": after(tool("output-error", errorText="It broke."), text("Yes.")),
            "call, error in the input": after(tool("output-error", rawInput='{"ci', input=None, errorText="No.")),
            "call, denied": after(tool("output-denied", approval={"id": "a", "approved": False, "reason": "No."})),
            "call, approved": after(tool("approval-responded", approval={"id": "a", "approved": True})),
            "call, no output": after(tool("input-available"), text("Yes.")),
            "call, cut": after(tool("input-streaming"), text("Yes.")),
            "call, dynamic": after({**tool("output-available", output="x"), "type": "dynamic-tool", "toolName": "d"}),
            "call, by the provider": after(tool("output-available", output="x", providerExecuted=True), text("Yes.")),
            "call with a thought": after(thought, tool("output-available", output="found")),
        },
    )


def _wrong_pages() -> Settings:
    def parts(*entries: Any) -> dict[str, Any]:
        return {"messages": [{"id": "u", "role": "user", "parts": list(entries)}]}

    return join(
        of_values(
            {
                "effort": ["enormous", 7],
                "view": ["naked"],
                "model": [None, 7, "x"],
                "messages": [None, "x", [], [7], [{"role": "king", "parts": []}], [{"role": "user"}]],
            }
        ),
        {
            "part: unknown type": parts({"type": "hologram"}),
            "part: no type": parts({"text": "x"}),
            "part: no text": parts({"type": "text"}),
            "part: file without a URL": parts({"type": "file", "mediaType": "image/png"}),
            "part: file of another scheme": parts({"type": "file", "mediaType": "image/png", "url": "blob:x"}),
            "part: file not in base64": parts({"type": "file", "mediaType": "image/png", "url": "data:image/png,x"}),
            "part: tool without a name": {
                "messages": [
                    _PAGE_USER,
                    {
                        "role": "assistant",
                        "parts": [{"type": "dynamic-tool", "toolCallId": "c", "state": "input-available"}],
                    },
                ]
            },
        },
    )


# --- the chat ----------------------------------------------------------------------------------------------------


def _chat(model: str, fields: Mapping[str, Any]) -> Ask:
    return Ask("/api/chat", {"text": QUESTION, "model": model, **fields})


def _chat_settings(address: Address) -> Settings:
    efforts = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
    return join(
        {"nothing": {}, "effort and a view": {"effort": "high", "view": "summary"}},
        of_values({"effort": efforts, "view": VIEWS, "text": [" x\n", "<think>x</think>", "日本 🌊"]}),
    )


def _wrong_chats() -> Settings:
    return of_values(
        {
            "effort": ["none", "enormous", 7],
            "view": ["naked"],
            "text": [None, "", "  ", 7],
            "model": ["", 7],
            "conversation_id": ["", "chat_0"],
            "replaces": ["", "evt_0", "x"],
            "follows": ["", "evt_0"],
            "temperature": [0.5],
        }
    )


PROTOCOLS = [
    Protocol("chat_completions", _completion, _completion_settings, _wrong_completions),
    Protocol("openresponses", _response, _response_settings, _wrong_responses),
    Protocol("agui", _run, _run_settings, _wrong_runs),
    Protocol("ai_sdk", _page, _page_settings, _wrong_pages),
    Protocol("chat", _chat, _chat_settings, _wrong_chats),
]
