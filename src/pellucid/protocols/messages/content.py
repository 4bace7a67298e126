"""Converts the messages of a request to parts.

The order of blocks is kept. Of a `thinking` block whose signature was sealed here, the token is opened in its place;
its text shows whether the client changed it. A signature that was not made here cannot be verified: it is left
out, and the text is reasoning of unknown origin. A `redacted_thinking` block holds a token, or is left out.

What only Anthropic's models understand goes to them unchanged, and to no other: fields of a block that are not listed
in `types` (`cache_control`, `citations`) as `wire_fields` of its part, and blocks of other types (results of server
tools, search results, container uploads) as `OpaquePart`, and as text whose fields are the whole block.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from ...parts import (
    File,
    Image,
    ModelMessage,
    ModelResponsePart,
    OpaquePart,
    SealedPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    WireFields,
    json_text,
)
from ...server_tool_blocks import WIRE
from ...unicode import describe_validation_error, truncate
from ..decoding import invalid
from ..message_parts import append_part
from . import types as t

T = TypeVar("T", bound=msgspec.Struct)

Block = dict[str, Any]


class Conversation:
    """The parts of a request's system prompt and messages."""

    def __init__(self, body: t.CountTokens) -> None:
        """Convert the messages.

        Raises:
            RequestError: A block is invalid; the error names its path.
        """
        self.messages: list[ModelMessage] = []
        self.warnings: list[str] = []
        """Blocks that are left out."""
        self.token_paths: dict[str, str] = {}
        """The path of each sealed token in the request."""
        self._call_ids: set[str] = set()
        """The ids of all calls."""
        self._pending_calls: dict[str, str] = {}
        """Names of the functions that the last assistant message called and whose result is missing, by call id."""
        self._foreign_signatures = 0
        if body.system:
            self._add_system(body.system, "system")
        for index, message in enumerate(body.messages):
            path = f"messages[{index}].content"
            if message.role == "system":
                self._add_system(message.content, path, role="system")
            elif message.role == "user":
                self._add_user(message.content, path)
            else:
                if index and body.messages[index - 1].role != "assistant":
                    self._pending_calls.clear()
                self._add_assistant(message.content, path)
        if self._foreign_signatures:
            self.warnings.append(
                f"{self._foreign_signatures} thinking block(s) have data that was not made here: of them only the "
                "text, if there is any, is used"
            )

    def _add_system(self, content: str | list[Block], path: str, *, role: str | None = None) -> None:
        """Add a system prompt: one text for most models, and for Anthropic's the blocks as they came.

        Args:
            content: The prompt.
            path: Its path in the request.
            role: The role of a prompt that stands among the messages.
        """
        fields: dict[str, Any] = {} if role is None else {"role": role, "content": content}
        if isinstance(content, list):
            fields["content"] = content
            texts = []
            for index, block in enumerate(content):
                if _type_of(block, f"{path}[{index}]") != "text":
                    raise invalid(f"{path}[{index}].type", "a system prompt consists of text blocks")
                texts.append(convert_block(block, t.TextParam, f"{path}[{index}]").text)
            content = "\n\n".join(texts)
        append_part(self.messages, SystemPromptPart(content, wire_fields={WIRE: fields} if fields else None))

    # --- user messages -----------------------------------------------------------------------------------------

    def _add_user(self, content: str | list[Block], path: str) -> None:
        if isinstance(content, str):
            append_part(self.messages, UserPromptPart(content))
            return
        if not content:
            raise invalid(path, "the content of a user message must not be empty")
        prompt: list[UserContent] = []
        for index, block in enumerate(content):
            block_path = f"{path}[{index}]"
            if _type_of(block, block_path) != "tool_result":
                prompt.append(_content(block, block_path))
                continue
            if prompt:
                append_part(self.messages, UserPromptPart(_simplified(prompt)))
                prompt = []
            append_part(self.messages, self._tool_result(block, block_path))
        if prompt:
            append_part(self.messages, UserPromptPart(_simplified(prompt)))

    def _tool_result(self, block: Block, path: str) -> ToolReturnPart:
        result = convert_block(block, t.ToolResultParam, path)
        id = result.tool_use_id
        name = self._pending_calls.pop(id, None)
        if name is None:
            problem = (
                f"the tool_use with the id {truncate(id)!r} has its result already, or is not in the message before"
                if id in self._call_ids
                else f"no tool_use with the id {truncate(id)!r} comes before this result"
            )
            raise invalid(f"{path}.tool_use_id", f"{problem}; each tool_use has one tool_result, in the next message")
        content: Any = result.content
        if isinstance(content, list):
            contents = [_content(entry, f"{path}.content[{index}]") for index, entry in enumerate(content)]
            content = _simplified(contents)
        return ToolReturnPart(
            name,
            content or "",
            id,
            outcome="failed" if result.is_error else "success",
            wire_fields=wire_fields(block, t.ToolResultParam),
        )

    # --- assistant messages ------------------------------------------------------------------------------------

    def _add_assistant(self, content: str | list[Block], path: str) -> None:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts: list[ModelResponsePart] = []
        for index, block in enumerate(blocks):
            parts += self._assistant_parts(block, f"{path}[{index}]")
        for part in parts:
            append_part(self.messages, part)

    def _assistant_parts(self, block: Block, path: str) -> list[ModelResponsePart]:
        match _type_of(block, path):
            case "text":
                text = convert_block(block, t.TextParam, path).text
                return [TextPart(text, wire_fields=wire_fields(block, t.TextParam))]
            case "thinking":
                thought = convert_block(block, t.ThinkingBlockParam, path)
                return self._reasoning(thought.signature or "", thought.thinking, f"{path}.signature")
            case "redacted_thinking":
                return self._reasoning(convert_block(block, t.RedactedThinkingParam, path).data, None, f"{path}.data")
            case "tool_use":
                call = convert_block(block, t.ToolUseParam, path)
                if call.id in self._call_ids:
                    raise invalid(
                        f"{path}.id", f"another tool_use has the id {truncate(call.id)!r}; ids must be unique"
                    )
                self._call_ids.add(call.id)
                self._pending_calls[call.id] = call.name
                return [ToolCallPart(call.name, call.input, call.id, wire_fields=wire_fields(block, t.ToolUseParam))]
            case "tool_result":
                raise invalid(f"{path}.type", "a tool_result belongs in a user message")
            case type:
                return [OpaquePart(type, block, wire=WIRE, text=_readable(block))]

    def _reasoning(self, signature: str, text: str | None, path: str) -> list[ModelResponsePart]:
        if _is_token(signature):
            self.token_paths[signature] = path
            return [SealedPart(signature, visible_texts=(text,) if text else ())]
        self._foreign_signatures += bool(signature)
        return [ThinkingPart(text)] if text else []


