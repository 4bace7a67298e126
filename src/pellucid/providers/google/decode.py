"""Bytes of a Gemini answer to events: a stream of events, a JSON array that comes in pieces, or a whole body.

How parts are told apart, which the wire does not say:

* In a stream, text after text and thought after thought is the same part going on; anything else ends it, but for
  empty text, which is nothing. In a whole body every part is one.
* A signature belongs to the part that it came with. In a stream that is the run of which its fragment is a piece: 2.5
  signs the first fragment, 3 an empty one at the end. A second signature in one run begins another part, since two
  signatures cannot be one.
* A signature with nothing at all beside it is kept as an opaque part.

`signature` is our name for it. Under Google's own, `provider_details["thought_signature"]`, it stands on every part
as well: what the provider's own tools returned has no other place, and who reads one place must not miss it on some.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from msgspec.structs import replace

from ...errors import ErrorInfo, ErrorKind
from ...framing.json_array import JSONArrayDecoder
from ...framing.sse import DEFAULT_LIMIT, SSE
from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart, FilePart, FinishReason, OpaquePart, Origin
from ...text import GrowingText
from ..answer import AnswerDecoder, EventFrames, Frame, Reader
from ..faults import TURN_FAILED, a_word, fault_of_value
from ..frame_template import NUMBER, SkipRule, unread
from ..profile import Profile
from . import grounding
from .chunk import Candidate, Chunk, Object, Part, PartialCall, native_part, read_chunk, read_usage, snake
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
"""What is not here (`OTHER`, and what is new) is no reason that we know."""

TOOL_NAMES = {"GOOGLE_SEARCH_WEB": "web_search", "URL_CONTEXT": "web_fetch"}
"""Our names for Google's own tools; of others, its name in small letters."""

UNNAMED_TOOL = "media_processing"
"""The one tool that Google runs without saying its type."""

BODY = "body"
"""The name of a frame that is a whole answer."""

_Kind = Literal["text", "thought"]


