"""The page's types (`ui/src/api/types.ts`) have the same fields, required and optional, as those of the gateway."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import UNSET

from pellucid.protocols.chat import frames as f
from pellucid.protocols.chat import types as t
from pellucid.view import View
from tests.cases import Cases

PATH = Path(__file__).parents[2] / "ui/src/api/types.ts"
pytestmark = pytest.mark.skipif(not PATH.exists(), reason="this tree has the page without its source")

_INTERFACE = re.compile(r"interface (\w+)(?: extends (\w+))? \{\n(.*?)\n\}", re.S)
_FIELD = re.compile(r"^  (\w+)(\?)?: ([^\n]+)", re.M)

NEVER_SENT = {("reasoning_part_completed", "final_text")}
"""Fields that the specification allows a server to send, and that this one never sends."""

STRUCT_BY_NAME = {"Answer": t.Answer, "QuestionEvent": t.Question, "AskBody": t.Ask, "ReasoningPart": t.ReasoningPart}
STRUCT_BY_NAME |= {"Span": t.Span, "TokenCounts": t.TokenCounts, "Citation": t.Citation}
STRUCT_BY_NAME |= {"AttachmentInfo": t.AttachmentInfo, "AttachmentInput": t.AttachmentInput}


@cache
def source() -> str:
    """The source of the page's types, without comments."""
    return re.sub(r"/\*\*.*?\*/|//[^\n]*", "", PATH.read_text(encoding="utf-8"), flags=re.S)


Fields = dict[str, bool]
"""For each field name, whether the field may be absent."""


def fields_of(name: str) -> dict[str, tuple[bool, str]]:
    inherited, body = next((base, body) for interface, base, body in _INTERFACE.findall(source()) if interface == name)
    own = {field: (bool(optional), kind) for field, optional, kind in _FIELD.findall(body)}
    return {**(fields_of(inherited) if inherited else {}), **own}


def fields_by_tag() -> dict[str, Fields]:
    """The fields of every frame and segment, by its `type`."""
    result = {}
    for name, _, _ in _INTERFACE.findall(source()):
        fields = fields_of(name)
        if "type" in fields and name not in STRUCT_BY_NAME:
            for tag in re.findall(r'"(\w+)"', fields["type"][1]):
                result[tag] = {field: absent for field, (absent, _) in fields.items() if field != "type"}
    return result


def struct_fields(struct: type[Any], *, absent: Any = UNSET) -> Fields:
    return {field.name: field.default is absent for field in msgspec.structs.fields(struct)}


STRUCT_BY_TAG = {str(one.__struct_config__.tag): one for one in (*get_args(f.Frame), *get_args(t.Segment))}


def test_the_page_has_exactly_the_frames_and_segments_of_the_server() -> None:
    assert fields_by_tag().keys() == STRUCT_BY_TAG.keys()


def test_a_frame_or_segment_has_the_same_fields_on_both_sides() -> None:
    with Cases() as case:
        for tag in STRUCT_BY_TAG:
            with case(tag):
                page_fields = {
                    name: absent for name, absent in fields_by_tag()[tag].items() if (tag, name) not in NEVER_SENT
                }
                assert page_fields == struct_fields(STRUCT_BY_TAG[tag])


def test_an_event_has_the_same_fields_on_both_sides() -> None:
    with Cases() as case:
        for name in STRUCT_BY_NAME:
            with case(name):
                expected = (
                    struct_fields(STRUCT_BY_NAME[name], absent=None)
                    if name in ("AskBody", "AttachmentInput")
                    else struct_fields(STRUCT_BY_NAME[name])
                )
                assert {field: absent for field, (absent, _) in fields_of(name).items()} == expected


@pytest.mark.parametrize(
    ("name", "literal"),
    [("View", View), ("Effort", t.Effort), ("Status", t.Status), ("ToolStatus", t.ToolStatus)],
)
def test_string_literals_are_the_same_on_both_sides(name: str, literal: Any) -> None:
    [line] = re.findall(rf"^export type {name} = ([^\n]+)", source(), re.M)
    assert tuple(re.findall(r'"(\w+)"', line)) == get_args(literal)
