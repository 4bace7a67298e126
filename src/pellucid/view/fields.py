"""The allow-list of fields for viewers who may not see raw reasoning.

Every field of every struct of the vocabulary is listed here in one of four columns, and a test checks that none is
missing. Only listed fields are shown in any case: a rule builds a new struct from them.

    shown       copied as it is
    nested      redacted by the rules of the values in it
    computed    set by the caller, because it depends on the viewer or on other values
    withheld    not shown; listed to record the decision
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


class FieldRules(NamedTuple):
    """The fields of one struct, by column; each column is a list of names separated by spaces."""

    shown: str = ""
    nested: str = ""
    computed: str = ""
    withheld: str = ""


# A provider's own id (`id`, `native_id`, …) is withheld: some encode the reasoning itself, and only that provider can
# use it. `provider_name` shows that there is opaque data, and is withheld with it.
_OPAQUE_NAMES = " ".join((*pt.PROVIDER_FIELDS, "wire_fields"))
_OPAQUE_DELTA_NAMES = " ".join(("provider_name", *pt.OPAQUE_FIELDS.values()))

FIELD_RULES: dict[type[msgspec.Struct], FieldRules] = {
    # --- output of a model
    pt.ThinkingPart: FieldRules("content form complete item_id", "origin", withheld=_OPAQUE_NAMES),
    # Log-probabilities repeat every token, also those of reasoning that comes in the same text as the answer.
    pt.TextPart: FieldRules("content annotations complete item_id", "origin", withheld=f"{_OPAQUE_NAMES} logprobs"),
    pt.RefusalPart: FieldRules("content complete item_id", "origin", withheld=_OPAQUE_NAMES),
    pt.ToolCallPart: FieldRules("tool_name args tool_call_id complete item_id", "origin", withheld=_OPAQUE_NAMES),
    pt.BuiltinToolCallPart: FieldRules(
        "tool_name args tool_call_id complete item_id", "origin", withheld=_OPAQUE_NAMES
    ),
    pt.BuiltinToolReturnPart: FieldRules("tool_name content tool_call_id item_id", "origin", withheld=_OPAQUE_NAMES),
    pt.FilePart: FieldRules("data media_type thought item_id", "origin", withheld=_OPAQUE_NAMES),
    pt.CompactionPart: FieldRules(withheld=f"content item_id origin {_OPAQUE_NAMES}"),
    pt.OpaquePart: FieldRules(withheld=f"type native wire text item_id origin {_OPAQUE_NAMES}"),
    pt.SealedPart: FieldRules("token item_id", withheld="visible_texts"),
    # --- input of a model: a viewer who may read a conversation may read its prompts
    pt.SystemPromptPart: FieldRules("content role wire_fields", withheld="dynamic_ref"),
    pt.UserPromptPart: FieldRules("name", "content"),
    pt.ToolReturnPart: FieldRules("tool_name content tool_call_id outcome wire_fields"),
    pt.RetryPromptPart: FieldRules("content tool_name tool_call_id"),
    pt.Text: FieldRules("text wire_fields"),
    pt.Image: FieldRules("url data media_type file_id detail wire_fields"),
    pt.Audio: FieldRules("data media_type url wire_fields"),
    pt.Video: FieldRules("url data media_type wire_fields"),
    pt.File: FieldRules("url data media_type file_id filename wire_fields"),
    # --- messages
    pt.Origin: FieldRules("provider api model", withheld="account"),
    pt.Usage: FieldRules(
        "input_tokens output_tokens output_reasoning_tokens cache_read_tokens cache_write_tokens input_audio_tokens "
        "output_audio_tokens cost_nanos reasoning_cost_nanos",
        withheld="details",
    ),
    pt.ModelRequest: FieldRules("instructions timestamp", "parts", withheld="metadata"),
    pt.ModelResponse: FieldRules(
        "finish_reason timestamp",
        "origin",
        "parts usage",
        "model_name provider_response_id native_finish_reason provider_details",
    ),
    # --- deltas
    pt.ThinkingPartDelta: FieldRules("content_delta", withheld=_OPAQUE_DELTA_NAMES),
    pt.TextPartDelta: FieldRules("content_delta annotations", withheld=f"logprobs {_OPAQUE_DELTA_NAMES}"),
    pt.RefusalPartDelta: FieldRules("content_delta", withheld=_OPAQUE_DELTA_NAMES),
    pt.ToolCallPartDelta: FieldRules("args_delta", withheld=_OPAQUE_DELTA_NAMES),
    pt.BuiltinToolCallPartDelta: FieldRules("args_delta status", withheld=_OPAQUE_DELTA_NAMES),
    # --- events
    ev.ResponseStartEvent: FieldRules("", "origin deployment", withheld="provider_response_id model_name"),
    ev.AnsweringDeployment: FieldRules("name", "failed"),
    ev.DeploymentFailure: FieldRules("name cause"),
    ev.ResponseEndEvent: FieldRules(
        "finish_reason",
        "",
        "usage",
        "native_finish_reason provider_response_id model_name provider_details",
    ),
    ev.ItemStartEvent: FieldRules("id", "", "index kind", "native_id"),
    ev.ItemEndEvent: FieldRules("status", "", "index seal", "signature native origin"),
    ev.PartStartEvent: FieldRules("", "", "index part previous_part_kind"),
    ev.PartDeltaEvent: FieldRules("", "", "index delta"),
    ev.PartEndEvent: FieldRules("", "", "index part"),
    ev.ErrorEvent: FieldRules("", "", "error"),
    ev.FunctionToolCallEvent: FieldRules("", "part"),
    ev.FunctionToolResultEvent: FieldRules("id", "result"),
    ev.FinalResultEvent: FieldRules("tool_name tool_call_id"),
    ev.RunEndEvent: FieldRules("status incomplete_reason", "", "usage error"),
    ev.SummaryEvent: FieldRules(withheld="index text"),  # shown as a part instead
    ev.SideEvent: FieldRules("namespace name value"),
    # --- errors
    err.ErrorInfo: FieldRules("kind message retry_after", "", "code param", "status native upstream_message"),
}

S = TypeVar("S", bound=msgspec.Struct)


class StructRedactor(Generic[S]):
    """Builds a new struct from the fields that are shown, or returns the same one if it has no others."""

    __slots__ = ("_cls", "_nested", "_rest", "_rest_defaults", "_shown")

    def __init__(self, cls: type[S], fields: FieldRules) -> None:
        self._cls = cls
        self._shown = tuple(fields.shown.split())
        self._nested = tuple(fields.nested.split())
        named = {*self._shown, *self._nested, *fields.computed.split()}
        rest = [field for field in fields_of(cls) if field.name not in named]
        if any(field.required for field in rest):
            raise TypeError(f"{cls.__name__} cannot be made without its field {rest[0].name}")
        self._rest = attrgetter(*(field.name for field in rest)) if rest else None
        self._rest_defaults = _default(rest[0]) if len(rest) == 1 else tuple(_default(field) for field in rest)

    def has_only_named_fields(self, value: S) -> bool:
        """Whether all fields that are not named have their defaults."""
        return self._rest is None or bool(self._rest(value) == self._rest_defaults)

    def __call__(self, value: S, **computed: Any) -> S:
        """Return a copy with the fields that may leave; `computed` are values that replace some of them."""
        if not (computed or self._nested) and self.has_only_named_fields(value):
            return value
        copied = {name: getattr(value, name) for name in self._shown}
        for name in self._nested:
            copied[name] = _redact_nested(getattr(value, name))
        return self._cls(**copied, **computed)


def _default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


STRUCT_REDACTORS: dict[type[msgspec.Struct], StructRedactor[Any]] = {
    cls: StructRedactor(cls, fields)
    for cls, fields in FIELD_RULES.items()
    if fields.shown or fields.nested or fields.computed
}


def struct_redactor(cls: type[S]) -> StructRedactor[S]:
    """Return the redactor of a struct type."""
    return cast("StructRedactor[S]", STRUCT_REDACTORS[cls])


def _redact_nested(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return STRUCT_REDACTORS[type(value)](value)
    if isinstance(value, list):
        return [_redact_nested(entry) for entry in value]
    return value
