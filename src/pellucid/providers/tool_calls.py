"""Function calls that arrive in fragments, for the wires that are like Chat Completions.

Which fragment belongs to which call is decided by each wire: servers leave out the index or the id, or repeat the name.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..emit import Emitter, Key, is_complete_json
from .tool_schema import arguments_text


class Function(msgspec.Struct, gc=False):
    """The function of a call, or of a fragment of one."""

    name: str | None = None
    arguments: Any = None
    """JSON text, or an object."""


class ToolCall(msgspec.Struct, gc=False):
    """A function call, or a fragment of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Logprobs(msgspec.Struct, gc=False):
    """`choices[].logprobs`."""

    content: list[dict[str, Any]] | None = None


class FragmentedCall:
    """A function call as received so far. It opens when its name is known: earlier arguments are held back."""

    __slots__ = ("_emit", "_pieces", "has_name", "id", "key")

    def __init__(self, emit: Emitter, key: Key, id: str | None) -> None:
        self._emit = emit
        self._pieces: list[str] = []
        """The arguments so far."""
        self.key = key
        self.id = id
        self.has_name = False

    def add(self, name: str | None, args: str | dict[str, Any], signature: str | None = None) -> None:
        """Add a fragment. Some servers repeat the name in each."""
        if self.has_name:
            if args or signature:
                self._emit.tool_call(self.key, args, signature=signature)
        elif name is not None:
            self.has_name = True
            whole = "".join((*self._pieces, arguments_text(args))) if self._pieces else args
            self._emit.tool_call(self.key, whole, name=name, call_id=self.id, signature=signature)
        text = arguments_text(args)
        if text:
            self._pieces.append(text)

    def end_nameless(self) -> None:
        """Emit a call that never got a name."""
        if not self.has_name:
            self.has_name = True
            self._emit.tool_call(self.key, "".join(self._pieces), name="", call_id=self.id)

    def has_arguments(self) -> bool:
        """Whether any arguments have arrived."""
        return bool(self._pieces)

    def is_followed_by(self, id: str | None, name: str | None) -> bool:
        """Whether a fragment with the same index begins another call.

        Some servers repeat the name in every fragment, some invent an id for every fragment, some number every call 0.
        Only a fragment with a name can begin a call. It does if it has another id, or if this call is complete already.
        """
        if name is None or not self.has_name:
            return False
        if id is not None and self.id is not None:
            return id != self.id
        end = self._pieces[-1].rstrip() if self._pieces else ""
        return (not end or end.endswith("}")) and is_complete_json("".join(self._pieces))
