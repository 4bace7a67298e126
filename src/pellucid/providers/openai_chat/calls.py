"""Reader of function calls, which arrive in fragments, and of calls that the provider runs itself.

A call is identified by its index and its id. Servers leave out either, number every call 0, invent an id for every
fragment, or send the name late. This module decides which fragments belong to one call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from ...emit import Emitter, Key
from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart
from ..lenient_json import decode_lenient_json, dict_of
from ..tool_calls import FragmentedCall
from ..tool_schema import arguments_text
from .chunk import ChatToolCall


class ToolCallReader:
    """Writes fragments of calls to an emitter."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._calls_by_index: dict[int, list[FragmentedCall]] = {}
        """The calls of each index. Servers that number every call 0 distinguish them by id."""
        self._calls_by_id: dict[tuple[int | None, str], FragmentedCall] = {}
        """The calls by index and id, and by None and id for fragments without an index."""
        self._last_call: FragmentedCall | None = None
        self._emitted_executions: set[Key] = set()

    @property
    def has_calls(self) -> bool:
        """Whether the model has called a function."""
        return bool(self._calls_by_index)

    def flush(self) -> None:
        """Write the calls that never got a name."""
        for calls in self._calls_by_index.values():
            for call in calls:
                call.end_nameless()

    def read(self, fragment: ChatToolCall) -> None:
        """Read one fragment of a call."""
        function = fragment.function
        name = (function.name or None) if function is not None else None
        args = function.arguments if function is not None else None
        if not isinstance(args, dict) or not args:
            args = arguments_text(args)
        signature = _google_signature(fragment.extra_content)
        if not (name or args or fragment.id or signature):
            return
        call = self._call_of(fragment, name)
        if call.id is None and fragment.id:
            call.id = fragment.id
            self._register_ids(call, fragment.index)
        call.add(name, args, signature)

    def _call_of(self, fragment: ChatToolCall, name: str | None) -> FragmentedCall:
        """Return the fragment's call, or a new one."""
        id, index = fragment.id or None, fragment.index
        if id is not None and (call := self._calls_by_id.get((index, id))) is not None:
            self._last_call = call
            return call
        if index is None and id is None and name is None and self._last_call is not None:
            return self._last_call
        # A call without an index gets one that no server uses.
        calls = self._calls_by_index.setdefault(-1 - len(self._calls_by_index) if index is None else index, [])
        if calls and not calls[-1].is_followed_by(id, name):
            call = calls[-1]
        else:
            call = FragmentedCall(self._emit, ("call", index, len(self._calls_by_index), len(calls)), id)
            calls.append(call)
            self._register_ids(call, index)
        self._last_call = call
        return call

    def _register_ids(self, call: FragmentedCall, index: int | None) -> None:
        if call.id is not None:
            self._calls_by_id.setdefault((index, call.id), call)
            self._calls_by_id.setdefault((None, call.id), call)

    def read_executed(self, tools: list[dict[str, Any]]) -> None:
        """Read tools that Groq's compound models ran. Each is reported twice: with its arguments, then its result."""
        provider = self._emit.origin.provider
        for tool in tools:
            index, kind = str(tool.get("index")), str(tool.get("type") or "tool")
            name = {"search": "web_search"}.get(kind, kind)
            key = ("executed", index)
            call_id = f"executed_{index}"
            if key not in self._emitted_executions:
                self._emitted_executions.add(key)
                arguments = tool.get("arguments")
                self._emit.whole_part(
                    BuiltinToolCallPart(
                        name,
                        arguments if isinstance(arguments, dict) else arguments_text(arguments) or None,
                        call_id,
                        provider_name=provider,
                    ),
                    item=key,
                )
            search_results = tool.get("search_results")
            results = (
                search_results
                if isinstance(search_results, dict) and search_results.get("results")
                else tool.get("output")
            )
            result_key = ("answered", index)
            if results and result_key not in self._emitted_executions:
                self._emitted_executions.add(result_key)
                self._emit.whole_part(
                    BuiltinToolReturnPart(name, results, call_id, provider_name=provider),
                    item=key,
                )


# --- calls that an error quotes ----------------------------------------------------------------------------------

TOOL_USE_FAILED = "tool_use_failed"
"""The code of Groq's error for a call whose arguments do not match the schema. The error quotes what the model wrote,
and the response has nothing else. The caller checks arguments itself, and then lets the model try again."""

RECOVERABLE_ERRORS = frozenset({TOOL_USE_FAILED})

_FUNCTION_TAG = "<function="
"""The start of a call as Llama models write it: `<function=NAME>{…}</function>`."""
_tagged_call = re.compile(r"([\w.-]+)\s*>?\s*(\{.*)", re.DOTALL).fullmatch


def quoted_calls(error: Any, tool_names: Collection[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that an error quotes, if all of the quotation is whole calls of functions that were offered.

    Args:
        error: The error object.
        tool_names: The names of the functions that were offered.

    Returns:
        The names and arguments; empty if the error quotes no call, or one that is incomplete or unknown.
    """
    if not isinstance(error, dict) or error.get("code") != TOOL_USE_FAILED:
        return []
    text = error.get("failed_generation")
    if not isinstance(text, str) or not text.strip():
        return []
    calls = list(_calls_in(text.strip()))
    return [call for call in calls if call is not None] if all(c and c[0] in tool_names for c in calls) else []


def _calls_in(text: str) -> Iterator[tuple[str, dict[str, Any]] | None]:
    """Yield the calls in a text, and None for anything else in it."""
    if text.startswith(_FUNCTION_TAG):
        for tagged in text.split(_FUNCTION_TAG)[1:]:
            match = _tagged_call(tagged.strip().removesuffix("</function>"))
            yield None if match is None else _call_of({"name": match[1], "arguments": match[2]})
        return
    try:
        value = decode_lenient_json(text.encode("utf-8", "replace"))
    except ValueError:
        yield None
        return
    for entry in value if isinstance(value, list) else [value]:
        yield _call_of(entry)


def _call_of(entry: Any) -> tuple[str, dict[str, Any]] | None:
    if not isinstance(entry, dict):
        return None
    function = dict_of(entry, "function") or entry
    name, arguments = function.get("name"), function.get("arguments", entry.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = decode_lenient_json(arguments.encode("utf-8", "replace"))
        except ValueError:
            return None
    return (name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None


def _google_signature(extra: dict[str, Any] | None) -> str | None:
    google = (extra or {}).get("google")
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return signature if isinstance(signature, str) else None
