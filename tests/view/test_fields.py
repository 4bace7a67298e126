"""The allow-list: every field of the vocabulary has a rule, and a field without a rule is withheld."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import msgspec
import pytest

from pellucid import errors, events, parts
from pellucid.events import Event
from pellucid.parts import ModelRequestPart, ModelResponsePart, PartDelta
from pellucid.view.fields import FIELD_RULES, STRUCT_REDACTORS, FieldRules, StructRedactor
from tests.cases import Cases

STRUCTS: set[type[msgspec.Struct]] = {
    cls
    for module in (errors, events, parts)
    for name, cls in inspect.getmembers(module, inspect.isclass)
    if issubclass(cls, msgspec.Struct) and cls.__module__ == module.__name__ and not name.startswith("_")
}


def test_the_table_covers_every_struct() -> None:
    named = {*get_args(Event), *get_args(PartDelta), *get_args(ModelResponsePart), *get_args(ModelRequestPart)}
    assert named <= STRUCTS
    assert set(FIELD_RULES) == STRUCTS


def test_every_field_has_one_rule() -> None:
    """A new field fails here: add a rule to `view/fields.py` for the views that are less than raw."""
    with Cases() as case:
        for cls in STRUCTS:
            with case(cls.__name__):
                decided = " ".join(FIELD_RULES[cls]).split()
                assert sorted(decided) == sorted(cls.__struct_fields__)


def test_a_field_without_a_rule_is_withheld() -> None:
    class Grown(msgspec.Struct, frozen=True):
        text: str
        late: str | None = None

    rule = StructRedactor(Grown, FieldRules("text"))
    assert rule(Grown("a", "b")) == Grown("a")
    same = Grown("a")
    assert rule(same) is same


def test_a_required_field_needs_a_rule() -> None:
    class Grown(msgspec.Struct, frozen=True):
        text: str
        late: str

    with pytest.raises(TypeError, match="Grown cannot be made without its field late"):
        StructRedactor(Grown, FieldRules("text"))


def test_withheld_fields_are_removed() -> None:
    """The redacted struct does not depend on the values of withheld fields."""
    with Cases() as case:
        for cls in STRUCT_REDACTORS:
            with case(cls.__name__):
                fields = {field.name: field for field in msgspec.structs.fields(cls)}
                table = FIELD_RULES[cls]
                needed: dict[str, Any] = {name: f"<{name}>" for name, field in fields.items() if field.required}
                secret: dict[str, Any] = dict.fromkeys(table.withheld.split(), "t0psecret")
                computed: dict[str, Any] = {name: f"<{name}>" for name in table.computed.split()}
                full, bare = cls(**needed | computed | secret), cls(**needed | computed)
                assert STRUCT_REDACTORS[cls](full, **computed) == STRUCT_REDACTORS[cls](bare, **computed) == bare
