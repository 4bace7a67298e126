"""Reader of function calls, which arrive in fragments, and of calls that the provider runs itself.

A call is identified by its index and its id. Servers leave out either, number every call 0, invent an id for every
fragment, or send the name late. This module decides which fragments belong to one call.
"""

from __future__ import annotations

from typing import Any

from ...emit import Emitter, Key
from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart
from ..tool_calls import FragmentedCall
from ..tool_schema import arguments_text
from .chunk import ToolCall


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

    def read(self, fragment: ToolCall) -> None:
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

    def _call_of(self, fragment: ToolCall, name: str | None) -> FragmentedCall:
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


def _google_signature(extra: dict[str, Any] | None) -> str | None:
    google = (extra or {}).get("google")
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return signature if isinstance(signature, str) else None
