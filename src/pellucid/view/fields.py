"""The allow-list: which fields of what leave, for readers who may not see raw reasoning.

Every field of every struct of the vocabulary stands here in one of four places, and a test sees to it that none is
forgotten. Forgotten or not, only what is named leaves: a rule makes the struct anew from these fields.

    shown       as it is
    inside      by the rules of what is in it
    given       by hand, because it depends on the reader or on what else was said
    withheld    nowhere; only here to say that somebody decided it
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo
from msgspec.structs import fields as fields_of

from .. import errors as err
from .. import events as ev
from .. import parts as pt


class Fields(NamedTuple):
    shown: str = ""
    inside: str = ""
    given: str = ""
    withheld: str = ""


# A provider's name for something (`id`, `native_id`, …) is withheld: some are made of the thought itself, and it is of
# use to nobody but that provider. `provider_name` says that opaque data is there, and goes with it.
_OURS = " ".join(pt.PROVIDER_FIELDS)
_OURS_OF_DELTAS = " ".join(("provider_name", *pt.OPAQUE_FIELDS.values()))

TABLE: dict[type[msgspec.Struct], Fields] = {
    # --- what a model says
    pt.ThinkingPart: Fields("content form complete item_id", "origin", withheld=_OURS),
    # Log-probabilities hold every token twice, and where reasoning comes in the same text as the answer, its too.
    pt.TextPart: Fields("content annotations complete item_id", "origin", withheld=f"{_OURS} logprobs"),
    pt.RefusalPart: Fields("content complete item_id", "origin", withheld=_OURS),
    pt.ToolCallPart: Fields("tool_name args tool_call_id complete item_id", "origin", withheld=_OURS),
    pt.BuiltinToolCallPart: Fields("tool_name args tool_call_id complete item_id", "origin", withheld=_OURS),
    pt.BuiltinToolReturnPart: Fields("tool_name content tool_call_id item_id", "origin", withheld=_OURS),
    pt.FilePart: Fields("data media_type thought item_id", "origin", withheld=_OURS),
    pt.CompactionPart: Fields(withheld=f"content item_id origin {_OURS}"),
    pt.OpaquePart: Fields(withheld=f"type native item_id origin {_OURS}"),
    pt.SealedPart: Fields("token item_id"),
    # --- what goes to a model: who may read a conversation may read what was asked
    pt.SystemPromptPart: Fields("content role"),
    pt.UserPromptPart: Fields("name", "content"),
    pt.ToolReturnPart: Fields("tool_name content tool_call_id outcome"),
    pt.RetryPromptPart: Fields("content tool_name tool_call_id"),
    pt.Text: Fields("text"),
    pt.Image: Fields("url data media_type file_id detail"),
    pt.Audio: Fields("data media_type url"),
    pt.Video: Fields("url data media_type"),
    pt.File: Fields("url data media_type file_id filename"),
    # --- messages
    pt.Origin: Fields("provider api model", withheld="account"),
    pt.Usage: Fields(
        "input_tokens output_tokens output_reasoning_tokens cache_read_tokens cache_write_tokens input_audio_tokens "
        "output_audio_tokens",
        withheld="details",
    ),
    pt.ModelRequest: Fields("instructions timestamp", "parts", withheld="metadata"),
    pt.ModelResponse: Fields(
        "finish_reason timestamp",
        "origin",
        "parts usage",
        "model_name provider_response_id native_finish_reason provider_details",
    ),
    # --- deltas
    pt.ThinkingPartDelta: Fields("content_delta", withheld=_OURS_OF_DELTAS),
    pt.TextPartDelta: Fields("content_delta annotations", withheld=f"logprobs {_OURS_OF_DELTAS}"),
    pt.RefusalPartDelta: Fields("content_delta", withheld=_OURS_OF_DELTAS),
    pt.ToolCallPartDelta: Fields("args_delta", withheld=_OURS_OF_DELTAS),
    pt.BuiltinToolCallPartDelta: Fields("args_delta status", withheld=_OURS_OF_DELTAS),
    # --- events
    ev.ResponseStartEvent: Fields("", "origin", withheld="provider_response_id model_name"),
    ev.ResponseEndEvent: Fields(
        "finish_reason",
        "",
        "usage",
        "native_finish_reason provider_response_id model_name provider_details",
    ),
    ev.ItemStartEvent: Fields("id", "", "index kind", "native_id"),
    ev.ItemEndEvent: Fields("status", "", "index seal", "signature native origin"),
    ev.PartStartEvent: Fields("", "", "index part previous_part_kind"),
    ev.PartDeltaEvent: Fields("", "", "index delta"),
    ev.PartEndEvent: Fields("", "", "index part"),
    ev.ErrorEvent: Fields("", "", "error"),
    ev.FunctionToolCallEvent: Fields("", "part"),
    ev.FunctionToolResultEvent: Fields("id", "result"),
    ev.FinalResultEvent: Fields("tool_name tool_call_id"),
    ev.RunEndEvent: Fields("status incomplete_reason", "", "usage error"),
    ev.SummaryEvent: Fields(withheld="index text"),  # the reader has it as a part
    ev.SideEvent: Fields("namespace name value"),
    # --- errors
    err.ErrorInfo: Fields("kind message retry_after", "", "code param", "status native said"),
}

S = TypeVar("S", bound=msgspec.Struct)


class Rule(Generic[S]):
    """Makes a struct anew from the fields of it that leave; the very same one, if nothing else is in it."""

    __slots__ = ("_blank", "_cls", "_inside", "_rest", "_shown")

    def __init__(self, cls: type[S], fields: Fields) -> None:
        self._cls = cls
        self._shown = tuple(fields.shown.split())
        self._inside = tuple(fields.inside.split())
        named = {*self._shown, *self._inside, *fields.given.split()}
        rest = [field for field in fields_of(cls) if field.name not in named]
        if any(field.required for field in rest):
            raise TypeError(f"{cls.__name__} cannot be made without its field {rest[0].name}")
        self._rest = attrgetter(*(field.name for field in rest)) if rest else None
        self._blank = _default(rest[0]) if len(rest) == 1 else tuple(_default(field) for field in rest)

    def covers(self, value: S) -> bool:
        """Whether nothing is in it but what is named."""
        return self._rest is None or bool(self._rest(value) == self._blank)

    def __call__(self, value: S, **given: Any) -> S:
        if not (given or self._inside) and self.covers(value):
            return value
        kept = {name: getattr(value, name) for name in self._shown}
        for name in self._inside:
            kept[name] = _inside(getattr(value, name))
        return self._cls(**kept, **given)


def _default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


RULES: dict[type[msgspec.Struct], Rule[Any]] = {
    cls: Rule(cls, fields) for cls, fields in TABLE.items() if fields.shown or fields.inside or fields.given
}


def rule(cls: type[S]) -> Rule[S]:
    return cast("Rule[S]", RULES[cls])


def _inside(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return RULES[type(value)](value)
    if isinstance(value, list):
        return [_inside(entry) for entry in value]
    return value
