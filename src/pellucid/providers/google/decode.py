"""Decode a Gemini answer into model events: a stream of events, a JSON array in pieces, or a whole body.

The wire does not mark where a part ends. Rules:

* In a stream, consecutive fragments of text, or of reasoning, are one part. Any other part ends it; empty text is
  ignored. In a whole body each entry is one part.
* A signature belongs to the part that its fragment extends. Gemini 2.5 signs the first fragment, Gemini 3 an empty one
  at the end. A second signature begins another part, because a part has only one.
* A signature without any content becomes an opaque part.

A signature is stored twice: in the field `signature`, and in `provider_details["thought_signature"]` under Google's
name. Results of the provider's own tools have no field for it, and so the details have it on every part.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec.structs import replace

from ...errors import ErrorInfo, ErrorKind
from ...framing.json_array import JSONArrayDecoder
from ...framing.sse import SSE
from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart, FilePart, FinishReason, Origin
from ...unicode import TextBuffer
from ..errors import TURN_FAILED, as_code, error_from_value
from ..frame_template import NUMBER, SkipRule, varying_value
from ..lenient_json import objects_in, text_of
from ..profile import Profile
from ..stream_decoder import EventFrames, Frame, FrameType, WireReader
from ..token_counts import merge_counts
from . import grounding
from .chunk import (
    Candidate,
    Chunk,
    Object,
    Part,
    PartialCall,
    native_part,
    read_chunk,
    read_usage,
    signature_details,
    to_snake_case,
)
from .interactions import InteractionsReader, is_interaction

FINISH_REASONS: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "ESCALATION": "content_filter",
    "LANGUAGE": "error",
    "MALFORMED_FUNCTION_CALL": "error",
    "MALFORMED_RESPONSE": "error",
    "UNEXPECTED_TOOL_CALL": "error",
    "TOO_MANY_TOOL_CALLS": "error",
    "MISSING_THOUGHT_SIGNATURE": "error",
    "PUP_LIMITED_DISABLED": "error",
    "NO_IMAGE": "error",
    "IMAGE_OTHER": "error",
}
"""Finish reasons by Google's names. Others (`OTHER`, and new ones) are unknown."""

TOOL_NAMES = {"GOOGLE_SEARCH_WEB": "web_search", "URL_CONTEXT": "web_fetch"}
"""Unified names of Google's own tools. Other tools have Google's name in lower case."""

UNNAMED_TOOL = "media_processing"
"""Name of the only tool that Google runs without sending its type."""

BODY = "body"
"""Name of a frame that is a whole body."""

_Kind = Literal["text", "thought"]


class GeminiFrames:
    """Framing of server-sent events, of the elements of a JSON array, or of a whole body."""

    def __init__(self) -> None:
        self._blank = b""
        self._frames: EventFrames | None = None
        self._array: JSONArrayDecoder | None = None
        self._is_body = False
        self._has_elements = False

    @property
    def idle(self) -> bool:
        framing = self._frames or self._array
        return framing is not None and framing.idle

    def first_frame_end(self, data: bytes) -> int:
        return self._frames.first_frame_end(data) if self._frames is not None else data.find(b"\n,", 1)

    def feed(self, data: bytes) -> list[Frame]:
        if self._frames is not None:
            return self._frames.feed(data)
        if self._array is None:
            data = self._blank + data
            first = data.lstrip()[:1]
            if not first and len(data) < 1024:
                self._blank = data
                return []
            if first != b"[":
                self._is_body = first in (b"{", b"<")
                self._frames = EventFrames()
                return self._frames.feed(data)
            self._array = JSONArrayDecoder()
        frames = [SSE("", element) for element in self._array.feed(data)]
        self._has_elements = self._has_elements or bool(frames)
        if self._array.closed and self._has_elements:
            frames.append(SSE("", b"[DONE]"))
        return frames

    def end(self) -> list[Frame]:
        if self._array is not None:
            return [SSE("", rest) for rest in self._array.end()]
        name = BODY if self._is_body else ""
        return [SSE(name, frame) for _, frame in self._frames.end()] if self._frames is not None else []


