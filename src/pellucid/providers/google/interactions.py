"""Gemini's Interactions API, read: steps instead of parts, with their own starts and ends.

A step (`thought`, `model_output`, `function_call`, `google_search_call`, …; earlier `content` blocks of the same types)
starts with what is known of it, grows by deltas, and stops; a whole body lists the steps as they ended up. A thought
often holds nothing but a signature. Names are snake_case on this wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...errors import ErrorInfo
from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart, FilePart, FinishReason, Form, OpaquePart, Usage
from ..faults import TURN_FAILED, fault_of_value
from ..fitting import loose_object

if TYPE_CHECKING:
    from ..answer import Reader

STATUS: dict[str, FinishReason] = {
    "completed": "stop",
    "requires_action": "tool_call",
    "incomplete": "length",
    "failed": "error",
}

TOOL_NAMES = {"google_search": "web_search", "url_context": "web_fetch", "mcp_server_tool": "mcp"}

_STEPS = ("steps", "outputs")

Object = dict[str, Any]


def is_interaction(data: bytes) -> bool:
    """Whether an answer that begins with this frame is an interaction."""
    return b'"event_type"' in data or (b'"object"' in data and b'"interaction"' in data)


class InteractionsReader:
    """Reads frames of an interaction for `reader`, whose emitter and state it shares."""

    def __init__(self, reader: Reader, form: Form) -> None:
        self._reader = reader
        self._emit = reader.emit
        self._form = form
        self._steps: dict[Any, Object] = {}
        """The steps under way that are told when they stop, by index."""
        self._streamed: set[Any] = set()
        """Calls whose arguments come as text."""
        self._called = False
        self._usage: Object = {}

    def frame(self, data: bytes) -> None:
        event = loose_object(data)
        if event is None:
            self._reader.refuse(data)
            return
        kind = event.get("event_type")
        given = event.get("index")
        index = given if isinstance(given, int) else -1
        self._reader.heard = True
        if event.get("error"):
            self._reader.fail(fault_of_value(event))
        if not isinstance(kind, str):
            self._body(event)
        elif kind.endswith(".start") and isinstance(step := event.get("step") or event.get("content"), dict):
            self._start(index, step)
        elif kind.endswith(".delta") and isinstance(event.get("delta"), dict):
            self._delta(index, event["delta"])
        elif kind.endswith(".stop"):
            self._stop(index)
        elif isinstance(event.get("interaction"), dict):
            self._about(event["interaction"], over=kind in ("interaction.completed", "interaction.complete"))

    def _body(self, body: Object) -> None:
        steps: list[Any] = next((body[name] for name in _STEPS if isinstance(body.get(name), list)), [])
        self._about(body, over=False)
        for index, step in enumerate(steps):
            if isinstance(step, dict):
                self._start(index, step)
                self._stop(index)
        self._about(body, over=True)

    def _about(self, interaction: Object, *, over: bool) -> None:
        self._emit.start(_text(interaction.get("id")) or None, _text(interaction.get("model")) or None)
        if isinstance(interaction.get("usage"), dict):
            # Told in the beginning, at the end, or some here and some there.
            self._usage |= {name: value for name, value in interaction["usage"].items() if value is not None}
            self._emit.usage = read_usage(self._usage)
        if not over:
            return
        self._reader.finished = True
        status = _text(interaction.get("status"))
        self._emit.finish(STATUS.get(status), status or None)

    # --- steps -----------------------------------------------------------------------------------------------

    def _start(self, index: int, step: Object) -> None:
        kind = _text(step.get("type"))
        if kind in ("thought", "model_output", "text", "image"):
            self._grow(index, kind, step)
        else:
            self._steps[index] = step

    def _delta(self, index: int, delta: Object) -> None:
        kind = _text(delta.get("type"))
        step = self._steps.get(index)
        if step is None:
            self._grow(index, kind, delta)
        elif kind == "arguments_delta" and isinstance(delta.get("arguments"), str):
            self._streamed.add(index)
            self._call(index, step, delta["arguments"])
        else:
            self._steps[index] = {**step, **{name: value for name, value in delta.items() if value not in ("", None)}}

    def _grow(self, index: int, kind: str, more: Object) -> None:
        """More of a thought or of the answer, whole or in a delta."""
        if kind == "thought" or kind.startswith("thought_"):
            told = more.get("summary") if kind == "thought" else more.get("content")
            for entry in told if isinstance(told, list) else [told]:
                if isinstance(entry, dict) and isinstance(entry.get("data"), str):
                    self._file(entry, thought=True)
                elif isinstance(entry, dict):
                    self._emit.thinking(index, _text(entry.get("text")), form=self._form, ends=True)
            signature = _text(more.get("signature"))
            self._emit.thinking(index, signature=signature or None, form=self._form, details=_details(more), ends=True)
        elif kind == "model_output":
            content = more.get("content")
            for entry in content if isinstance(content, list) else []:
                if isinstance(entry, dict):
                    self._grow(index, _text(entry.get("type")), entry)
        elif kind == "text" or kind.startswith("text_annotation"):
            cited = more.get("annotations")
            annotations = [entry for entry in cited if isinstance(entry, dict)] if isinstance(cited, list) else None
            self._emit.text(index, _text(more.get("text")), item=index, annotations=annotations or None, ends=True)
        elif isinstance(more.get("data"), str):
            self._file(more)
        elif kind:
            self._emit.whole(OpaquePart(kind, more, provider_name=self._emit.origin.provider))

    def _file(self, entry: Object, thought: bool = False) -> None:
        media_type = _text(entry.get("mime_type")) or "application/octet-stream"
        self._emit.whole(FilePart(entry["data"], media_type, thought, provider_name=self._emit.origin.provider))

    def _stop(self, index: int) -> None:
        step = self._steps.pop(index, None)
        if step is not None:
            self._told(index, step)
        self._emit.close(index)

    def _told(self, index: int, step: Object) -> None:
        """A step that is told in one piece."""
        kind, provider = _text(step.get("type")), self._emit.origin.provider
        details, signature = _details(step), _text(step.get("signature")) or None
        if kind == "function_call":
            if index not in self._streamed:
                self._call(index, step, step.get("arguments") or {})
        elif kind.endswith("_call"):
            args = step.get("arguments")
            call_id = _text(step.get("id"))
            name = TOOL_NAMES.get(kind.removesuffix("_call"), kind.removesuffix("_call"))
            call = BuiltinToolCallPart(name, args if isinstance(args, dict | str) else None, call_id)
            signed = replace(call, signature=signature, provider_name=provider, provider_details=details)
            self._emit.whole(signed, item=call_id or None)
        elif kind.endswith("_result"):
            call_id = _text(step.get("call_id"))
            name = TOOL_NAMES.get(kind.removesuffix("_result"), kind.removesuffix("_result"))
            result = BuiltinToolReturnPart(name, step.get("result"), call_id)
            self._emit.whole(replace(result, provider_name=provider, provider_details=details), item=call_id or None)
        else:
            self._emit.whole(OpaquePart(kind or "step", step, provider_name=provider))

    def _call(self, index: int, step: Object, args: Any) -> None:
        self._called = True
        self._emit.tool_call(
            index,
            args if isinstance(args, dict | str) else {},
            name=_text(step.get("name")),
            call_id=_text(step.get("id")) or None,
            signature=_text(step.get("signature")) or None,
            details=_details(step),
            ends=True,
        )

    # --- the end ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Steps that did not stop are told as far as they came, but for calls: half a call is none."""
        for index, step in list(self._steps.items()):
            if _text(step.get("type")) != "function_call":
                self._told(index, step)
        self._steps.clear()

    def settle(self) -> None:
        emit = self._emit
        if emit.finish_reason == "stop" and self._called:
            emit.finish("tool_call", emit.native_finish_reason)
        elif emit.finish_reason == "error":
            self._reader.fail(ErrorInfo("model_error", TURN_FAILED, code="failed"))


def read_usage(raw: Object) -> Usage:
    """Thoughts are counted beside the output here, too."""
    known = {name: value for name, value in raw.items() if isinstance(value, int) and not isinstance(value, bool)}
    prompt, of_tools = known.get("total_input_tokens"), known.get("total_tool_use_tokens")
    answer, thoughts = known.get("total_output_tokens"), known.get("total_thought_tokens")
    return Usage(
        input_tokens=None if prompt is None else prompt + (of_tools or 0),
        output_tokens=None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0),
        output_reasoning_tokens=thoughts,
        cache_read_tokens=known.get("total_cached_tokens"),
        details={name: value for name, value in known.items() if name not in _TOTALS and value},
    )


_TOTALS = ("total_tokens", "total_input_tokens", "total_output_tokens", "total_cached_tokens")


def _details(step: Object) -> Object | None:
    signature = _text(step.get("signature"))
    return {"thought_signature": signature} if signature else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
