"""Every family opens, closes and drops its markers, wherever the text is cut."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pellucid.tags import FAMILIES, TEXT, THINKING, Family, family
from pellucid.tags.families import Pair
from tests.cases import Cases
from tests.tags.tag_kit import split, text_of

each_family = pytest.mark.parametrize("name", FAMILIES)


def pairs(name: str) -> list[tuple[str, str]]:
    """Return every start marker of a family with every end marker that may follow it."""
    return [(start, end) for pair in FAMILIES[name].pairs for start in pair.starts for end in pair.ends]


@each_family
def test_opens_and_closes(name: str) -> None:
    with Cases() as case:
        for start, end in pairs(name):
            with case(start + end):
                assert split(f"{start}\nWhy? a < b\n{end}\n\n The answer.", name) == [
                    ("open", f"{start}\n"),
                    ("thinking", "Why? a < b"),
                    ("close", f"\n{end}\n\n"),
                    ("text", " The answer."),
                ]


@each_family
def test_empty_block_is_dropped(name: str) -> None:
    with Cases() as case:
        for start, end in pairs(name):
            text = f"{start}\n\n{end}\n\n"
            with case(start + end):
                assert split(text + "The answer.", name) == [("drop", text), ("text", "The answer.")]


@each_family
def test_unclosed_block_is_reasoning(name: str) -> None:
    with Cases() as case:
        for start, end in pairs(name):
            text = f"Why? {end[:-1]}"
            with case(start + end):
                assert split(start + text, name) == [("open", start), ("thinking", text)]


@each_family
def test_implicit_start(name: str) -> None:
    row = FAMILIES[name]
    spans = split(f"Why?{row.ends[0]}The answer.", name)
    if row.implicit_start == "always":
        assert spans == [("open", ""), ("thinking", "Why?"), ("close", row.ends[0]), ("text", "The answer.")]
    else:
        assert spans[0][0] == "text"


@each_family
def test_plain_answer(name: str) -> None:
    text = " The answer: a < b, [c], `d`.\n"
    assert split(text, name, implicit_start="never") == [("text", text)]


def test_tool_marker_ends_reasoning_and_stays() -> None:
    with Cases() as case:
        for name, row in FAMILIES.items():
            for marker in (*row.breaks, *row.special_breaks):
                start = row.starts[0]
                with case(f"{name}: {marker}"):
                    spans = split(f"{start}Why?\n{marker} …", name)
                    assert spans == [("open", start), ("thinking", "Why?"), ("close", "\n"), ("text", f"{marker} …")]


def test_trailer_is_dropped_at_the_end_only() -> None:
    with Cases() as case:
        for name, row in FAMILIES.items():
            for marker in row.trailers:
                with case(f"{name}: {marker}"):
                    spans = split(f"The answer.{marker}", name, implicit_start="never")
                    assert spans == [("text", "The answer."), ("drop", marker)]
                    text = f"The answer.{marker} And more."
                    assert text_of(split(text, name, implicit_start="never"), TEXT) == text


WRAPPED = {
    "hunyuan-a13b": "<think>\nWhy?\n</think>\n<answer>\nSo.\n</answer>",
    "ernie": "Why?\n</think>\n\n<response>\nSo.\n</response>\n</s>",
    "kimi-k3": "Why?<|close|>think<|sep|><|open|>response<|sep|>So.<|close|>response<|sep|>"
    "<|close|>message<|sep|><|end_of_msg|>",
    "cohere": "<|START_THINKING|>Why?<|END_THINKING|><|START_RESPONSE|>So.<|END_RESPONSE|>",
    "inkling": "<|message_model|><|content_thinking|>Why?<|end_message|>"
    "<|message_model|><|content_text|>So.<|end_message|><|content_model_end_sampling|>",
    "muse": " to=self<|message|>Why?<|eom|><|start|>assistant to=user<|message|>So.<|eot|>",
    "beam": "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>",
    "gemma4": "<|channel>thought\nWhy?\n<channel|>So.<turn|>",
    "seed": "<seed:think>Why?</seed:think>So.<seed:eos>",
}


@pytest.mark.parametrize("name", WRAPPED)
def test_answer_wrapper_is_dropped(name: str) -> None:
    spans = split(WRAPPED[name], name)
    assert text_of(spans, THINKING) == "Why?"
    assert text_of(spans, TEXT) == "So."


def test_pairs_are_not_mixed() -> None:
    assert text_of(split("<ifm|think_fast>a</ifm|think>b</ifm|think_fast>c", "k2-horizon"), THINKING) == (
        "a</ifm|think>b"
    )
    assert text_of(split("a</ifm|think_faster>c", "k2-horizon"), THINKING) == "a"  # an implicit start allows any end


def test_interleaved_blocks() -> None:
    text = " to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b<|eom|>"
    assert [kind for kind, _ in split(text, "muse")] == ["open", "thinking", "close"] * 2


def test_apertus_calls_tools_inside_of_reasoning() -> None:
    text = '<|inner_prefix|>a<|tools_prefix|>[{"f": {}}]<|tools_suffix|>'
    assert split(text, "apertus")[2:] == [
        ("close", ""),
        ("text", '<|tools_prefix|>[{"f": {}}]<|tools_suffix|>'),
    ]


def test_another_marker_does_not_close_a_custom_pair() -> None:
    assert split("<think:xyz>a</think>b</think:xyz>c", ("<think:xyz>", "</think:xyz>"))[1] == ("thinking", "a</think>b")


def test_custom_pair() -> None:
    pair = ("[[why]]\n", "\n[[/why]]")  # white space around a configured marker is ignored
    assert split("[[why]]a[[/why]]\nb", pair) == [
        ("open", "[[why]]"),
        ("thinking", "a"),
        ("close", "[[/why]]\n"),
        ("text", "b"),
    ]
    assert text_of(split("a[[/why]]b", pair, implicit_start="always"), THINKING) == "a"
    assert split("***a***b", ("***", "***"))[1:3] == [("thinking", "a"), ("close", "***")]


def test_family_looks_up_names_and_pairs() -> None:
    assert family("seed") is FAMILIES["seed"]
    assert family(("<a>", " </a>")) == Family(name="custom", pairs=(Pair(("<a>",), ("</a>",)),))
    with pytest.raises(ValueError, match=r"'nope'.*gemma4"):
        family("nope")


def test_rows_are_named_frozen_and_hashable() -> None:
    for name, row in FAMILIES.items():
        assert row.name == name
        assert hash(row) == hash(msgspec.structs.replace(row))
        with pytest.raises(AttributeError):
            row.name = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    "row",
    [
        {"pairs": ()},
        {"pairs": (Pair((), ("x",)),)},
        {"pairs": (Pair(("x",), ("",)),)},
        {"pairs": (Pair((" x",), ("y",)),)},
        {"pairs": (Pair(("x",), ("y",)),), "structural": ("z\n",)},
        {"pairs": (Pair(("x",), ("y",)),), "trailers": ("\n",)},
    ],
)
def test_a_row_that_cannot_work_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="bad"):
        Family(name="bad", **row)


def test_a_blank_custom_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="custom"):
        family(("<a>", " "))