class GeminiReader(WireReader):
    """Reader of a `generateContent` answer, or of an interaction if the first frame is one."""

    wire = "Gemini generateContent"
    code = "not_gemini"
    frame_type: FrameType = Chunk
    ignored_fields = ("candidates[].content.role", "createTime", "candidates[].content.parts[].")
    varying_values = (varying_value(b"(?:total|thoughts|candidates)TokenCount", NUMBER),)

    def __init__(self, profile: Profile, origin: Origin) -> None:
        super().__init__(origin, profile.form, GeminiFrames())
        self._interactions: InteractionsReader | None = None
        self._frame_count = 0
        self._is_body = False
        # The open part of text or reasoning.
        self._part_kind: _Kind | None = None
        self._part_key: tuple[str, int] = ("", 0)
        self._has_signature = False
        self._part_text = TextBuffer()
        """Text of the last text part. `_bytes_before` is the length of the text before it: citations count bytes."""
        self._bytes_before = 0
        # Calls.
        self._part_count = 0
        self._has_tool_calls = False
        self._partial_call: PartialCall | None = None
        self._code_id = ""
        self._has_builtin_tools = False
        # Values that are emitted at the end.
        self._usage: Object = {}
        self._grounding: Object | None = None
        self._finish_error: ErrorInfo | None = None

    # --- frames ----------------------------------------------------------------------------------------------

    def read_frame(self, data: bytes, name: str) -> None:
        self._frame_count += 1
        if self._frame_count == 1 and is_interaction(data):
            self._interactions = InteractionsReader(self)
            self.frame_type = None
        if self._interactions is not None:
            self._interactions.read_frame(data)
            return
        chunk = read_chunk(data)
        if chunk is None:
            if data.strip():
                self.reject(data)
            return
        self._is_body = name == BODY
        self._read_skipped_usage()
        emit = self.emit
        # Every chunk repeats these two values; they are recorded once.
        if (chunk.response_id or chunk.model_version) and (
            emit.provider_response_id is None or emit.model_name is None
        ):
            emit.start(chunk.response_id or None, chunk.model_version or None)
        if chunk.usage_metadata:
            self.is_recognized = True
            self._usage = merge_counts(self._usage, chunk.usage_metadata)
        if chunk.candidates:
            self.is_recognized = True
            for index, candidate in enumerate(chunk.candidates):
                # The request is for one answer; a second candidate would be another answer.
                if candidate.index == 0:
                    self._read_candidate(candidate, index, data)
                    content = candidate.content
                    if content is None or candidate != Candidate(content=content) or len(content.parts or ()) > 1:
                        self.skip_rule = None
                    break
        if chunk.error is not None or not chunk.candidates:
            self._read_failure(chunk, data)

    def _read_skipped_usage(self) -> None:
        """Read the token counts of the last skipped chunk. Counts are cumulative."""
        last, self.last_skipped = self.last_skipped, b""
        if last:
            chunk = read_chunk(last[last.index(b"{") : last.rindex(b"}") + 1])
            if chunk is not None and chunk.usage_metadata:
                self._usage = merge_counts(self._usage, chunk.usage_metadata)

    def _read_failure(self, chunk: Chunk, data: bytes) -> None:
        """Read a chunk without an answer: an error, or the reason why the prompt was blocked."""
        feedback = chunk.prompt_feedback or {}
        reason = feedback.get("blockReason")
        if chunk.error:
            self.is_recognized = True
            self.fail(error_from_object(chunk.error))
        elif isinstance(reason, str):
            self.is_recognized = self.finished = True
            self.emit.finish("content_filter", reason)
            self._store_details(blockReason=reason, **{name: feedback.get(name) for name in _FEEDBACK_DETAILS})
        elif not (chunk.usage_metadata or chunk.response_id or chunk.model_version or chunk.candidates is not None):
            self.reject(data)
        self.finished = self.finished or self._is_body

    def _read_candidate(self, candidate: Candidate, candidate_index: int, data: bytes) -> None:
        pages = candidate.url_context_metadata
        if pages is not None and not self._has_builtin_tools:
            self._emit_searches(grounding.fetch_parts(pages, self.emit.origin.provider))
        content = candidate.content
        if content is not None and content.parts:
            for part_index, part in enumerate(content.parts):
                text = part.text
                if text is not None:
                    self._add_text("thought" if part.thought else "text", text, part.thought_signature)
                else:
                    self._read_part(part, candidate_index, part_index, data)
        if candidate.grounding_metadata is not None:
            self._grounding = candidate.grounding_metadata
            self._store_details(groundingMetadata=self._grounding)
        reason = candidate.finish_reason
        if reason:
            self._read_finish(reason, candidate)
        self.finished = self.finished or self._is_body

    def _read_finish(self, reason: str, candidate: Candidate) -> None:
        self.finished = True
        finish_reason = FINISH_REASONS.get(reason.upper())
        self.emit.finish(finish_reason, reason)
        self._finish_error = None
        if finish_reason == "error":
            self._finish_error = ErrorInfo(
                _ERROR_KINDS.get(reason.upper(), "model_error"),
                _ERROR_MESSAGES.get(reason.upper(), TURN_FAILED),
                code=reason.upper(),
                upstream_message=candidate.finish_message or reason,
            )
        self._store_details(**{snake_name: getattr(candidate, snake_name) for snake_name in _CANDIDATE_DETAILS})

    def _store_details(self, **details: Any) -> None:
        """Store the provider's metadata of its answer."""
        self.emit.provider_details |= {to_snake_case(name): value for name, value in details.items() if value}

    # --- parts -----------------------------------------------------------------------------------------------

    def _add_text(self, kind: _Kind, text: str, signature: str | None) -> None:
        """Add a fragment of text or reasoning."""
        if not text and not signature:
            return
        if kind != self._part_kind or self._is_body or (signature and self._has_signature):
            self._begin_part(kind)
        details = None
        if signature:
            self._has_signature = True
            details = signature_details(signature)
        if kind == "text":
            self._part_text.add(text)
            self.emit.text(self._part_key, text, item=self._part_key, signature=signature or None, details=details)
        else:
            self.emit.thinking(self._part_key, text, signature=signature or None, details=details)
        self.skip_rule = SkipRule(on_skip=self._part_text.add if kind == "text" else None)

    def _begin_part(self, kind: _Kind | None) -> None:
        """Begin another part: text or reasoning in pieces, or (None) a part that comes whole."""
        if self._partial_call is not None:
            self._end_partial_call()
        self._part_kind = kind
        self._has_signature = False
        self._part_count += 1
        self._part_key = (kind or "whole", self._part_count)
        if kind == "text":
            self._bytes_before += len(self._part_text.take().encode("utf-8", "replace"))

    def _read_part(self, part: Part, candidate_index: int, part_index: int, data: bytes) -> None:
        if part.function_call is not None:
            self._read_call(part.function_call, part, candidate_index, part_index, data)
            return
        self._begin_part(None)
        if (file := part.inline_data) is not None and isinstance(file.get("data"), str):
            media_type = text_of(file, "mimeType") or "application/octet-stream"
            self.emit.whole_part(FilePart(file["data"], media_type, part.thought, **self._part_fields(part)))
        elif (code := part.executable_code) is not None:
            self._code_id = text_of(code, "id") or f"code_execution_{self._part_count}"
            self._emit_builtin_call("code_execution", code, self._code_id, part)
        elif (result := part.code_execution_result) is not None:
            self._emit_builtin_return("code_execution", result, text_of(result, "id") or self._code_id, part)
        elif (tool := part.tool_call) is not None:
            self._has_builtin_tools = True
            self._emit_builtin_call(_tool_name(tool), tool.get("args"), text_of(tool, "id") or "", part)
        elif (tool := part.tool_response) is not None:
            self._has_builtin_tools = True
            self._emit_builtin_return(_tool_name(tool), tool.get("response"), text_of(tool, "id") or "", part)
        else:
            self._emit_unknown_part(candidate_index, part_index, data)

    def _emit_builtin_call(self, name: str, args: Any, call_id: str, part: Part) -> None:
        arguments = args if isinstance(args, dict) else None
        self.emit.whole_part(
            BuiltinToolCallPart(name, arguments, call_id, **self._part_fields(part)), item=call_id or None
        )

    def _emit_builtin_return(self, name: str, content: Any, call_id: str, part: Part) -> None:
        fields = self._part_fields(part)
        del fields["signature"]  # a return part has no such field; its details hold the signature
        self.emit.whole_part(BuiltinToolReturnPart(name, content, call_id, **fields), item=call_id or None)

    def _part_fields(self, part: Part) -> dict[str, Any]:
        """Return the provider and signature fields of a part that came whole."""
        signature = part.thought_signature or None
        provider = self.emit.origin.provider
        return {"signature": signature, "provider_name": provider, "provider_details": signature_details(signature)}

    def _emit_unknown_part(self, candidate_index: int, part_index: int, data: bytes) -> None:
        """Emit a part of an unknown kind as opaque. An empty part is ignored."""
        native = native_part(data, candidate_index, part_index)
        if native:
            kind = next((name for name in native if to_snake_case(name) not in _PART_METADATA), "thought_signature")
            self.emit_opaque(kind, native)

    def _emit_searches(self, parts: grounding.ToolParts) -> None:
        for part in parts:
            self._begin_part(None)
            self.emit.whole_part(part, item=part.tool_call_id)

    # --- calls -----------------------------------------------------------------------------------------------

    def _read_call(self, call: Object, part: Part, candidate_index: int, part_index: int, data: bytes) -> None:
        name = text_of(call, "name")
        if self._partial_call is not None and not name:
            self._partial_call.add_fragment(call)
            if self._partial_call.is_complete:
                self._end_partial_call()
            return
        self._begin_part(None)
        if not name:
            if call:
                self._emit_unknown_part(candidate_index, part_index, data)
            return
        if call.get("willContinue") or call.get("partialArgs"):
            self._partial_call = PartialCall(call, part.thought_signature)
            if self._partial_call.is_complete:
                self._end_partial_call()
            return
        args = call.get("args")
        self._emit_tool_call(
            name, args if isinstance(args, dict | str) and args else {}, text_of(call, "id"), part.thought_signature
        )

    def _emit_tool_call(self, name: str, args: Object | str, call_id: str | None, signature: str | None) -> None:
        self._has_tool_calls = True
        self.emit.tool_call(
            self._part_key,
            args,
            name=name,
            call_id=call_id,
            signature=signature or None,
            details=signature_details(signature),
        )

    def _end_partial_call(self, is_complete: bool = True) -> None:
        """Emit the call that came in pieces. If it is not complete, its arguments are incomplete JSON."""
        call, self._partial_call = self._partial_call, None
        if call is not None:
            self._emit_tool_call(
                call.name, call.args if is_complete else call.truncated_args(), call.id, call.signature
            )

    # --- the end ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        if self._interactions is not None:
            self._interactions.flush()
            return
        self._read_skipped_usage()
        if self._partial_call is not None:
            self._end_partial_call(is_complete=self.finished or self._partial_call.is_complete)
        if self._grounding is not None:
            metadata, self._grounding = self._grounding, None
            if self.emit.is_open(self._part_key) and self._part_kind == "text":
                annotations = grounding.citations(metadata, self._part_text.value(), self._bytes_before)
                self.emit.text(self._part_key, item=self._part_key, annotations=annotations or None)
            if not self._has_builtin_tools:
                self._emit_searches(grounding.search_parts(metadata, self.emit.origin.provider))
        if self._usage:
            self.emit.usage = read_usage(self._usage)
            for name in ("trafficType", "serviceTier"):
                self._store_details(**{name: self._usage.get(name)})

    def end_normally(self) -> None:
        if self._interactions is not None:
            self._interactions.end_normally()
            return
        emit = self.emit
        if self._finish_error is not None:
            self.fail(self._finish_error)
        elif emit.finish_reason == "stop" and self._has_tool_calls:
            # Google has no finish reason for calls.
            emit.finish("tool_call", emit.native_finish_reason)


