"""Encodes events as Chat Completions: a stream of chunks, and the completion that they add up to.

All content of a run is one assistant message, for any number of turns:

* Reasoning goes to `reasoning_content` and `reasoning`, both or one of them (`fields`), with the same text. Stretches
  of reasoning are separated by a blank line, as in `ModelResponse.thinking`.
* A summary is also in `reasoning_details`, delta by delta, because no other field shows that it is not the raw
  reasoning. Raw text is not: it would take three times the bytes and add no information. Only a complete completion has
  raw text there, and only together with other details, because OpenRouter's client reads no other field once there are
  details.
* An item's seal is one detail, `{"type": "reasoning.encrypted", "data": SEAL, "id": ITEM, "format": "pellucid-v1"}`,
  sent when the item ends. OpenAI's client merges the entries of one `index` field by field. So each streamed detail has
  an index of its own, counted without a gap, and sends its id and format once.
* Text is `content`. The text of a later turn is separated by a blank line if functions were called in between.
  Citations come at the end, in one chunk (clients cannot merge two), with indices shifted to the place of their text.
* Calls that the client must answer are `tool_calls`. Calls that the server answers (`server_tools`) and their results
  are not shown, because a client would try to answer them. The reasoning and the text around them are shown.
* The finish reason of an answer that was cut off is `length`: by the model's limit, by the limit of calls, or because
  the run was cancelled. No other reason of this protocol says that something is missing.
* A run that fails ends in `{"error": …}` and has no finish reason. Its complete answer is the error alone.

A provider's own tools, files, compactions and opaque blocks have no representation in this protocol; their seals do.

An encoder is pure, and encodes one batch as one piece of bytes. The most frequent events are written from templates,
all others from the types.

The functions at the beginning convert log-probabilities, citations and usage to this protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, ClassVar

from msgspec import UNSET, UnsetType

from ...accumulator import TEXT_FIELD
from ...errors import ErrorInfo
from ...events import (
    AnsweringDeployment,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseStartEvent,
    RunEndEvent,
)
from ...parts import ModelResponsePart, RefusalPart, TextPart, ThinkingPart, ToolCallPart, Usage
from ...unicode import json_safe, replace_surrogates
from .. import text_metadata
from ..encoding import (
    DONE,
    PARAGRAPH_BREAK,
    QUEUED,
    BatchEncoder,
    EventHandlers,
    complete_arguments,
    or_unset,
    to_json,
)
from . import types as t
from .types import error_payload


def _logprobs(raw: Any) -> list[t.ChatLogProb]:
    return text_metadata.token_logprobs(raw, t.ChatLogProb, t.ChatTopLogProb)


def citations(raw: list[dict[str, Any]], offset: int) -> list[t.ChatAnnotation]:
    """Return the URL citations of a text that has `offset` characters of the message in front of it."""
    return [
        t.ChatAnnotation(
            t.ChatUrlCitation(
                citation.url, citation.title, _shifted(citation.start, offset), _shifted(citation.end, offset)
            )
        )
        for citation in text_metadata.citations(raw)
    ]


def _shifted(index: int | None, offset: int) -> int:
    """Return the shifted index; 0 where the provider did not report it."""
    return 0 if index is None else index + offset


def usage_of(usage: Usage) -> t.ChatUsage | None:
    """Return the usage, or None if nothing was counted."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    input_tokens, output_tokens = usage.input_tokens or 0, usage.output_tokens or 0
    prompt = t.ChatPromptTokensDetails(
        or_unset(usage.cache_read_tokens), or_unset(usage.cache_write_tokens), or_unset(usage.input_audio_tokens)
    )
    completion = t.ChatCompletionTokensDetails(
        or_unset(usage.output_reasoning_tokens), or_unset(usage.output_audio_tokens)
    )
    return t.ChatUsage(
        prompt_tokens=input_tokens,
        completion_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        prompt_tokens_details=prompt if prompt != t.ChatPromptTokensDetails() else UNSET,
        completion_tokens_details=completion if completion != t.ChatCompletionTokensDetails() else UNSET,
        cost=or_unset(usage.cost),
    )


