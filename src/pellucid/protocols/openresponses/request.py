"""A request's bytes, checked and turned into a `ModelCall`; and the response resource that echoes it.

Everything that is wrong is said with its path. What is valid but not yet done here (`previous_response_id`,
`background`, …) is refused with a clear error. What asks for nothing that could be missed (`store`, `truncation:
auto`, `include`) is accepted, and the echo says what holds.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec
import msgspec.inspect

from ...errors import RequestError
from ...parts import (
    Audio,
    File,
    Image,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RefusalPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    Video,
)
from ...settings import ModelCall, ModelSettings, OutputFormat, ToolChoice, ToolDefinition
from . import types as t


class Request(NamedTuple):
    """A request as it was understood."""

    model: str | None
    """The model's public name; None for the server's default."""
    call: ModelCall
    """What to ask the model; its `model` is still the public name."""
    stream: bool
    obfuscate: bool
    body: t.CreateResponse

    def response(self, id: str, model: str, created_at: int) -> t.Response:
        """The resource as it is before anything has come: the request, echoed with every default filled in."""
        body = self.body
        reasoning = body.reasoning
        return t.Response(
            id=id,
            created_at=created_at,
            model=model,
            instructions=body.instructions,
            tools=[
                t.FunctionTool(name=x.name, description=x.description, parameters=x.parameters, strict=x.strict)
                for x in body.tools or []
            ],
            tool_choice=_choice_echo(body.tool_choice),
            truncation=body.truncation or "disabled",
            parallel_tool_calls=_or(body.parallel_tool_calls, True),
            text=_text_echo(body.text),
            top_p=_or(body.top_p, 1.0),
            presence_penalty=_or(body.presence_penalty, 0.0),
            frequency_penalty=_or(body.frequency_penalty, 0.0),
            top_logprobs=_or(body.top_logprobs, 0),
            temperature=_or(body.temperature, 1.0),
            reasoning=t.ReasoningConfig(
                _EFFORT_ECHO.get(reasoning.effort, reasoning.effort) if reasoning.effort else None,
                reasoning.summary or reasoning.generate_summary,
            )
            if reasoning is not None
            else None,
            max_output_tokens=body.max_output_tokens,
            max_tool_calls=body.max_tool_calls,
            service_tier=body.service_tier or "default",
            metadata=body.metadata or {},
            safety_identifier=body.safety_identifier,
            prompt_cache_key=body.prompt_cache_key,
        )


def parse_request(data: bytes) -> Request:
    """Raises `RequestError` naming the field and what would be right."""
    body = _decode(data)
    _refuse_what_is_not_here(body)
    tools, choice = _tools(body)
    call = ModelCall(
        model=body.model or "",
        messages=_messages(body),
        settings=_settings(body),
        tools=tools,
        tool_choice=choice,
        output=_output(body.text),
        stream=True,
    )
    options = body.stream_options
    return Request(
        model=body.model,
        call=call,
        stream=bool(body.stream),
        obfuscate=options.include_obfuscation if options is not None else False,
        body=body,
    )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


# --- decoding and its errors -------------------------------------------------------------------------------------

MAX_DEPTH = 100
"""How deeply a JSON Schema in a request may be nested."""

_PATH = re.compile(r" - at `(?:key` in `)?\$\.?(.*?)`$")
_STEP = re.compile(r"\w+|\[.*?\]")


def _decode(data: bytes) -> t.CreateResponse:
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise RequestError("the body must be a JSON object", code="invalid_type")
    if isinstance(raw.get("input"), list):
        raw["input"] = [_with_type(item) for item in raw["input"]]
    _known_tool_types(raw.get("tools"))
    try:
        return msgspec.convert(raw, t.CreateResponse)
    except msgspec.ValidationError as error:
        text = str(error)
        path = _PATH.search(text)
        param = path.group(1) if path else None
        where = f"{param}: " if param else ""
        what = _PATH.sub("", text)
        right = f"; it must be one of {', '.join(map(repr, _choices(param)))}" if what.startswith("Invalid") else ""
        raise RequestError(f"{where}{what}{right}", code="invalid_value", param=param) from None


def _choices(path: str | None) -> list[str]:
    """The words that may stand at `path`, where only certain ones may: what the types say."""
    types: list[msgspec.inspect.Type] = [msgspec.inspect.type_info(t.CreateResponse)]
    for step in _STEP.findall(path or ""):
        types = [inner for one in types for inner in _inner(one, step)]
    return [str(word) for one in types if isinstance(one, msgspec.inspect.LiteralType) for word in one.values]


def _inner(outer: msgspec.inspect.Type, step: str) -> list[msgspec.inspect.Type]:
    """What is at `[…]` or at a field of that name, in a type that may be one of several."""
    match outer:
        case msgspec.inspect.ListType() if step.startswith("["):
            found = [outer.item_type]
        case msgspec.inspect.DictType() if step.startswith("["):
            found = [outer.value_type]
        case msgspec.inspect.StructType() if step == outer.tag_field:
            found = [msgspec.inspect.LiteralType((outer.tag,))]
        case msgspec.inspect.StructType():
            found = [field.type for field in outer.fields if field.encode_name == step]
        case _:
            found = []
    return [one for inner in found for one in _alternatives(inner)]


def _alternatives(one: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    if isinstance(one, msgspec.inspect.UnionType):
        return [inner for alternative in one.types for inner in _alternatives(alternative)]
    return _alternatives(one.type) if isinstance(one, msgspec.inspect.Metadata) else [one]


def _with_type(item: Any) -> Any:
    """An item may leave its type out: a message is known by its role, a reference by its id."""
    if not isinstance(item, dict) or item.get("type") is not None:
        return item
    kind = "message" if "role" in item else "item_reference" if "id" in item else None
    return {**item, "type": kind} if kind else {name: item[name] for name in item if name != "type"}


def _known_tool_types(tools: Any) -> None:
    if not isinstance(tools, list):
        return
    for index, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind != "function":
            raise RequestError(
                f"tools[{index}].type: {kind!r} is not offered here; only 'function' tools are",
                kind="unsupported",
                code="unsupported_tool",
                param=f"tools[{index}].type",
            )


def _refuse_what_is_not_here(body: t.CreateResponse) -> None:
    whole = "send the whole conversation in `input` instead"
    for name, wanted, instead in (
        ("previous_response_id", body.previous_response_id is not None, whole),
        ("conversation", body.conversation is not None, whole),
        ("background", bool(body.background), "ask for a stream, or wait for the answer"),
    ):
        if wanted:
            raise RequestError(
                f"{name}: this server keeps no responses yet; {instead}",
                kind="unsupported",
                code="unsupported_parameter",
                param=name,
            )
    if body.input is None or body.input == []:
        raise RequestError("input: a text or a list of items is required", code="missing", param="input")


# --- messages ----------------------------------------------------------------------------------------------------


def _messages(body: t.CreateResponse) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    if body.instructions:
        messages.append(ModelRequest([SystemPromptPart(body.instructions)]))
    if isinstance(body.input, str):
        _say(messages, UserPromptPart(body.input))
        return messages
    names: dict[str, str] = {}
    for index, item in enumerate(body.input or []):
        at = f"input[{index}]"
        match item:
            case t.MessageParam(role="assistant"):
                for part in _assistant_parts(item, at):
                    _answer(messages, part)
            case t.MessageParam(role="user"):
                content = item.content if isinstance(item.content, str) else _contents(item.content, at)
                _say(messages, UserPromptPart(content))
            case t.MessageParam():
                text = _only_text(item.content, at)
                _say(messages, SystemPromptPart(text, "developer" if item.role == "developer" else "system"))
            case t.ReasoningParam():
                for thought in _reasoning_parts(item, at):
                    _answer(messages, thought)
            case t.FunctionCallParam():
                names[item.call_id] = item.name
                whole = item.status != "incomplete"
                _answer(messages, ToolCallPart(item.name, item.arguments, item.call_id, complete=whole))
            case t.FunctionCallOutputParam():
                if item.call_id not in names:
                    _wrong(at, f"no function_call with call_id {item.call_id!r} comes before this output", "call_id")
                _say(messages, ToolReturnPart(names[item.call_id], _tool_output(item, at), item.call_id))
            case t.ItemReference():
                _not_here(at, "item_reference")
            case t.CompactionParam():
                _not_here(at, "compaction")
    return messages


def _say(messages: list[ModelMessage], part: ModelRequestPart) -> None:
    last = messages[-1] if messages else None
    if isinstance(last, ModelRequest):
        last.parts.append(part)
    else:
        messages.append(ModelRequest([part]))


def _answer(messages: list[ModelMessage], part: ModelResponsePart) -> None:
    last = messages[-1] if messages else None
    if isinstance(last, ModelResponse):
        last.parts.append(part)
    else:
        messages.append(ModelResponse([part]))


def _assistant_parts(item: t.MessageParam, at: str) -> list[ModelResponsePart]:
    whole = item.status != "incomplete"
    if isinstance(item.content, str):
        return [TextPart(item.content, complete=whole)]
    parts: list[ModelResponsePart] = []
    for index, content in enumerate(item.content):
        match content:
            case t.Refusal():
                parts.append(RefusalPart(content.refusal))
            case t.OutputTextParam() | t.PlainTextParam() | t.InputText():
                parts.append(TextPart(content.text, complete=whole))
            case _:
                _wrong(f"{at}.content[{index}]", "an assistant message holds output_text and refusal only", "type")
    return parts


def _reasoning_parts(item: t.ReasoningParam, at: str) -> list[ModelResponsePart]:
    """The thought itself where the client gave it back, else its summaries."""
    if item.encrypted_content:
        _wrong(
            at,
            "this value was not sealed here and cannot be opened; leave encrypted_content out",
            "encrypted_content",
            "invalid_encrypted_content",
        )
    whole = item.status != "incomplete"
    if item.content:
        return [ThinkingPart(c.text, complete=whole) for c in item.content if c.text]
    return [ThinkingPart(s.text, form="summary", complete=whole) for s in item.summary if s.text]


def _contents(contents: list[t.InputContent], at: str) -> list[UserContent]:
    return [_content(content, f"{at}.content[{index}]") for index, content in enumerate(contents)]


def _content(content: t.InputContent, at: str) -> UserContent:
    match content:
        case t.InputText() | t.OutputTextParam() | t.PlainTextParam():
            return Text(content.text)
        case t.InputImage(image_url=None, file_id=None):
            _wrong(at, "an input_image needs an image_url or a file_id", "image_url")
        case t.InputImage():
            return Image(url=content.image_url, file_id=content.file_id, detail=content.detail)
        case t.InputFile(file_data=None, file_url=None, file_id=None):
            _wrong(at, "an input_file needs file_data, file_url or a file_id", "file_data")
        case t.InputFile():
            data, media_type = content.file_data, None
            if data is not None and data.startswith("data:"):
                head, _, data = data.partition(",")
                media_type = head[5:].partition(";")[0] or None
            return File(
                url=content.file_url,
                data=data,
                media_type=media_type,
                file_id=content.file_id,
                filename=content.filename,
            )
        case t.InputVideo():
            return Video(url=content.video_url)
        case t.InputAudio():
            return Audio(data=content.input_audio.data, media_type=f"audio/{content.input_audio.format}")
        case t.Refusal():
            _wrong(at, "a refusal is something an assistant says", "type")


def _only_text(content: str | list[t.InputContent], at: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for index, entry in enumerate(content):
        if not isinstance(entry, t.InputText | t.PlainTextParam | t.OutputTextParam):
            _wrong(f"{at}.content[{index}]", "only text can stand here", "type")
        texts.append(entry.text)
    return "\n".join(texts)


def _tool_output(item: t.FunctionCallOutputParam, at: str) -> str:
    return item.output if isinstance(item.output, str) else _only_text(item.output, f"{at}.output")


def _wrong(at: str, message: str, field: str, code: str = "invalid_value") -> NoReturn:
    raise RequestError(f"{at}: {message}", code=code, param=f"{at}.{field}")


def _not_here(at: str, kind: str) -> NoReturn:
    raise RequestError(
        f"{at}: this server keeps no responses yet, so an item of type {kind!r} means nothing to it",
        kind="unsupported",
        code="unsupported_item",
        param=f"{at}.type",
    )


# --- settings, tools, output -------------------------------------------------------------------------------------


def _settings(body: t.CreateResponse) -> ModelSettings:
    asked: dict[str, Any] = {
        "max_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "parallel_tool_calls": body.parallel_tool_calls if body.tools else None,
        "service_tier": body.service_tier,
        "user": body.safety_identifier or body.user,
        "cache_key": body.prompt_cache_key,
        "verbosity": body.text.verbosity if body.text is not None else None,
    }
    if body.reasoning is not None:
        effort = body.reasoning.effort
        asked["thinking"] = False if effort == "none" else effort
        asked["thinking_summary"] = body.reasoning.summary or body.reasoning.generate_summary
    if body.top_logprobs or "message.output_text.logprobs" in (body.include or []):
        asked["logprobs"] = True
        asked["top_logprobs"] = body.top_logprobs or 0
    settings = {name: value for name, value in asked.items() if value is not None}
    return msgspec.convert(settings, ModelSettings)


def _tools(body: t.CreateResponse) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """The functions that may be called. A list of allowed tools is enforced by offering no others."""
    for index, tool in enumerate(body.tools or []):
        _not_too_deep(tool.parameters, f"tools[{index}].parameters")
    offered = tuple(
        ToolDefinition(tool.name, tool.parameters or {}, tool.description, tool.strict) for tool in body.tools or []
    )
    names = {tool.name for tool in offered}
    choice = body.tool_choice
    match choice:
        case None | "auto":
            return offered, ToolChoice()
        case "none" | "required":
            if choice == "required" and not offered:
                raise _no_choice("'required', but there are no tools")
            return offered, ToolChoice(choice)
        case {"type": "function", "name": str(name)}:
            _offered(name, names)
            return offered, ToolChoice("required", (name,))
        case {"type": "allowed_tools", "tools": [_, *_] as allowed}:
            mode = next((mode for mode in _MODES if mode == _or(choice.get("mode"), "auto")), None)
            if mode is None:
                raise _no_choice("must be 'auto', 'none' or 'required'", ".mode")
            chosen = [_offered(entry.get("name") if isinstance(entry, dict) else None, names) for entry in allowed]
            return tuple(tool for tool in offered if tool.name in chosen), ToolChoice(mode)
        case _:
            raise _no_choice(
                "must be 'auto', 'none', 'required', {type: function, name} or "
                "{type: allowed_tools, mode, tools} with at least one tool"
            )


_MODES: tuple[Literal["auto", "none", "required"], ...] = ("auto", "none", "required")


def _no_choice(what: str, field: str = "") -> RequestError:
    return RequestError(f"tool_choice{field}: {what}", code="invalid_value", param=f"tool_choice{field}")


def _choice_echo(choice: Any) -> Any:
    """The choice in the response's form, which leaves nothing out. It was checked before."""
    match choice:
        case {"type": "function", "name": name}:
            return {"type": "function", "name": name}
        case {"type": "allowed_tools", "tools": tools}:
            names = [{"type": "function", "name": tool["name"]} for tool in tools]
            return {"type": "allowed_tools", "tools": names, "mode": _or(choice.get("mode"), "auto")}
        case _:
            return _or(choice, "auto")


