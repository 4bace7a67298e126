"""Capabilities: which envelopes their holder may send. And the decision whether a sender may send an envelope.

    {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "read_*"}}}
    {"kind": "mcp/*", "except": ["mcp/request"]}
    "reasoning/*"

The patterns are those of `patterns`. The rules:

* The first capability that allows an envelope decides. If none does, the envelope is denied. It is also denied if that
  cannot be decided within `DECIDE_STEPS`.
* In a kind, dots are slashes. `*` alone means every kind (elsewhere it does not cross a slash). `reasoning/step` is a
  thought, question, observation or hypothesis, not a start or an end.
* Without `payload`, any payload is allowed. With `to`, the envelope must be addressed, and every recipient must be
  allowed by `to`.
* With `except`, a list of capabilities, it allows nothing that one of these allows. A revocation that takes a part of a
  capability leaves such a rest (`subtract`).
* An unknown key could be a condition, so a capability with one is refused.
* Only the gateway sends `system/*`, whatever a participant holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import RequestError
from ..unicode import did_you_mean, truncate
from . import mcp
from .envelope import GATEWAY, Envelope
from .kinds import REQUEST, STEP_KINDS
from .patterns import (
    AnyText,
    ExactKey,
    ExactText,
    Not,
    ObjectPattern,
    OneOf,
    TextPattern,
    ValuePattern,
    allows,
    are_disjoint,
    covers,
    invalid_capability,
    is_regex,
    read_pattern,
    read_text_pattern,
)
from .regex import StepBudget, StepBudgetExceeded

DECIDE_STEPS = 200_000
COVER_STEPS = 200_000

MAX_EXCEPTIONS = 32
"""Maximum number of entries in an `except`."""

_KEYS = ("kind", "payload", "to", "except")
_ANNOTATION_KEYS = ("id", "name", "description", "reason")
"""Keys that may stand in a capability and have no effect."""

_NAMED_KINDS: dict[str, TextPattern] = {
    "*": AnyText(),
    "**": AnyText(),
    "reasoning/step": OneOf(tuple(ExactText(kind) for kind in sorted(STEP_KINDS))),
}
_ANY_PAYLOAD = ObjectPattern(())


class Capability(msgspec.Struct, frozen=True, eq=False):
    """A capability, read from `written`. Two capabilities are compared by that."""

    kind: ValuePattern
    payload: ObjectPattern | None
    """None: any payload."""
    to: ValuePattern | None
    """None: any recipients, also none."""
    written: dict[str, Any]
    exceptions: tuple[Capability, ...] = ()
    """What it does not allow, although the rest of it would."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Capability) and self._canonical() == other._canonical()

    def __hash__(self) -> int:
        return hash(self._canonical())

    def _canonical(self) -> bytes:
        """JSON with sorted keys. Unlike Python's equality, it distinguishes true from 1."""
        return msgspec.json.encode(self.written, order="sorted")

    def allows(self, envelope: Envelope, steps: StepBudget) -> bool:
        """Check whether the capability allows the envelope.

        Raises:
            StepBudgetExceeded: If the budget is not enough.
        """
        if not allows(self.kind, envelope.kind, steps):
            return False
        to = self.to
        if to is not None and not (envelope.to and all(allows(to, target, steps) for target in envelope.to)):
            return False
        if not (self.payload is None or allows(self.payload, envelope.payload, steps)):
            return False
        return not any(one.allows(envelope, steps) for one in self.exceptions)


EVERYTHING = Capability(kind=AnyText(), payload=None, to=None, written={"kind": "*"})