def decoder(row: Profile, origin: Origin, content_type: str = "text/event-stream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first bytes; the header is sometimes wrong."""
    return AnswerDecoder(AnswerReader(row, origin), AnswerFrames())


class AnswerFrames:
    """Server-sent events, the elements of an array, or a whole body."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._blank = b""
        self._frames: EventFrames | None = None
        self._array: JSONArrayDecoder | None = None
        self._whole = False
        self._any = False

    @property
    def idle(self) -> bool:
        framing = self._frames or self._array
        return framing is not None and framing.idle

    def cut(self, data: bytes) -> int:
        return self._frames.cut(data) if self._frames is not None else data.find(b"\n,", 1)

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
                self._whole = first in (b"{", b"<")
                self._frames = EventFrames(self._limit)
                return self._frames.feed(data)
            self._array = JSONArrayDecoder(self._limit)
        frames = [SSE("", element) for element in self._array.feed(data)]
        self._any = self._any or bool(frames)
        if self._array.closed and self._any:
            frames.append(SSE("", b"[DONE]"))
        return frames

    def end(self) -> list[Frame]:
        if self._array is not None:
            return [SSE("", rest) for rest in self._array.end()]
        name = BODY if self._whole else ""
        return [SSE(name, frame) for _, frame in self._frames.end()] if self._frames is not None else []


class AnswerReader(Reader):
    """Reads a `generateContent` answer; or an interaction, as which the first frame may show itself."""

    wire = "Gemini generateContent"
    code = "not_gemini"
    unread = (unread(b"(?:total|thoughts|candidates)TokenCount", NUMBER),)

    def __init__(self, row: Profile, origin: Origin) -> None:
        super().__init__(origin)
        self._form = row.form
        self._interaction: InteractionsReader | None = None
        self._frames = 0
        self._whole = False
        # The run of text or thought under way.
        self._kind: _Kind | None = None
        self._key: tuple[str, int] = ("", 0)
        self._signed = False
        self._text = GrowingText()
        """The text of the last run, and how many bytes of text came before it: citations count in them."""
        self._before = 0
        # Calls.
        self._runs = 0
        self._called = False
        self._partial: PartialCall | None = None
        self._code_id = ""
        self._own_tools = False
        # What is told at the end.
        self._usage: Object = {}
        self._grounding: Object | None = None
        self._fault: ErrorInfo | None = None

    # --- frames ----------------------------------------------------------------------------------------------

    def frame(self, data: bytes, name: str) -> None:
        self._frames += 1
        if self._frames == 1 and is_interaction(data):
            self._interaction = InteractionsReader(self, self._form)
        if self._interaction is not None:
            self._interaction.frame(data)
            return
        chunk = read_chunk(data)
        if chunk is None:
            if data.strip():
                self.refuse(data)
            return
        self._whole = name == BODY
        self._count_skipped()
        emit = self.emit
        # The same two strings come with every chunk; only news is passed on.
        if (chunk.response_id or chunk.model_version) and (
            emit.provider_response_id is None or emit.model_name is None
        ):
            emit.start(chunk.response_id or None, chunk.model_version or None)
        if chunk.usage_metadata:
            self.heard = True
            self._count(chunk.usage_metadata)
        if chunk.candidates:
            self.heard = True
            for at, candidate in enumerate(chunk.candidates):
                # Only one answer was asked for; a second candidate would be another answer.
                if candidate.index == 0:
                    self._candidate(candidate, at, data)
                    content = candidate.content
                    if content is None or candidate != Candidate(content=content) or len(content.parts or ()) > 1:
                        self.skip_rule = None
                    break
        if chunk.error is not None or not chunk.candidates:
            self._aside(chunk, data)

    def _count_skipped(self) -> None:
        """The counts of the last chunk that was skipped. It counted all that those before it did."""
        last, self.last_skipped = self.last_skipped, b""
        if last:
            chunk = read_chunk(last[last.index(b"{") : last.rindex(b"}") + 1])
            if chunk is not None and chunk.usage_metadata:
                self._count(chunk.usage_metadata)

    def _count(self, counted: Object) -> None:
        """Counts are cumulative; a later chunk may tell less of them, or of some that it tells nothing."""
        self._usage = {**self._usage, **{name: value for name, value in counted.items() if value is not None}}

    def _aside(self, chunk: Chunk, data: bytes) -> None:
        """What comes instead of an answer: an error, or why the prompt was refused."""
        feedback = chunk.prompt_feedback or {}
        reason = feedback.get("blockReason")
        if chunk.error:
            self.heard = True
            self.fail(fault(chunk.error))
        elif isinstance(reason, str):
            self.heard = self.finished = True
            self.emit.finish("content_filter", reason)
            self._keep(blockReason=reason, **{name: feedback.get(name) for name in _FEEDBACK})
        elif not (chunk.usage_metadata or chunk.response_id or chunk.model_version or chunk.candidates is not None):
            self.refuse(data)
        self.finished = self.finished or self._whole

    def _candidate(self, candidate: Candidate, at: int, data: bytes) -> None:
        pages = candidate.url_context_metadata
        if pages is not None and not self._own_tools:
            self._searched(grounding.fetches(pages, self.emit.origin.provider))
        content = candidate.content
        if content is not None and content.parts:
            for position, part in enumerate(content.parts):
                text = part.text
                if text is not None:
                    self._written("thought" if part.thought else "text", text, part.thought_signature)
                else:
                    self._other(part, at, position, data)
        if candidate.grounding_metadata is not None:
            self._grounding = candidate.grounding_metadata
            self._keep(groundingMetadata=self._grounding)
        reason = candidate.finish_reason
        if reason:
            self._finish(reason, candidate)
        self.finished = self.finished or self._whole

    def _finish(self, reason: str, candidate: Candidate) -> None:
        self.finished = True
        mapped = FINISH_REASONS.get(reason.upper())
        self.emit.finish(mapped, reason)
        self._fault = None
        if mapped == "error":
            self._fault = ErrorInfo(
                _KIND_OF_REASON.get(reason.upper(), "model_error"),
                _WORDS_OF_REASON.get(reason.upper(), TURN_FAILED),
                code=reason.upper(),
                said=candidate.finish_message or reason,
            )
        self._keep(**{snake_name: getattr(candidate, snake_name) for snake_name in _OF_CANDIDATE})

    def _keep(self, **told: Any) -> None:
        """What the provider told about its answer, for those who know it."""
        self.emit.provider_details |= {snake(name): value for name, value in told.items() if value}

    # --- parts -----------------------------------------------------------------------------------------------

    def _written(self, kind: _Kind, text: str, signature: str | None) -> None:
        """More of a text or a thought."""
        if not text and not signature:
            return
        if kind != self._kind or self._whole or (signature and self._signed):
            self._begin(kind)
        details = None
        if signature:
            self._signed = True
            details = {"thought_signature": signature}
        self._more(kind, text, signature, details)

    def _more(self, kind: _Kind, text: str, signature: str | None = None, details: Object | None = None) -> None:
        """More of the run under way."""
        if kind == "text":
            self._text.add(text)
            self.emit.text(self._key, text, item=self._key, signature=signature or None, details=details)
        else:
            self.emit.thinking(self._key, text, form=self._form, signature=signature or None, details=details)
        self.skip_rule = SkipRule(on_skip=self._text.add if kind == "text" else None)

    def _begin(self, kind: _Kind | None) -> None:
        """Another part begins: a run of this kind, or something whole."""
        if self._partial is not None:
            self._call_is_over()
        self._kind = kind
        self._signed = False
        self._runs += 1
        self._key = (kind or "whole", self._runs)
        if kind == "text":
            self._before += len(self._text.take().encode("utf-8", "replace"))

    def _other(self, part: Part, at: int, position: int, data: bytes) -> None:
        if part.function_call is not None:
            self._call(part.function_call, part, at, position, data)
            return
        self._begin(None)
        if (file := part.inline_data) is not None and isinstance(file.get("data"), str):
            media_type = _text(file.get("mimeType")) or "application/octet-stream"
            self.emit.whole(FilePart(file["data"], media_type, part.thought, **self._signed_by(part)))
        elif (code := part.executable_code) is not None:
            self._code_id = _text(code.get("id")) or f"code_execution_{self._runs}"
            self._own_call("code_execution", code, self._code_id, part)
        elif (result := part.code_execution_result) is not None:
            self._own_return("code_execution", result, _text(result.get("id")) or self._code_id, part)
        elif (tool := part.tool_call) is not None:
            self._own_tools = True
            self._own_call(_tool_name(tool), tool.get("args"), _text(tool.get("id")), part)
        elif (tool := part.tool_response) is not None:
            self._own_tools = True
            self._own_return(_tool_name(tool), tool.get("response"), _text(tool.get("id")), part)
        else:
            self._unknown(at, position, data)

    def _own_call(self, name: str, args: Any, call_id: str, part: Part) -> None:
        given = args if isinstance(args, dict) else None
        self.emit.whole(BuiltinToolCallPart(name, given, call_id, **self._signed_by(part)), item=call_id or None)

    def _own_return(self, name: str, content: Any, call_id: str, part: Part) -> None:
        signed = self._signed_by(part)
        del signed["signature"]  # a return has no place for it but among its details
        self.emit.whole(BuiltinToolReturnPart(name, content, call_id, **signed), item=call_id or None)

    def _signed_by(self, part: Part) -> dict[str, Any]:
        """Whose a whole part is, and its signature."""
        signature = part.thought_signature or None
        details = {"thought_signature": signature} if signature else None
        return {"signature": signature, "provider_name": self.emit.origin.provider, "provider_details": details}

    def _unknown(self, at: int, position: int, data: bytes) -> None:
        """A part of a kind that is not known here, kept as it came. An empty one is nothing."""
        native = native_part(data, at, position)
        if native:
            kind = next((name for name in native if snake(name) not in _BESIDE), "thought_signature")
            self.emit.whole(OpaquePart(kind, native, provider_name=self.emit.origin.provider))

    def _searched(self, found: grounding.Searches) -> None:
        for part in found:
            self._begin(None)
            self.emit.whole(part, item=part.tool_call_id)

    # --- calls -----------------------------------------------------------------------------------------------

    def _call(self, call: Object, part: Part, at: int, position: int, data: bytes) -> None:
        named = _text(call.get("name"))
        if self._partial is not None and not named:
            self._partial.add(call)
            if self._partial.over:
                self._call_is_over()
            return
        self._begin(None)
        if not named:
            if call:
                self._unknown(at, position, data)
            return
        if call.get("willContinue") or call.get("partialArgs"):
            self._partial = PartialCall(call, part.thought_signature)
            if self._partial.over:
                self._call_is_over()
            return
        args = call.get("args")
        self._tool_call(
            named, args if isinstance(args, dict | str) and args else {}, call.get("id"), part.thought_signature
        )

    def _tool_call(self, name: str, args: Object | str, call_id: Any, signature: str | None) -> None:
        self._called = True
        self.emit.tool_call(
            self._key,
            args,
            name=name,
            call_id=_text(call_id) or None,
            signature=signature or None,
            details={"thought_signature": signature} if signature else None,
        )

    def _call_is_over(self, whole: bool = True) -> None:
        """The call that came in pieces is told; if it was broken off, with arguments that show it."""
        call, self._partial = self._partial, None
        if call is not None:
            self._tool_call(call.name, call.args if whole else call.broken_off(), call.id, call.signature)

    # --- the end ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        if self._interaction is not None:
            self._interaction.flush()
            return
        self._count_skipped()
        if self._partial is not None:
            self._call_is_over(whole=self.finished or self._partial.over)
        if self._grounding is not None:
            metadata, self._grounding = self._grounding, None
            if self.emit.is_open(self._key) and self._kind == "text":
                cited = grounding.citations(metadata, self._text.value(), self._before)
                self.emit.text(self._key, item=self._key, annotations=cited or None)
            if not self._own_tools:
                self._searched(grounding.searches(metadata, self.emit.origin.provider))
        if self._usage:
            self.emit.usage = read_usage(self._usage)
            for name in ("trafficType", "serviceTier"):
                self._keep(**{name: self._usage.get(name)})

    def settle(self) -> None:
        if self._interaction is not None:
            self._interaction.settle()
            return
        emit = self.emit
        if self._fault is not None:
            self.fail(self._fault)
        elif emit.finish_reason == "stop" and self._called:
            # Google has no word for it.
            emit.finish("tool_call", emit.native_finish_reason)


_FEEDBACK = ("blockReasonMessage", "safetyRatings")
_OF_CANDIDATE = ("safety_ratings", "citation_metadata", "logprobs_result", "avg_logprobs")
_BESIDE = ("thought", "thought_signature", "video_metadata", "media_resolution", "part_metadata")
"""What stands beside the content of a part, of whatever kind it is."""

_KIND_OF_REASON: dict[str, ErrorKind] = {"MISSING_THOUGHT_SIGNATURE": "invalid_request", "LANGUAGE": "unsupported"}

_WORDS_OF_REASON = {
    "LANGUAGE": "the upstream's model does not speak the language that was asked for",
    "MALFORMED_FUNCTION_CALL": "the upstream could not read a call that its model wrote",
    "MALFORMED_RESPONSE": "the upstream could not read what its own model wrote",
    "UNEXPECTED_TOOL_CALL": "the upstream's model called a tool that it was not given",
    "TOO_MANY_TOOL_CALLS": "the upstream's model called tools too many times in a row",
    "MISSING_THOUGHT_SIGNATURE": "the history that the upstream got lacks a thought signature; send back its calls and "
    "reasoning as they came",
    "NO_IMAGE": "the upstream's model made no image",
}


_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?s").fullmatch


def _tool_name(tool: Object) -> str:
    kind = _text(tool.get("toolType"))
    return TOOL_NAMES.get(kind, kind.lower()) or UNNAMED_TOOL


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def fault(error: Any) -> ErrorInfo:
    """Google's error object: `status` is the word for it, and a detail may say when to try again."""
    info = fault_of_value({"error": error})
    if not isinstance(error, dict):
        return info
    details = error.get("details")
    for detail in details if isinstance(details, list) else []:
        delay = _text(detail.get("retryDelay")) if isinstance(detail, dict) else ""
        if _SECONDS(delay):
            info = replace(info, retry_after=float(delay[:-1]))
    return replace(info, code=a_word(_text(error.get("status"))) or info.code)