def _is_token(signature: str) -> bool:
    """Whether a signature has the form of a sealed token, or of the beginning of one.

    A compact JWE has five parts, separated by dots, and begins with a JSON object in base64 (RFC 7516). The signatures
    of providers are base64 of other data, without dots.
    """
    return signature.count(".") == 4 or signature.startswith("eyJ")


# --- blocks ------------------------------------------------------------------------------------------------------


def _content(block: Block, path: str) -> UserContent:
    match _type_of(block, path):
        case "thinking" | "redacted_thinking" | "tool_use" as type:
            raise invalid(f"{path}.type", f"a {type} block belongs in an assistant message")
        case "text":
            text = convert_block(block, t.TextParam, path).text
            return Text(text, wire_fields=wire_fields(block, t.TextParam))
        case "image":
            source, fields = convert_block(block, t.ImageParam, path).source, _source_fields(block, t.ImageParam)
            match source:
                case t.SourceParam(type="base64", data=str(data)):
                    return Image(data=data, media_type=source.media_type, wire_fields=fields)
                case t.SourceParam(type="url", url=str(url)):
                    return Image(url=url, wire_fields=fields)
                case t.SourceParam(type="file", file_id=str(id)):
                    return Image(file_id=id, wire_fields=fields)
        case "document":
            document, fields = convert_block(block, t.DocumentParam, path), _source_fields(block, t.DocumentParam)
            source, name = document.source, document.title
            match source:
                case t.SourceParam(type="base64", data=str(data)):
                    return File(data=data, media_type=source.media_type, filename=name, wire_fields=fields)
                case t.SourceParam(type="url", url=str(url)):
                    return File(url=url, filename=name, wire_fields=fields)
                case t.SourceParam(type="file", file_id=str(id)):
                    return File(file_id=id, filename=name, wire_fields=fields)
                case t.SourceParam(type="text", data=str(text)):
                    data = b64encode(text.encode("utf-8", "replace")).decode()
                    return File(data=data, media_type="text/plain", filename=name, wire_fields=fields)
    return Text(_readable(block), wire_fields={WIRE: block})


