"""The messages of a `useChat` as parts.

A UI message is all that came of one question: steps, and in each what the model said and what came of its calls. Here a
step is a response again, and the results of its calls are what is said to the model next.

* Reasoning, text, calls and files stand in their order. What came sealed with one stands before it, and takes its place
  once opened (see `sealing.attach`); a provider's own tool that came sealed is told by its seal alone.
* A call with its output, its error or a refusal of leave is a call and its result, whoever ran it: tools that nobody
  here knows are history like others. A call that nobody answered goes to no model (`providers.history`); neither does
  a thought that was broken off, nor one that led to nothing.
* A message that was put into a running answer (`steering-message`) is the user's, in its place.
* Sources, steps and data parts are for pages. So is whatever an assistant's message may hold that is not known here;
  what a user says and cannot be read is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn, TypeVar

import msgspec
from msgspec import UNSET

from ...conversation import join_messages
from ...errors import RequestError
from ...parts import (
    Audio,
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    File,
    FilePart,
    Image,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RefusalPart,
    SealedPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    Video,
    json_text,
)
from ...unicode import truncate
from ..decoding import convert
from .chunks import OURS, Mark, mark_of

DATA = f"data-{OURS}"
"""The part that holds what is sealed of something that this protocol does not show."""


class UIMessage(msgspec.Struct):
    role: Literal["system", "user", "assistant"]
    parts: list[dict[str, Any]]
    id: str | None = None


# --- parts, as far as they are read ------------------------------------------------------------------------------


class TextUI(msgspec.Struct, rename="camel"):
    text: str
    state: str | None = None
    provider_metadata: Any = None


class FileUI(msgspec.Struct, rename="camel"):
    media_type: str
    url: str
    filename: str | None = None
    provider_metadata: Any = None


class Approval(msgspec.Struct):
    approved: bool | None = None
    reason: str | None = None


class ToolUI(msgspec.Struct, rename="camel"):
    tool_call_id: str
    state: str
    tool_name: str | None = None
    input: Any = None
    raw_input: Any = None
    output: Any = UNSET
    error_text: str | None = None
    provider_executed: bool | None = None
    preliminary: bool | None = None
    approval: Approval | None = None
    call_provider_metadata: Any = None
    result_provider_metadata: Any = None


class SteeringUI(msgspec.Struct):
    parts: list[dict[str, Any]]


T = TypeVar("T")


def _read(raw: dict[str, Any], into: type[T], at: str) -> T:
    """Raises `RequestError` with the place."""
    try:
        return convert(raw, into)
    except RequestError as error:
        param, message = error.info.param, error.info.message
        between = "." if param else ": "
        raise RequestError(
            f"{at}{between}{message}", code=error.info.code, param=f"{at}.{param}" if param else at
        ) from None


# --- the conversation --------------------------------------------------------------------------------------------


def history_of(said: Sequence[UIMessage]) -> list[ModelMessage]:
    """Raises `RequestError` naming the place."""
    messages: list[ModelMessage] = []
    for index, message in enumerate(said):
        at = f"messages[{index}].parts"
        match message.role:
            case "system":
                text = "".join(_read(part, TextUI, f"{at}[{n}]").text for n, part in _of_type(message, "text"))
                messages += [ModelRequest([SystemPromptPart(text)])] if text else []
            case "user":
                messages += _asked(message.parts, at)
            case "assistant":
                messages += _Answer(message.parts, at).messages
    return join_messages(messages)


def _of_type(message: UIMessage, wanted: str) -> list[tuple[int, dict[str, Any]]]:
    return [(number, part) for number, part in enumerate(message.parts) if part.get("type") == wanted]


def sealed_at(said: Sequence[UIMessage], token: str) -> str:
    """Where in the messages this token stands."""
    for index, message in enumerate(said):
        for number, part in enumerate(message.parts):
            for name in ("providerMetadata", "callProviderMetadata", "resultProviderMetadata"):
                if mark_of(part.get(name)).sealed == token:
                    return f"messages[{index}].parts[{number}].{name}.{OURS}.sealed"
            if part.get("type") == DATA and Mark(part.get("data")).sealed == token:
                return f"messages[{index}].parts[{number}].data.sealed"
    return "messages"


# --- what the user says ------------------------------------------------------------------------------------------


def _asked(parts: list[dict[str, Any]], at: str) -> list[ModelMessage]:
    contents: list[UserContent] = []
    for number, part in enumerate(parts):
        place, kind = f"{at}[{number}]", str(part.get("type"))
        if kind == "text":
            contents.append(Text(_read(part, TextUI, place).text))
        elif kind == "file":
            contents.append(_file(_read(part, FileUI, place), place))
        elif not kind.startswith(("data-", "source-", "step-")):
            _wrong(f"{place}.type", f"a user's message has text and files; {truncate(kind)!r} cannot be read here")
    if not contents:
        return []
    words = [content.text for content in contents if isinstance(content, Text)]
    content = "\n".join(words) if len(words) == len(contents) else contents
    return [ModelRequest([UserPromptPart(content)])]


_MEDIA: dict[str, type[Image | Audio | Video]] = {"image": Image, "audio": Audio, "video": Video}


def _file(file: FileUI, at: str) -> UserContent:
    data, media_type = _data_of(file.url)
    given: dict[str, Any]
    if data is not None:
        given = {"data": data, "media_type": media_type or file.media_type}
    elif file.url.startswith(("https://", "http://")):
        given = {"url": file.url, "media_type": file.media_type}
    else:
        _wrong(f"{at}.url", "must be a data: URL in base64, or an http(s) URL")
    made = _MEDIA.get(file.media_type.partition("/")[0])
    return made(**given) if made is not None else File(**given, filename=file.filename)


def _data_of(url: str) -> tuple[str | None, str | None]:
    """What a data URL holds in base64, and of which type it says it is."""
    head, comma, data = url.partition(",")
    if not (comma and head[:5].lower() == "data:" and head.lower().endswith(";base64")):
        return None, None
    return data, head[5:].partition(";")[0] or None


# --- what the assistant said -------------------------------------------------------------------------------------


class _Answer:
    """One message: its steps as responses and results."""

    def __init__(self, parts: list[dict[str, Any]], at: str) -> None:
        self.messages: list[ModelMessage] = []
        self._said: list[ModelResponsePart] = []
        self._results: list[ModelRequestPart] = []
        self._carried = {mark.item for part in parts if part.get("type") == DATA and (mark := Mark(part.get("data")))}
        """The items that have a part for their seal alone."""
        for number, part in enumerate(parts):
            self._add(part, f"{at}[{number}]")
        self._end_step()

    def _add(self, raw: dict[str, Any], at: str) -> None:
        kind = raw.get("type")
        if not isinstance(kind, str):
            _wrong(f"{at}.type", "a part says of what type it is")
        if kind == "step-start":
            self._end_step()
        elif kind == "text":
            self._text(_read(raw, TextUI, at))
        elif kind == "reasoning":
            self._thought(_read(raw, TextUI, at))
        elif kind == "file":
            self._file(_read(raw, FileUI, at))
        elif kind == "dynamic-tool":
            self._tool(_read(raw, ToolUI, at), raw.get("toolName"), at)
        elif kind.startswith("tool-"):
            self._tool(_read(raw, ToolUI, at), kind.removeprefix("tool-"), at)
        elif kind == DATA:
            self._seal(Mark(raw.get("data")))
        elif kind == "steering-message":
            self._end_step()
            self.messages += _asked(_read(raw, SteeringUI, at).parts, f"{at}.parts")

    def _end_step(self) -> None:
        said, self._said = _without_loose_ends(self._said), []
        results, self._results = self._results, []
        if said:
            self.messages.append(ModelResponse(said))
        if results:
            self.messages.append(ModelRequest(results))

    def _seal(self, mark: Mark) -> bool:
        if mark.sealed is not None:
            self._said.append(SealedPart(mark.sealed, mark.item))
        return mark.sealed is not None

    def _text(self, part: TextUI) -> None:
        mark = mark_of(part.provider_metadata)
        self._seal(mark)
        whole = mark.complete and part.state != "streaming"
        if part.text and mark.refusal:
            self._said.append(RefusalPart(part.text, complete=whole))
        elif part.text:
            self._said.append(TextPart(part.text, complete=whole, item_id=mark.item))

    def _thought(self, part: TextUI) -> None:
        mark = mark_of(part.provider_metadata)
        self._seal(mark)
        whole = mark.complete and part.state != "streaming"
        if part.text:
            self._said.append(ThinkingPart(part.text, form=mark.form, complete=whole, item_id=mark.item))

    def _file(self, part: FileUI) -> None:
        if not self._seal(mark_of(part.provider_metadata)):
            data, media_type = _data_of(part.url)
            if data is not None:
                self._said.append(FilePart(data, media_type or part.media_type))

    def _tool(self, part: ToolUI, name: Any, at: str) -> None:
        if not isinstance(name, str) or not name:
            _wrong(f"{at}.toolName", "it is required: which tool was called")
        call, result = mark_of(part.call_provider_metadata), mark_of(part.result_provider_metadata)
        if part.state == "input-streaming" or not (call.complete and result.complete):
            return  # the model was cut off in it
        sealed = [self._seal(call), self._seal(result)]
        given = part.input if part.input is not None else part.raw_input
        args = given if isinstance(given, str | dict) or given is None else json_text(given)
        if not part.provider_executed:
            self._said.append(ToolCallPart(name, args, part.tool_call_id))
            if (returned := _result(part)) is not None:
                content, outcome = returned
                self._results.append(ToolReturnPart(name, content, part.tool_call_id, outcome))
        elif not any(sealed) and call.item not in (self._carried - {None}) and (returned := _result(part)) is not None:
            self._said.append(BuiltinToolCallPart(name, args, part.tool_call_id))
            self._said.append(BuiltinToolReturnPart(name, returned[0], part.tool_call_id))


_Outcome = Literal["success", "failed", "denied"]


def _result(part: ToolUI) -> tuple[Any, _Outcome] | None:
    """What came of a call; None if nothing did."""
    approval = part.approval or Approval()
    if part.state == "output-available" and part.output is not UNSET and not part.preliminary:
        return part.output, "success"
    if part.state == "output-error":
        return part.error_text or "It failed.", "failed"
    if part.state == "output-denied" or approval.approved is False:
        return approval.reason or "The user denied this call.", "denied"
    return None


def _without_loose_ends(said: list[ModelResponsePart]) -> list[ModelResponsePart]:
    """The parts without the reasoning that led to nothing. What is sealed at the end of a turn that said something is
    kept."""
    last = max((place for place, part in enumerate(said) if _says(part)), default=None)
    if last is None:
        return []
    late = [part for part in said[last + 1 :] if isinstance(part, SealedPart)]
    return [*said[: last + 1], *late]


def _says(part: ModelResponsePart) -> bool:
    if isinstance(part, SealedPart):
        return part.item_id is not None and not part.item_id.startswith("rs_")
    return not isinstance(part, ThinkingPart)


def _wrong(at: str, message: str) -> NoReturn:
    raise RequestError(f"{at}: {message}", code="invalid_value", param=at)
