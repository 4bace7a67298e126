"""Chunks, for the verifier: which events a chunk stands for, and which an event closes that comes after chunks.

As `@ag-ui/client` 1.0.0 has it (chunks/transform.ts): each agent (a subagent, or the one without a name) has one thing
open at a time; or, for the dialect of the proposal, as that says. It works on the bare objects, and shares nothing with
the classes that the gateway itself expands chunks with, so that the one can be held against the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_CHUNK = {
    "TEXT_MESSAGE_CHUNK": ("messageId", "TEXT_MESSAGE", "CONTENT", ("role", "name")),
    "TOOL_CALL_CHUNK": ("toolCallId", "TOOL_CALL", "ARGS", ("toolCallName", "parentMessageId")),
    "REASONING_MESSAGE_CHUNK": ("messageId", "REASONING_MESSAGE", "CONTENT", ()),
}
_PASS_CHUNKS = {"RAW", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED"}
_CLOSE_ALL = {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"}


class Broken(Exception):
    """A chunk that belongs to nothing, or disagrees with what it belongs to."""


class _Lane(NamedTuple):
    """What one agent has open in chunks, and what its first chunk said."""

    chunk: str
    id: str
    said: tuple[Any, ...]
    owner: str | None


class Lanes:
    def __init__(self, proposed: bool) -> None:
        self._proposed = proposed
        self._lanes: dict[str | None, _Lane] = {}

    def whole(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The event without chunks, and what it closes before it. Raises `Broken`."""
        return self._expanded(event) if event["type"] in _CHUNK else [*self._closed(event), event]

    def holds(self, id: str) -> bool:
        """Whether this is open in chunks."""
        return any(lane.id == id for lane in self._lanes.values())

    def _closed(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The ends of what chunks have open and this event closes."""
        kind, owner = event["type"], event.get("subagentRunId")
        ends: list[Mapping[str, Any]] = []
        for at, lane in list(self._lanes.items()):
            if self._proposed and lane.chunk == "REASONING_MESSAGE_CHUNK":
                closes = not kind.startswith("REASONING_")
            else:
                closes = kind in _CLOSE_ALL or (kind not in _PASS_CHUNKS and at == owner)
            ends += self._close(at) if closes else []
        return ends

    def _close(self, owner: str | None) -> list[Mapping[str, Any]]:
        lane = self._lanes.pop(owner, None)
        if lane is None:
            return []
        key, base, _, _ = _CHUNK[lane.chunk]
        return [{"type": f"{base}_END", key: lane.id, **_owned(lane.owner)}]

    def _expanded(self, event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The chunk as the events that it stands for."""
        chunk: str = event["type"]
        key, base, more, repeated = _CHUNK[chunk]
        id, delta = event.get(key), event.get("delta")
        at = self._lane_of(chunk, id, event.get("subagentRunId"))
        lane = self._lanes.get(at)
        out: list[Mapping[str, Any]] = []
        if lane is not None and lane.chunk == chunk and id in (None, lane.id):
            for name, said in zip(repeated, lane.said, strict=True):
                if event.get(name, said) != said:
                    raise Broken(f"{chunk}: its {name} is not that of the first chunk")
        else:
            out += self._close(at)
            for name in (key, "toolCallName") if chunk == "TOOL_CALL_CHUNK" else (key,):
                if event.get(name) is None:
                    raise Broken(f"{chunk}: the first one needs a {name}")
            assert isinstance(id, str)
            said = tuple(event.get(name, "assistant" if name == "role" else None) for name in repeated)
            lane = self._lanes[at] = _Lane(chunk, id, said, event.get("subagentRunId"))
            start = {name: event[name] for name in (*repeated, "subagentRunId") if name in event}
            out.append({**start, "type": f"{base}_START", key: id})
        if self._proposed and chunk == "REASONING_MESSAGE_CHUNK" and not delta:
            # An empty chunk closes; it is no empty delta.
            return out + self._close(at) if delta == "" or not out else out
        if delta is not None or event.get("rawEvent") is not None or (not out and event.get("metadata") is not None):
            owner = event.get("subagentRunId", lane.owner)
            out.append({"type": f"{base}_{more}", key: lane.id, "delta": delta or "", **_owned(owner)})
        return out

    def _lane_of(self, chunk: str, id: str | None, tag: str | None) -> str | None:
        if id is not None:
            for owner, lane in self._lanes.items():
                if (lane.chunk, lane.id) == (chunk, id):
                    if tag not in (None, owner):
                        raise Broken(f"{chunk}: another subagent has this open")
                    return owner
            return tag
        if tag is not None:
            return tag
        mine = [owner for owner, lane in self._lanes.items() if lane.chunk == chunk]
        if None in mine or not mine:
            return None
        if len(mine) > 1:
            raise Broken(f"{chunk}: several are open, and it names neither an id nor a subagent")
        return mine[0]


def _owned(owner: str | None) -> dict[str, Any]:
    return {} if owner is None else {"subagentRunId": owner}