def _offered(name: Any, names: set[str]) -> str:
    if not isinstance(name, str) or name not in names:
        there = ", ".join(sorted(names)) or "none"
        raise _no_choice(f"there is no tool named {name!r} in tools (there are: {there})")
    return name


def _not_too_deep(schema: dict[str, Any] | None, at: str) -> None:
    """What is nested too deeply could be read here and yet not be written again."""
    level: list[Any] = [schema]
    for _ in range(MAX_DEPTH):
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [value for values in inner if values for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise RequestError(f"{at}: nested deeper than {MAX_DEPTH} levels", code="invalid_value", param=at)


_EFFORT_ECHO = {"minimal": "low", "max": "xhigh"}
"""Efforts that are understood, but have no name in the specification: the nearest one stands in the response."""


def _output(text: t.TextParam | None) -> OutputFormat:
    match text.format if text is not None else None:
        case t.FormatJsonObject():
            return OutputFormat("json_object")
        case t.FormatJsonSchema() as form:
            _not_too_deep(form.schema, "text.format.schema")
            return OutputFormat("json_schema", form.name, form.schema, form.description, form.strict)
        case _:
            return OutputFormat()


def _text_echo(text: t.TextParam | None) -> dict[str, Any]:
    echo: dict[str, Any] = {"format": {"type": "text"}}
    match text.format if text is not None else None:
        case t.FormatJsonObject():
            echo["format"] = {"type": "json_object"}
        case t.FormatJsonSchema() as form:
            # The published schema allows nothing but null for the schema in a response.
            echo["format"] = {
                "type": "json_schema",
                "name": form.name,
                "description": form.description,
                "schema": None,
                "strict": bool(form.strict),
            }
    if text is not None and text.verbosity is not None:
        echo["verbosity"] = text.verbosity
    return echo
