"""Decode answers of Gemini's Interactions API. It has steps instead of parts, with start and stop events.

A step (`thought`, `model_output`, `function_call`, `google_search_call`, …; in earlier versions a `content` block of
the same types) starts with its known fields, is extended by deltas, and stops. A whole body lists the finished steps.
A thought often holds a signature alone. Names are snake_case on this wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ErrorInfo
from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart, FilePart, FinishReason, Usage
from ..errors import TURN_FAILED, error_from_value
from ..lenient_json import decode_lenient_object, objects_in, text_of
from ..token_counts import merge_counts
from .chunk import Object, signature_details

if TYPE_CHECKING:
    from ..stream_decoder import WireReader

FINISH_REASONS: dict[str, FinishReason] = {
    "completed": "stop",
    "requires_action": "tool_call",
    "incomplete": "length",
    "failed": "error",
}

TOOL_NAMES = {"google_search": "web_search", "url_context": "web_fetch", "mcp_server_tool": "mcp"}

_STEP_LISTS = ("steps", "outputs")


def is_interaction(data: bytes) -> bool:
    """Whether an answer with this first frame is an interaction."""
    return b'"event_type"' in data or (b'"object"' in data and b'"interaction"' in data)


class InteractionsReader:
    """Reader of the frames of an interaction. It shares the emitter and the state of `reader`."""

    def __init__(self, reader: WireReader) -> None:
        self._reader = reader
        self._emit = reader.emit
        self._pending_steps: dict[Any, Object] = {}
        """Open steps by index that are emitted when they stop."""
        self._streamed_calls: set[Any] = set()
        """Indexes of calls whose arguments are streamed as text."""
        self._has_tool_calls = False
        self._usage: Object = {}

    def read_frame(self, data: bytes) -> None:
        event = decode_lenient_object(data)
        if event is None:
            self._reader.reject(data)
            return
        kind = event.get("event_type")
        event_index = event.get("index")
        index = event_index if isinstance(event_index, int) else -1
        self._reader.is_recognized = True
        if event.get("error"):
            self._reader.fail(error_from_value(event))
        if not isinstance(kind, str):
            self._read_body(event)
        elif kind.endswith(".start") and isinstance(step := event.get("step") or event.get("content"), dict):
            self._start_step(index, step)
        elif kind.endswith(".delta") and isinstance(event.get("delta"), dict):
            self._add_delta(index, event["delta"])
        elif kind.endswith(".stop"):
            self._stop_step(index)
        elif isinstance(event.get("interaction"), dict):
            self._read_interaction(
                event["interaction"], is_over=kind in ("interaction.completed", "interaction.complete")
            )

    def _read_body(self, body: Object) -> None:
        steps: list[Any] = next((body[name] for name in _STEP_LISTS if isinstance(body.get(name), list)), [])
        self._read_interaction(body, is_over=False)
        for index, step in enumerate(steps):
            if isinstance(step, dict):
                self._start_step(index, step)
                self._stop_step(index)
        self._read_interaction(body, is_over=True)

    def _read_interaction(self, interaction: Object, *, is_over: bool) -> None:
        self._emit.start(text_of(interaction, "id"), text_of(interaction, "model"))
        if isinstance(interaction.get("usage"), dict):
            # Usage comes at the beginning, at the end, or partly at each.
            self._usage = merge_counts(self._usage, interaction["usage"])
            self._emit.usage = read_usage(self._usage)
        if not is_over:
            return
        self._reader.finished = True
        status = text_of(interaction, "status")
        self._emit.finish(FINISH_REASONS.get(status or ""), status)

    # --- steps -----------------------------------------------------------------------------------------------

    def _start_step(self, index: int, step: Object) -> None:
        kind = text_of(step, "type") or ""
        if kind in ("thought", "model_output", "text", "image"):
            self._add_content(index, kind, step)
        else:
            self._pending_steps[index] = step

    def _add_delta(self, index: int, delta: Object) -> None:
        kind = text_of(delta, "type") or ""
        step = self._pending_steps.get(index)
        if step is None:
            self._add_content(index, kind, delta)
        elif kind == "arguments_delta" and isinstance(delta.get("arguments"), str):
            self._streamed_calls.add(index)
            self._emit_tool_call(index, step, delta["arguments"])
        else:
            self._pending_steps[index] = {
                **step,
                **{name: value for name, value in delta.items() if value not in ("", None)},
            }

    def _add_content(self, index: int, kind: str, piece: Object) -> None:
        """Add content of a thought or of the answer, from a step or a delta."""
        if kind == "thought" or kind.startswith("thought_"):
            summary = piece.get("summary") if kind == "thought" else piece.get("content")
            for entry in summary if isinstance(summary, list) else [summary]:
                if isinstance(entry, dict) and isinstance(entry.get("data"), str):
                    self._emit_file(entry, is_thought=True)
                elif isinstance(entry, dict):
                    self._emit.thinking(index, text_of(entry, "text") or "", explicit_end=True)
            signature = text_of(piece, "signature")
            self._emit.thinking(
                index,
                signature=signature,
                details=signature_details(signature),
                explicit_end=True,
            )
        elif kind == "model_output":
            for entry in objects_in(piece.get("content")):
                self._add_content(index, text_of(entry, "type") or "", entry)
        elif kind == "text" or kind.startswith("text_annotation"):
            annotations = objects_in(piece.get("annotations"))
            self._emit.text(
                index, text_of(piece, "text") or "", item=index, annotations=annotations or None, explicit_end=True
            )
        elif isinstance(piece.get("data"), str):
            self._emit_file(piece)
        elif kind:
            self._reader.emit_opaque(kind, piece)

    def _emit_file(self, entry: Object, is_thought: bool = False) -> None:
        media_type = text_of(entry, "mime_type") or "application/octet-stream"
        self._emit.whole_part(FilePart(entry["data"], media_type, is_thought, provider_name=self._emit.origin.provider))

    def _stop_step(self, index: int) -> None:
        step = self._pending_steps.pop(index, None)
        if step is not None:
            self._emit_step(index, step)
        self._emit.close(index)

    def _emit_step(self, index: int, step: Object) -> None:
        """Emit a step that is not streamed."""
        kind, provider = text_of(step, "type") or "", self._emit.origin.provider
        signature = text_of(step, "signature")
        details = signature_details(signature)
        if kind == "function_call":
            if index not in self._streamed_calls:
                self._emit_tool_call(index, step, step.get("arguments") or {})
        elif kind.endswith("_call"):
            args = step.get("arguments")
            call_id = text_of(step, "id") or ""
            name = TOOL_NAMES.get(kind.removesuffix("_call"), kind.removesuffix("_call"))
            call = BuiltinToolCallPart(
                name,
                args if isinstance(args, dict | str) else None,
                call_id,
                signature=signature,
                provider_name=provider,
                provider_details=details,
            )
            self._emit.whole_part(call, item=call_id or None)
        elif kind.endswith("_result"):
            call_id = text_of(step, "call_id") or ""
            name = TOOL_NAMES.get(kind.removesuffix("_result"), kind.removesuffix("_result"))
            result = BuiltinToolReturnPart(
                name, step.get("result"), call_id, provider_name=provider, provider_details=details
            )
            self._emit.whole_part(result, item=call_id or None)
        else:
            self._reader.emit_opaque(kind or "step", step)

    def _emit_tool_call(self, index: int, step: Object, args: Any) -> None:
        self._has_tool_calls = True
        self._emit.tool_call(
            index,
            args if isinstance(args, dict | str) else {},
            name=text_of(step, "name") or "",
            call_id=text_of(step, "id"),
            signature=text_of(step, "signature"),
            details=signature_details(text_of(step, "signature")),
            explicit_end=True,
        )

    # --- the end ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Emit the content so far of steps that did not stop. Incomplete function calls are left out."""
        for index, step in list(self._pending_steps.items()):
            if step.get("type") != "function_call":
                self._emit_step(index, step)
        self._pending_steps.clear()

    def end_normally(self) -> None:
        emit = self._emit
        if emit.finish_reason == "stop" and self._has_tool_calls:
            emit.finish("tool_call", emit.native_finish_reason)
        elif emit.finish_reason == "error":
            self._reader.fail(ErrorInfo("model_error", TURN_FAILED, code="failed"))


def read_usage(raw: Object) -> Usage:
    """Read token counts. This wire, too, does not include reasoning tokens in the output count."""
    known = {name: value for name, value in raw.items() if type(value) is int}
    prompt, tool_prompt = known.get("total_input_tokens"), known.get("total_tool_use_tokens")
    answer, thoughts = known.get("total_output_tokens"), known.get("total_thought_tokens")
    return Usage(
        input_tokens=None if prompt is None else prompt + (tool_prompt or 0),
        output_tokens=None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0),
        output_reasoning_tokens=thoughts,
        cache_read_tokens=known.get("total_cached_tokens"),
        details={name: value for name, value in known.items() if name not in _TOTALS and value},
    )


_TOTALS = ("total_tokens", "total_input_tokens", "total_output_tokens", "total_cached_tokens")
