"""What one vocabulary has no field for, as data: what is missing from `back` to be `whole` again.

    patch = difference(whole, back)      # None when nothing is missing
    apply(patch, back) == whole          # for any JSON values, and only as large as what differs

A message that is translated loses what the other side has no word for. So it is translated back at once, and the
difference to what it was travels with the translation. No field is listed by hand, so none can be forgotten, and a
field that a later release adds rides along by itself.

A patch is JSON: `{"is": value}` stands in place of what there was; `{"in": {key: patch}, "without": [key]}` goes into
an object, or by index into a list of the same length.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

Patch = dict[str, Any]


def difference(whole: Any, back: Any) -> Patch | None:
    """What makes `whole` of `back`; None if they are the same."""
    if isinstance(whole, dict) and isinstance(back, dict):
        within = {key: {"is": value} for key, value in whole.items() if key not in back}
        both = [(key, difference(value, back[key])) for key, value in whole.items() if key in back]
        within |= {key: patch for key, patch in both if patch is not None}
        without = [key for key in back if key not in whole]
        patch = ({"in": within} if within else {}) | ({"without": without} if without else {})
        return patch or None
    if isinstance(whole, list) and isinstance(back, list) and len(whole) == len(back):
        patches = [difference(*pair) for pair in zip(whole, back, strict=True)]
        inside = {str(index): patch for index, patch in enumerate(patches) if patch is not None}
        return {"in": inside} if inside else None
    # 1, 1.0 and True are equal in Python, and three things in JSON.
    return None if type(whole) is type(back) and whole == back else {"is": whole}


def apply(patch: Any, back: Any) -> Any:
    """`back` made whole. Raises `ValueError` for what is no patch of it: patches come back from clients."""
    if not isinstance(patch, dict):
        raise ValueError("a patch is an object")
    if "is" in patch:
        return patch["is"]
    within, without = patch.get("in", {}), patch.get("without", [])
    if not isinstance(within, dict) or not isinstance(without, list):
        raise ValueError("a patch goes into an object by key")
    if isinstance(back, list):
        made = list(back)
        for index, inner in within.items():
            if not index.isdecimal() or int(index) >= len(made):
                raise ValueError(f"there is no {index} in a list of {len(made)}")
            made[int(index)] = apply(inner, made[int(index)])
        return made
    if not isinstance(back, dict):
        raise ValueError("there is nothing to go into")
    kept = {key: value for key, value in back.items() if key not in without}
    return kept | {key: apply(inner, kept.get(key)) for key, inner in within.items()}


_SAID = ("part_kind", "tool_name", "tool_call_id", "content", "args", "data", "transcript")


def said(part: dict[str, Any]) -> str:
    """A digest of what a part says. What was kept with a part that says something else by now is void: it may
    hold the very words that were taken out."""
    # An object's keys have no order, neither in JSON nor in a database that keeps it.
    text = msgspec.json.encode([part.get(name) for name in _SAID], order="sorted")
    return blake2b(text, digest_size=9).hexdigest()