_REASONING_FIELDS: dict[t.ReasoningFields, tuple[str, ...]] = {
    "both": ("reasoning_content", "reasoning"),
    "reasoning_content": ("reasoning_content",),
    "reasoning": ("reasoning",),
}


class Encoder(BatchEncoder):
    """Encodes one completion.

    `start` and `feed` return bytes to send. `completion` is the complete answer, once the run has ended.

    Args:
        id: The id of the completion.
        model: The model's public name.
        created: The time of the request, in seconds since 1970.
        fields: The fields that carry readable reasoning.
        include_usage: Whether the stream ends with a chunk of usage.
        obfuscate: Whether deltas are padded, so that their size does not show the length of the text.
        server_tools: The names of the functions whose calls the server answers.
    """

    def __init__(
        self,
        id: str,
        model: str,
        created: int,
        fields: t.ReasoningFields = "both",
        *,
        include_usage: bool = False,
        obfuscate: bool = False,
        server_tools: Container[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.error: ErrorInfo | None = None
        """Why the run failed. The complete answer is then this error, with its status."""
        self._id, self._model, self._created = replace_surrogates(id), replace_surrogates(model), created
        self._reasoning_fields = _REASONING_FIELDS[fields]
        self._include_usage = include_usage
        self._obfuscate = obfuscate
        self._server_tools = server_tools
        frame = {"id": self._id, "object": "chat.completion.chunk", "created": created, "model": self._model}
        self._frame_prefix = b"data: " + to_json(frame)[:-1] + b',"choices":['
        self._delta_prefix = self._frame_prefix + b'{"index":0,"delta":{'
        self._frame_suffix = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._delta_suffix = b'},"finish_reason":null}]' + self._frame_suffix
        self._state = _MessageState()
        self._item_id: str | None = None
        self._is_hidden_call = False
        """Whether the open item is a call that the server answers."""
        self._part: _Part | None = None
        self._needs_break = False
        """Whether functions were called since the last text."""
        self._detail_count = 0
        """The number of details in the stream."""
        self._finish_reason: t.FinishReason = "stop"
        self._usage: t.ChatUsage | None = None
        self._deployment: AnsweringDeployment | UnsetType = UNSET

    def start(self, *, queued: bool = False) -> bytes:
        """Return the bytes that open the stream. A comment says if the request is `queued`."""
        opening = self._delta_prefix + b'"role":"assistant","content":null' + self._delta_suffix
        return QUEUED + opening if queued else opening

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """Return a function that encodes the text of further deltas; None where the next delta needs an event."""
        part = self._part
        return self._encode_text if part is not None and not part.separator and not self._obfuscate else None

    def _encode_text(self, text: str, now: int) -> bytes:
        assert self._part is not None
        return to_json(text).join(self._part.template)

    @property
    def completion(self) -> t.ChatCompletion:
        """The completion. It also holds the content of a failed run, for which the client gets `error` instead."""
        state = self._state
        reasoning = PARAGRAPH_BREAK.join(state.reasoning)
        message = t.ChatMessage(
            content="".join(state.content) if state.content else None,
            refusal="".join(state.refusal) if state.refusal else None,
            tool_calls=state.calls or UNSET,
            annotations=state.annotations or UNSET,
        )
        for field in self._reasoning_fields if reasoning else ():
            setattr(message, field, reasoning)
        if any(detail.type != "reasoning.text" for detail in state.details):
            message.reasoning_details = state.details
        choice = t.ChatChoice(
            message=message,
            logprobs=t.ChatLogProbs(state.logprobs) if state.logprobs else None,
            finish_reason=self._finish_reason,
        )
        return t.ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[choice],
            usage=self._usage or UNSET,
            deployment=self._deployment,
        )

    # --- deltas ------------------------------------------------------------------------------------------------

    def _delta(self, event: PartDeltaEvent) -> None:
        part, delta = self._part, event.delta
        if part is None:
            return
        text: str | None = getattr(delta, TEXT_FIELD[type(delta)])
        token_logprobs = (
            _logprobs(raw_logprobs) if part.is_text and (raw_logprobs := getattr(delta, "logprobs", None)) else None
        )
        if not text and not token_logprobs:
            return
        members = data = b""
        if text:
            try:
                data = to_json(text)
            except UnicodeEncodeError:
                data = to_json(replace_surrogates(text))
            if not (token_logprobs or part.separator or self._obfuscate):
                self._out.append(data.join(part.template))
                return
            text_data = data
            if part.separator:
                text_data, part.separator = to_json(part.separator)[:-1] + data[1:], ""
            members = part.prefix + text_data
            if part.second_field:
                members += part.second_field + text_data
            if part.summary_field:
                members += part.summary_field + data
            members += part.suffix
        suffix = self._delta_suffix
        if token_logprobs:
            suffix = b'},"logprobs":%b%b' % (to_json(t.ChatLogProbs(token_logprobs)), suffix[1:])
        if self._obfuscate:
            suffix = b'%b,"obfuscation":"%b"%b' % (
                suffix[: -len(self._frame_suffix)],
                b"x" * (-len(data) % 32),
                self._frame_suffix,
            )
        self._out.append(self._delta_prefix + members + suffix)

    # --- items and parts ---------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent) -> None:
        self._item_id = event.id
        self._is_hidden_call = False

    def _item_end(self, event: ItemEndEvent) -> None:
        if event.seal is None or self._is_hidden_call:
            return
        detail = t.ReasoningDetail(
            type="reasoning.encrypted",
            data=replace_surrogates(event.seal),
            id=replace_surrogates(self._item_id) if self._item_id else UNSET,
            format=t.FORMAT,
            index=self._detail_count,
        )
        position = (sum(map(len, self._state.content)), len(self._state.calls))
        if any(position):
            detail.after = position
        self._detail_count += 1
        self._state.details.append(detail)
        self._write(t.ChatDelta(reasoning_details=[detail]))

    def _part_start(self, event: PartStartEvent) -> None:
        part, state = event.part, self._state
        if isinstance(part, ThinkingPart):
            separator = PARAGRAPH_BREAK if state.reasoning else ""
            names = [b'"%b":' % field.encode() for field in self._reasoning_fields]
            self._part = _Part(names[0], separator=separator)
            if len(names) > 1:
                self._part.second_field = b"," + names[1]
            if part.form == "summary":
                self._part.summary_field = b',"reasoning_details":[{"type":"reasoning.summary","summary":'
                self._part.suffix = b',"index":%d}]' % self._detail_count
        elif isinstance(part, TextPart):
            self._part = _Part(
                b'"content":', separator=PARAGRAPH_BREAK if self._needs_break and state.content else "", is_text=True
            )
        elif isinstance(part, RefusalPart):
            self._part = _Part(b'"refusal":')
        elif isinstance(part, ToolCallPart):
            self._call_start(part)
        if (open_part := self._part) is not None:
            fields = [field for field in (open_part.second_field, open_part.summary_field) if field]
            open_part.template = (self._delta_prefix + open_part.prefix, *fields, open_part.suffix + self._delta_suffix)

    def _call_start(self, part: ToolCallPart) -> None:
        self._is_hidden_call = part.tool_name in self._server_tools
        if self._is_hidden_call:
            return
        index = len(self._state.calls)
        id, name = replace_surrogates(part.tool_call_id), replace_surrogates(part.tool_name)
        self._state.calls.append(t.ChatToolCall(id, t.ChatFunction(name, "")))
        function = t.ChatFunctionDelta("", name)
        self._write(t.ChatDelta(tool_calls=[t.ChatToolCallDelta(index, function, id, "function")]))
        self._part = _Part(b'"tool_calls":[{"index":%d,"function":{"arguments":' % index, b"}}]")

    def _part_end(self, event: PartEndEvent) -> None:
        open_part, self._part = self._part, None
        if open_part is not None:
            _ENDS[type(event.part)](self, event.part)

    def _thinking_end(self, part: ThinkingPart) -> None:
        if not part.content:
            return
        text = replace_surrogates(part.content)
        self._state.reasoning.append(text)
        if part.form == "summary":
            detail = t.ReasoningDetail(type="reasoning.summary", summary=text, index=self._detail_count)
            self._detail_count += 1
        else:
            detail = t.ReasoningDetail(type="reasoning.text", text=text)
        self._state.details.append(detail)

    def _text_end(self, part: TextPart) -> None:
        state = self._state
        state.logprobs += _logprobs(part.logprobs)
        if part.content:
            if self._needs_break and state.content:
                state.content.append(PARAGRAPH_BREAK)
            self._needs_break = False
        state.annotations += citations(part.annotations or [], sum(map(len, state.content)))
        if part.content:
            state.content.append(replace_surrogates(part.content))

    def _refusal_end(self, part: RefusalPart) -> None:
        if part.content:
            self._state.refusal.append(replace_surrogates(part.content))

    def _call_end(self, part: ToolCallPart) -> None:
        calls = self._state.calls
        arguments, unsent = complete_arguments(part)
        if unsent:
            self._write(t.ChatDelta(tool_calls=[t.ChatToolCallDelta(len(calls) - 1, t.ChatFunctionDelta(unsent))]))
        calls[-1].function.arguments = replace_surrogates(arguments)

    # --- the run -----------------------------------------------------------------------------------------------

    def _turn_start(self, event: ResponseStartEvent) -> None:
        self._deployment = or_unset(event.deployment)

    def _tool_result(self, event: FunctionToolResultEvent) -> None:
        self._needs_break = True

    def _run_end(self, event: RunEndEvent) -> None:
        self.ended = True
        self._usage = usage_of(event.usage)
        if event.status == "failed":
            self.error = event.failure
            self._out.append(b"data: " + to_json({"error": error_payload(json_safe(self.error))}) + b"\n\n")
        else:
            if event.status == "completed":
                self._finish_reason = "tool_calls" if self._state.calls else "stop"
            else:
                self._finish_reason = "content_filter" if event.incomplete_reason == "content_filter" else "length"
            if self._state.annotations:
                self._write(t.ChatDelta(annotations=self._state.annotations))
            self._write(t.ChatDelta(), self._finish_reason)
            if self._include_usage and self._usage is not None:
                self._out.append(self._frame_prefix + b'],"usage":' + to_json(self._usage) + b"}\n\n")
        self._out.append(DONE)

    def _write(self, delta: t.ChatDelta, finish_reason: t.FinishReason | None = None) -> None:
        suffix = self._delta_suffix
        if finish_reason is not None:
            deployment = b',"deployment":' + to_json(self._deployment) if self._deployment is not UNSET else b""
            suffix = b'},"finish_reason":"%b"}]%b%b' % (finish_reason.encode(), deployment, self._frame_suffix)
        self._out.append(self._delta_prefix + to_json(delta)[1:-1] + suffix)

    HANDLERS: ClassVar[EventHandlers] = {
        ResponseStartEvent: _turn_start,
        ItemStartEvent: _item_start,
        ItemEndEvent: _item_end,
        PartStartEvent: _part_start,
        PartEndEvent: _part_end,
        FunctionToolResultEvent: _tool_result,
        RunEndEvent: _run_end,
    }


class _MessageState:
    """The content of the message so far, from the ends of its parts."""

    __slots__ = ("annotations", "calls", "content", "details", "logprobs", "reasoning", "refusal")

    def __init__(self) -> None:
        self.content: list[str] = []
        self.refusal: list[str] = []
        self.reasoning: list[str] = []
        self.details: list[t.ReasoningDetail] = []
        self.calls: list[t.ChatToolCall] = []
        self.annotations: list[t.ChatAnnotation] = []
        self.logprobs: list[t.ChatLogProb] = []


class _Part:
    """The open part: the template of its deltas, and the separator from the text before it."""

    __slots__ = ("is_text", "prefix", "second_field", "separator", "suffix", "summary_field", "template")

    def __init__(self, prefix: bytes, suffix: bytes = b"", *, separator: str = "", is_text: bool = False) -> None:
        self.prefix = prefix
        self.second_field = b""
        self.summary_field = b""
        self.suffix = suffix
        self.separator = separator
        self.is_text = is_text
        self.template: tuple[bytes, ...] = ()
        """The pieces of bytes between which the text of a plain delta is put."""


_ENDS: dict[type[ModelResponsePart], Callable[[Encoder, Any], None]] = {
    ThinkingPart: Encoder._thinking_end,
    TextPart: Encoder._text_end,
    RefusalPart: Encoder._refusal_end,
    ToolCallPart: Encoder._call_end,
}