class HeldCapability(NamedTuple):
    """A capability that a participant holds, with its source."""

    capability: Capability
    source: str
    """`door` (the configuration), or the id of the grant."""


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a participant may send an envelope, and why."""

    allowed: bool
    participant: str
    kind: str
    by: dict[str, Any] | None = None
    """The capability that allows it, as it was written."""
    source: str | None = None
    """Where that capability comes from: `door` (the configuration), the id of a grant, or `gateway`."""
    why: str | None = None
    """Why it is denied: `no_match`, `reserved` (`system/*`), or `undecided` (it would have taken too long)."""


# --- reading


def read_capability(written: Any, location: str = "capability") -> Capability:
    """Read a capability: an object, or a kind.

    Args:
        written: The capability as it is written.
        location: Where it stands, for errors.

    Raises:
        RequestError: If it is not valid.
    """
    if isinstance(written, str):
        written = {"kind": written}
    if not isinstance(written, dict):
        raise invalid_capability(
            location, f"a capability is a kind, or an object with a `kind`, not {type(written).__name__}"
        )
    for key in written:
        if key not in _KEYS and key not in _ANNOTATION_KEYS:
            raise invalid_capability(f"{location}.{key}", f"a capability has no such key; {did_you_mean(key, _KEYS)}")
    if "kind" not in written:
        raise invalid_capability(location, "the kind is missing; `*` is every kind")
    payload = read_pattern(written["payload"], f"{location}.payload") if "payload" in written else None
    if payload is not None and not isinstance(payload, ObjectPattern):
        raise invalid_capability(f"{location}.payload", "it must be an object; left out, it is any payload")
    to = _read_strings(written["to"], f"{location}.to", _read_name) if "to" in written else None
    kind = _read_strings(written["kind"], f"{location}.kind", _read_kind)
    exceptions = _read_exceptions(written["except"], f"{location}.except") if "except" in written else ()
    return Capability(kind, payload, to, dict(written), exceptions)


def _read_exceptions(written: Any, location: str) -> tuple[Capability, ...]:
    if not isinstance(written, list | tuple) or not 0 < len(written) <= MAX_EXCEPTIONS:
        raise invalid_capability(location, f"it must be a list of 1 to {MAX_EXCEPTIONS} capabilities")
    exceptions = read_capabilities(written, location)
    for n, one in enumerate(exceptions):
        if one.exceptions:
            raise invalid_capability(f"{location}[{n}].except", "an exception has no exceptions")
    return exceptions


def read_capabilities(written: Iterable[Any], location: str = "capabilities") -> tuple[Capability, ...]:
    """Read several capabilities.

    Raises:
        RequestError: If one of them is not valid.
    """
    return tuple(read_capability(one, f"{location}[{n}]") for n, one in enumerate(written))


def _read_strings(written: Any, location: str, read_one: Any) -> ValuePattern:
    if isinstance(written, str):
        pattern: ValuePattern = read_one(written, location)
        return pattern
    if isinstance(written, list | tuple) and written:
        for n, entry in enumerate(written):
            if not isinstance(entry, str):
                raise invalid_capability(f"{location}[{n}]", f"it must be a string, not {type(entry).__name__}")
        return OneOf(tuple(read_one(entry, f"{location}[{n}]") for n, entry in enumerate(written)))
    raise invalid_capability(location, "it must be a string, or a list of them")


def _read_name(written: str, location: str) -> ValuePattern:
    return AnyText() if written == "*" else read_text_pattern(written, location)


def _read_kind(written: str, location: str) -> ValuePattern:
    bare = written.lstrip("!")
    marks = written[: len(written) - len(bare)]
    if not bare:
        raise invalid_capability(location, "it is empty; a kind is like 'reasoning/start', and `*` is every one")
    if is_regex(bare):
        bare = re.sub(r"\\(.)", lambda escape: r"\/" if escape[1] == "." else escape[0], bare)
    else:
        bare = bare.replace(".", "/")
    if bare not in _NAMED_KINDS:
        return read_text_pattern(marks + bare, location)
    pattern = _NAMED_KINDS[bare]
    for _ in marks:
        pattern = Not(pattern)
    return pattern


def call_capability(call: Envelope) -> dict[str, Any]:
    """Return the capability for what a request or proposal calls: this tool, or this method with these parameters.

    Its texts are another participant's. None of them may act as a pattern in the capability, which would allow more.

    Raises:
        RequestError: If one of them would, or the call names no method or tool.
    """
    method, params = call.payload.get("method"), call.payload.get("params")
    pattern = {"method": _literal(method if isinstance(method, str) else None, "method")}
    if method == mcp.CALL_TOOL:
        pattern["params"] = {"name": _literal(mcp.tool_of(call), "params.name")}
    elif params is not None:
        pattern["params"] = _literal(params, "params")
    return {"kind": REQUEST, "payload": pattern}


def _literal(value: Any, location: str) -> Any:
    """Return a JSON value that, read as a pattern, allows itself and nothing else (but objects with further keys)."""
    if isinstance(value, dict):
        pattern = read_pattern(value, location)
        if isinstance(pattern, ObjectPattern) and all(
            rule.where == ExactKey(key) for rule, key in zip(pattern.rules, value, strict=True)
        ):
            return {key: _literal(entry, f"{location}.{key}") for key, entry in value.items()}
    elif isinstance(value, bool | int | float) or (
        isinstance(value, str) and read_text_pattern(value, location) == ExactText(value)
    ):
        return value
    raise RequestError(
        f"{location}: {truncate(repr(value))} cannot be granted as one call, because it is missing, or would act as a "
        "pattern in the capability; grant what you mean with a `capability/grant`",
        code="not_one_call",
        param=location,
    )


# --- deciding


def decide(holdings: Sequence[HeldCapability], envelope: Envelope) -> Decision:
    """Decide whether the sender, who holds these capabilities, may send the envelope."""
    decision = partial(Decision, participant=envelope.sender, kind=envelope.kind)
    if envelope.sender == GATEWAY:
        return decision(True, source="gateway")
    if envelope.family == "system":
        return decision(False, why="reserved")
    steps = StepBudget(DECIDE_STEPS)
    try:
        for capability, source in holdings:
            if capability.allows(envelope, steps):
                return decision(True, by=capability.written, source=source)
    except StepBudgetExceeded:
        return decision(False, why="undecided")
    return decision(False, why="no_match")


def is_covered(holdings: Iterable[Capability], capability: Capability, steps: StepBudget) -> bool:
    """Check whether everything that `capability` allows is also allowed by the holdings.

    Returns:
        False also if that cannot be shown within the budget.
    """
    held = list(holdings)
    if capability in held:
        return True
    try:
        kinds = tuple(
            one.kind
            for one in held
            if _covers_payload_and_recipients(one, capability, steps)
            and all(_excludes(capability, exception, steps) for exception in one.exceptions)
        )
        return covers(OneOf(kinds), capability.kind, steps)
    except StepBudgetExceeded:
        return False


def subtract(capability: Capability, removed: Sequence[Capability], steps: StepBudget) -> Capability | None:
    """Return a capability that allows what `capability` allows and none of `removed` allows.

    Args:
        capability: The capability.
        removed: Capabilities without exceptions.
        steps: Budget of the comparisons. What cannot be decided within it becomes an exception.

    Returns:
        The same object if none of it is removed; None if all of it is.
    """
    if is_covered(removed, replace(capability, exceptions=()), steps):
        return None
    added = tuple(one for one in removed if not _surely_excludes(capability, one, steps))
    if not added:
        return capability
    exceptions = (*(one for one in capability.exceptions if not is_covered(added, one, steps)), *added)
    written = {**capability.written, "except": [one.written for one in exceptions]}
    return replace(capability, exceptions=exceptions, written=written)


def _surely_excludes(capability: Capability, removed: Capability, steps: StepBudget) -> bool:
    try:
        return _excludes(capability, removed, steps)
    except StepBudgetExceeded:
        return False


def _excludes(capability: Capability, removed: Capability, steps: StepBudget) -> bool:
    """Check whether the capability allows nothing that `removed` allows. False also if that cannot be decided."""
    return any(is_covered([one], removed, steps) for one in capability.exceptions) or (
        are_disjoint(capability.kind, removed.kind, steps)
        or _are_apart(capability.payload, removed.payload, steps)
        or _are_apart(capability.to, removed.to, steps)
    )


def _are_apart(one: ValuePattern | None, other: ValuePattern | None, steps: StepBudget) -> bool:
    return one is not None and other is not None and are_disjoint(one, other, steps)


def _covers_payload_and_recipients(wide: Capability, narrow: Capability, steps: StepBudget) -> bool:
    if wide.to is not None and (narrow.to is None or not covers(wide.to, narrow.to, steps)):
        return False
    return wide.payload is None or covers(wide.payload, narrow.payload or _ANY_PAYLOAD, steps)
