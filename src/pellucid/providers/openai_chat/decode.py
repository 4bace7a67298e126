"""Decoder of Chat Completions responses: a stream chunk by chunk, or a whole body.

Within a chunk, reasoning comes first, then the provider's own tools, text, images, refusal, calls. The wire does not
mark the end of a block: a block ends with the next one, or with the response.
"""

from __future__ import annotations

from typing import Any

from ...parts import FilePart, FinishReason, Origin
from ..errors import error_from_value
from ..frame_template import WORD, SkipRule, varying_value
from ..lenient_json import decode_lenient_json, dict_of, text_of
from ..media import split_data_url
from ..profile import Profile
from ..stream_decoder import WireReader
from ..tagged_text import TEXT
from .calls import TOOL_USE_FAILED, ToolCallReader, quoted_calls
from .chunk import ChatToolCall, Choice, Chunk, Delta, chunk_reader, read_usage
from .content import REASONING, DuplicateReasoningFilter, FragmentMerger, make_content_reader
from .details import DetailsReader

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "error": "error",
    "network_error": "error",
    "insufficient_system_resource": "error",
}

REFUSAL = "refusal"


class ChatCompletionsReader(WireReader):
    """The state of one response."""

    wire = "Chat Completions"
    code = "not_chat_completions"
    varying_values = (varying_value(b"obfuscation", WORD),)
    ignored_fields = (
        *("object", "created", "system_fingerprint", "service_tier", "provider", "request_id", "obfuscation"),
        *("choices[].delta.role", "choices[].delta.tool_calls[].type"),
        *("choices[].message.role", "choices[].message.tool_calls[].type"),
        # What was filtered, why a text stopped, tokens by number, and times.
        *("prompt_filter_results", "choices[].content_filter_results", "choices[].stop_reason"),
        *("choices[].matched_stop", "choices[].token_ids", "prompt_token_ids", "choices[].delta.token_id"),
        *("choices[].seed", "timings", "time_info", "usage_breakdown", "kv_transfer_params"),
    )

    def __init__(self, profile: Profile, origin: Origin) -> None:
        super().__init__(origin, profile.form)
        self._profile = profile
        self._read_chunk, self.frame_type, self._fields = chunk_reader(profile.reasoning_fields)
        plain = profile.merge == "incremental" and profile.repeats == "keep"
        self._merger = None if plain else FragmentMerger(profile.merge, profile.repeats)
        self._details = DetailsReader(self.emit, profile)
        self._duplicates = DuplicateReasoningFilter(self.emit, REASONING)
        """Filters reasoning that a sibling field has sent, in case details or tags repeat it."""
        self._content = make_content_reader(profile, self.emit, self._duplicates)
        self._is_paused = True
        """Whether no content is held back."""
        self._calls = ToolCallReader(self.emit)
        self._has_streamed = False
        self._choice_index: int | None = None
        """The index of the choice that is read: the first one received, which nearly all servers number 0."""

    # --- frames ----------------------------------------------------------------------------------------------

    def read_frame(self, data: bytes, name: str) -> None:
        chunk, is_error = self._read_chunk(data), name == "error"
        if chunk is None:
            self.fail_unreadable(data, name)
            return
        choices = chunk.choices
        self.is_recognized = self.is_recognized or choices is not None or chunk.usage is not None
        if chunk.id or chunk.model:
            emit = self.emit
            # Every chunk repeats these two strings; only new values are passed on.
            if emit.provider_response_id is None or emit.model_name is None:
                emit.start(chunk.id or None, chunk.model or None)
        if choices:
            for choice in choices:
                # Only one choice was requested; a second choice would be another answer.
                if self._choice_index is None:
                    self._choice_index = choice.index
                if choice.index == self._choice_index:
                    self._read_choice(choice)
        if chunk.usage:
            self.emit.usage = read_usage(chunk.usage, self._profile.reasoning_tokens)
        if chunk.error or chunk.x_groq or chunk.base_resp or is_error or choices is None:
            self._read_side_fields(chunk, data, is_error)

    def _read_side_fields(self, chunk: Chunk, data: bytes, is_error: bool) -> None:
        """Read the other fields of a chunk: the several forms of errors, and Groq's second usage."""
        groq = chunk.x_groq or {}
        if not chunk.usage and isinstance(groq.get("usage"), dict):
            self.emit.usage = read_usage(groq["usage"], self._profile.reasoning_tokens)
        status = (chunk.base_resp or {}).get("status_code")
        error = chunk.error or groq.get("error") or (chunk.base_resp if status else None)
        if error and (calls := quoted_calls(error, self.offered_tools)):
            self._emit_quoted(calls)
        elif error:
            self.fail(error_from_value({"error": error}))
        elif is_error or (chunk.choices is None and (chunk.message or chunk.detail)):
            self.fail(error_from_value(decode_lenient_json(data)))

    def _emit_quoted(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        """Emit the calls that an error quotes in place of the error."""
        self.flush()
        self.is_recognized = self.finished = self.done = True
        for index, (name, arguments) in enumerate(calls):
            self.emit.tool_call(("quoted", index), arguments, name=name)
        self.emit.finish("tool_call", TOOL_USE_FAILED)

    def flush(self) -> None:
        """Write what was held back because it could have become a marker, or had no name."""
        self._content.end()
        self._calls.flush()

    def end_normally(self) -> None:
        if self.emit.native_finish_reason is None:
            # Some servers send no finish reason (Snowflake). The content shows it.
            self.emit.finish("tool_call" if self._calls.has_calls else "stop")

    # --- one choice ------------------------------------------------------------------------------------------

    def _read_choice(self, choice: Choice) -> None:
        delta = choice.delta
        is_whole = delta is None
        if is_whole:
            # A body; or, at the end of a stream, the whole answer again (MiniMax, Perplexity).
            delta = None if self._has_streamed else choice.message
            self.finished = True
        else:
            self._has_streamed = True
        if delta is not None:
            self._read_reasoning(delta, is_whole)
            if delta.executed_tools:
                self._pause_content()
                self._calls.read_executed(delta.executed_tools)
            content = delta.content
            if content:
                if type(content) is str:
                    self._feed_content(content, choice.logprobs.content if choice.logprobs is not None else None)
                elif isinstance(content, list):
                    self._read_content_parts(content)
            if delta.annotations:
                self.emit.text(TEXT, annotations=delta.annotations)
            if delta.images:
                self._read_images(delta.images)
            if delta.refusal:
                self._pause_content()
                self.emit.refusal(REFUSAL, delta.refusal)
            calls = delta.tool_calls or []
            if delta.function_call is not None:
                calls = [*calls, ChatToolCall(index=0, function=delta.function_call)]
            if calls:
                self._pause_content()
                for call in calls:
                    self._calls.read(call)
            if delta.reasoning_details or delta.executed_tools:
                self.skip_rule = None
        if choice.finish_reason:
            self.finished = True
            self.emit.finish(
                FINISH_REASONS.get(choice.finish_reason), choice.native_finish_reason or choice.finish_reason
            )

    def _read_reasoning(self, delta: Delta, is_whole: bool) -> None:
        details = delta.reasoning_details
        if details:
            self._pause_content()
            if self._details.read(details, self._duplicates.remaining(), is_whole=is_whole):
                # The sibling field only repeats the details.
                return
        for field in self._fields:
            text = getattr(delta, field, None)
            if text and type(text) is str:
                if self._merger is not None:
                    text = self._merger.new_text(text)
                if text:
                    self._emit_reasoning(text)
                break
        if delta.reasoning_opaque:
            self.emit.thinking(REASONING, signature=delta.reasoning_opaque)

    def _emit_reasoning(self, text: str) -> None:
        if not self._is_paused:
            self._pause_content()
        self._duplicates.has_first = True
        self.emit.thinking(REASONING, text)
        if self._merger is None:
            self.skip_rule = SkipRule()

    def _feed_content(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        self._is_paused = False
        self._content.feed(text, logprobs)
        # A second copy of reasoning is not emitted as it arrives.
        repeats = self._duplicates.has_first and self.emit.is_open(REASONING)
        self.skip_rule = None if repeats else self._content.skip_rule

    def _pause_content(self) -> None:
        """Release held content, because something else follows."""
        self.skip_rule = None
        self._content.pause()
        self._is_paused = True

    def _read_images(self, images: list[dict[str, Any]]) -> None:
        """Read images that the model made: OpenRouter sends them next to the content, as `data:` URLs."""
        self._pause_content()
        for entry in images:
            url = split_data_url(text_of(dict_of(entry, "image_url"), "url"))
            if url is not None and url[1]:
                self.emit.whole_part(FilePart(url[2], url[0], provider_name=self.emit.origin.provider))
            else:
                self.emit_opaque("image", entry)

    def _read_content_parts(self, content: list[Any]) -> None:
        """Read content that is a list of typed parts, as Mistral and some compatible servers send it."""
        self.skip_rule = None
        for entry in content:
            entry = {"type": "text", "text": entry} if isinstance(entry, str) else entry
            if not isinstance(entry, dict):
                continue
            kind, text = entry.get("type"), entry.get("text")
            if kind == "thinking":
                inner = entry.get("thinking")
                pieces = inner if isinstance(inner, list) else [{"text": inner}]
                text = "".join(p["text"] for p in pieces if isinstance(p, dict) and isinstance(p.get("text"), str))
                self._pause_content()
                self.emit.thinking(REASONING, text, signature=entry.get("signature") or None)
            elif isinstance(text, str):
                self._is_paused = False
                self._content.feed(text)
            elif isinstance(kind, str):
                self._pause_content()
                self.emit_opaque(kind, entry)
