"""A function call whose arguments come in pieces (Vertex, `streamFunctionCallArguments`).

Each piece sets one value at a JSON path: `{"jsonPath": "$.items[0].name", "stringValue": "ap", "willContinue": true}`.
A string that will continue is added to by the next piece under the same path. The call is over with the first
fragment that does not say `willContinue`; servers leave that fragment out, so anything else ends it too.
"""

from __future__ import annotations

import re
from typing import Any

from ...parts import json_text

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")

_VALUES = ("stringValue", "numberValue", "boolValue")


class PartialCall:
    """The call under way: `add` fragments, then read `args`; or `broken_off`, if nothing more will come."""

    def __init__(self, call: dict[str, Any], signature: str | None) -> None:
        self.name: str = call["name"]
        self.id: str | None = call["id"] if isinstance(call.get("id"), str) else None
        self.signature = signature
        self.args: dict[str, Any] = dict(call["args"]) if isinstance(call.get("args"), dict) else {}
        self._continues: str | None = None
        self.over = False
        self.add(call)

    def add(self, fragment: dict[str, Any]) -> None:
        pieces = fragment.get("partialArgs")
        for piece in pieces if isinstance(pieces, list) else []:
            if isinstance(piece, dict) and isinstance(piece.get("jsonPath"), str):
                self._set(piece)
        self.over = not fragment.get("willContinue")

    def broken_off(self) -> str:
        """The arguments so far, as the beginning of a JSON text: what was cut off is not to look whole."""
        return json_text(self.args)[:-1]

    def _set(self, piece: dict[str, Any]) -> None:
        path = piece["jsonPath"]
        value = next((piece[name] for name in _VALUES if name in piece), None)
        steps: list[str | int] = [
            int(number[:9]) if number else name or quoted or doubly
            for name, number, quoted, doubly in _STEP.findall(path)
        ]
        if steps:
            _put(self.args, steps, value, self._continues == path)
        self._continues = path if piece.get("willContinue") else None


def _put(where: Any, steps: list[str | int], value: Any, append: bool) -> None:
    """Set `value` at the end of the path, making objects and lists on the way. Lists grow by one at a time."""
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(where, list) and isinstance(step, int):
            if step >= len(where):
                where.append(None)
                step = len(where) - 1
        elif not isinstance(where, dict) or not isinstance(step, str):
            return  # a path that contradicts an earlier one
        old = where.get(step) if isinstance(where, dict) else where[step]
        if following is None:
            where[step] = old + value if append and isinstance(old, str) and isinstance(value, str) else value
        elif not isinstance(old, dict | list):
            where[step] = [] if isinstance(following, int) else {}
        where = where[step]