def _readable(block: Block) -> str:
    """Return what models of other wires get of a block of a type that they do not have.

    Nothing of a call of a provider's own tool: they could not know its result.
    """
    texts = "\n".join(_readable_texts(block))
    if texts or block["type"].endswith("_tool_use"):
        return texts
    fields = {name: value for name, value in block.items() if name not in _NOT_READABLE}
    return f"[{block['type']}] {json_text(fields)}" if fields else f"[{block['type']}]"


_NOT_READABLE = ("type", "id", "tool_use_id", "source", "cache_control", "data", "signature")
_READABLE_FIELDS = ("title", "source", "text", "context", "content", "url")


def _readable_texts(value: Any, depth: int = 5) -> Iterator[str]:
    """Yield the texts of a block that people can read, in the order of the table."""
    if isinstance(value, list) and depth:
        for entry in value:
            yield from _readable_texts(entry, depth - 1)
    elif isinstance(value, dict) and depth:
        if value.get("type") == "text" and isinstance(value.get("data"), str):
            yield value["data"]  # the source of a document
        for name in _READABLE_FIELDS:
            inner = value.get(name)
            if isinstance(inner, str) and inner:
                yield inner
            elif inner:
                yield from _readable_texts(inner, depth - 1)


def _simplified(contents: list[UserContent]) -> str | list[UserContent]:
    """Return one plain text as a string, which means the same."""
    match contents:
        case [Text(wire_fields=None, text=text)]:
            return text
        case _:
            return contents


def wire_fields(block: Block, struct: type[msgspec.Struct]) -> WireFields | None:
    """Return the fields of a block that `struct` does not have, for the wire that knows them."""
    known = struct.__struct_fields__
    extra = {name: value for name, value in block.items() if name not in known and name != "type"}
    return {WIRE: extra} if extra else None


def _source_fields(block: Block, struct: type[t.ImageParam | t.DocumentParam]) -> WireFields | None:
    """Return the `wire_fields` of a block with a source: the source as it is if it has fields that are not known."""
    source = block["source"]
    if not source.keys() - set(t.SourceParam.__struct_fields__):
        return wire_fields(block, struct)
    return {WIRE: {**(wire_fields(block, struct) or {}).get(WIRE, {}), "source": source}}


def _type_of(block: Block, path: str) -> str:
    type = block.get("type")
    if not isinstance(type, str) or not type:
        raise invalid(f"{path}.type", "it is required: text, image, tool_use, tool_result, thinking, …", "missing")
    return type


def convert_block(block: Block, into: type[T], path: str) -> T:
    """Convert a block into a type. Raises `RequestError` with the path of the problem."""
    try:
        return msgspec.convert(block, into)
    except msgspec.ValidationError as error:
        problem, inner_path = describe_validation_error(str(error))
        field = f"{path}.{inner_path}".rstrip(".")
        raise invalid(field, problem) from None