_FEEDBACK_DETAILS = ("blockReasonMessage", "safetyRatings")
_CANDIDATE_DETAILS = ("safety_ratings", "citation_metadata", "logprobs_result", "avg_logprobs")
_PART_METADATA = ("thought", "thought_signature", "video_metadata", "media_resolution", "part_metadata")
"""Fields of a part that are not its content; parts of any kind may have them."""

_ERROR_KINDS: dict[str, ErrorKind] = {"MISSING_THOUGHT_SIGNATURE": "invalid_request", "LANGUAGE": "unsupported"}

_ERROR_MESSAGES = {
    "LANGUAGE": "the provider's model does not support the requested language",
    "MALFORMED_FUNCTION_CALL": "the provider could not parse a call of its model",
    "MALFORMED_RESPONSE": "the provider could not parse its model's output",
    "UNEXPECTED_TOOL_CALL": "the provider's model called a tool that was not offered",
    "TOO_MANY_TOOL_CALLS": "the provider's model called tools too many times in a row",
    "MISSING_THOUGHT_SIGNATURE": "the history that was sent lacks a thought signature; return the model's calls and "
    "reasoning unchanged",
    "NO_IMAGE": "the provider's model created no image",
}


_is_seconds = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?s").fullmatch


def _tool_name(tool: Object) -> str:
    kind = text_of(tool, "toolType") or ""
    return TOOL_NAMES.get(kind, kind.lower()) or UNNAMED_TOOL


def error_from_object(error: Any) -> ErrorInfo:
    """Return the error for Google's error object. Its `status` is the code, and a detail may hold the retry delay."""
    info = error_from_value({"error": error})
    if not isinstance(error, dict):
        return info
    for detail in objects_in(error.get("details")):
        delay = text_of(detail, "retryDelay") or ""
        if _is_seconds(delay):
            info = replace(info, retry_after=float(delay[:-1]))
    return replace(info, code=as_code(text_of(error, "status")) or info.code)
