"""Harmony as text: properties of the splitter, and the known forms of gpt-oss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.tags import DROP, TEXT, Harmony, Span
from pellucid.tags.harmony import MAX_HEADER_CHARS
from tests.cases import Cases
from tests.examples import by_circle, many
from tests.tags.tag_kit import divisions, input_of, parse_harmony, run_harmony

ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"
CALL = "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"


# ------------------------------------------------------------------------------------------- properties

PIECES = [
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|constrain|>json",
    "<|endoftext|>",
    ANALYSIS,
    FINAL,
    CALL,
    "assistant",
    "analysis",
    "commentary",
    "final",
    "assistantfinal",
    "assistantcommentary",
    "assistantanalysis",
    " to=functions.f",
    " to=python ",
    "tool",
    "json",
    "{",
    "<",
    "<|",
    "<|st",
    "a",
    "word ",
    " ",
    "\n",
    " " * 300,
    "x" * 300,
]


Case = tuple[str, list[str]]
"""A text, and the text in pieces."""


@st.composite
def divided(draw: st.DrawFn) -> Case:
    text = "".join(draw(st.lists(st.sampled_from(PIECES), max_size=14)))
    return text, draw(divisions(text))


@many
@given(divided())
def test_spans_do_not_depend_on_how_the_text_is_divided(case: Case) -> None:
    text, pieces = case
    whole = run_harmony([text])
    assert run_harmony(pieces) == whole
    assert run_harmony(text) == whole
    assert input_of(whole) == text


@given(divided())
def test_order_of_spans_is_legal(case: Case) -> None:
    _, pieces = case
    parser = Harmony()
    inside = None
    for kind, text in [s for piece in pieces for s in parser.feed(piece)] + parser.end():
        if kind in ("open", "tool"):
            assert inside is None
            inside = kind
        elif kind in ("close", "tool_end"):
            assert inside == {"close": "open", "tool_end": "tool"}[kind]
            inside = None
        else:
            assert inside == {"thinking": "open", "tool_args": "tool"}.get(kind)
            assert text
    assert inside in (None, "open")  # the input may end inside reasoning


@given(divided(), st.integers(0, 8))
def test_pause_loses_no_text_and_releases_held_text(case: Case, at: int) -> None:
    text, pieces = case
    parser = Harmony()
    spans: list[Span] = []
    fed = ""
    for i, piece in enumerate(pieces):
        spans += parser.feed(piece)
        fed += piece
        if i == at:
            spans += parser.pause()
            assert input_of(spans) == fed
    assert input_of(spans + parser.end()) == text


def test_end_is_idempotent_and_feed_after_end_raises() -> None:
    parser = Harmony()
    parser.feed(ANALYSIS + "a")
    assert parser.end() == []
    assert parser.end() == []
    with pytest.raises(RuntimeError):
        parser.feed("b")


@pytest.mark.parametrize("text", ["plain", " a < b", "<br>", "<|x|>", "analysis", "assistants", "to=5 and "])
def test_text_that_cannot_be_a_token_is_released_at_once(text: str) -> None:
    parser = Harmony()
    parser.feed(FINAL + "x")
    assert parser.feed(text) == [Span(TEXT, text)]


@pytest.mark.parametrize("start", ["", ANALYSIS, FINAL + "x", "<|channel|>"])
def test_work_is_linear(start: str) -> None:
    """At most one incomplete header is held and scanned again."""
    with Cases() as case:
        for unit in ["<", " ", "abc", "<|end", "<|end|>", "<|start|>", "<|channel|>", "to=", ANALYSIS]:
            text = start + unit * (by_circle(12_500, 100_000) // len(unit))
            parser = Harmony()
            with case(unit):
                for at in range(0, len(text), 3):
                    parser.feed(text[at : at + 3])
                    assert len(parser._pending) <= MAX_HEADER_CHARS
                parser.end()
                assert input_of(run_harmony([text])) == text


# ------------------------------------------------------------------------------------------------ forms


def test_reasoning_call_answer() -> None:
    text = ANALYSIS + "We need…<|end|>" + CALL + '{"city":"SF"}<|call|>' + FINAL + "Sunny.<|return|>"
    assert parse_harmony(text) == [
        ("open", ANALYSIS),
        ("thinking", "We need…"),
        ("close", "<|end|>"),
        ("drop", CALL),
        ("tool", "functions.f"),
        ("tool_args", '{"city":"SF"}'),
        ("tool_end", "<|call|>"),
        ("drop", FINAL),
        ("text", "Sunny."),
        ("drop", "<|return|>"),
    ]


@pytest.mark.parametrize(
    "header",
    [
        "<|start|>assistant to=functions.f<|channel|>commentary<|constrain|>json<|message|>",
        "<|start|>assistant to=functions.f<|channel|>analysis <|constrain|>json<|message|>",
        " to=functions.f<|channel|>commentary json<|message|>",
        "<|channel|>commentary to=functions.f<|constrain|>json<|message|>",
        "<|channel|>analysis to=functions.f code<|message|>",
        "assistant<|channel|>commentary to=functions.f <|message|>",
    ],
)
def test_recipient_anywhere_in_the_header(header: str) -> None:
    assert parse_harmony(header + "{}<|call|>") == [
        ("drop", header),
        ("tool", "functions.f"),
        ("tool_args", "{}"),
        ("tool_end", "<|call|>"),
    ]


@pytest.mark.parametrize("recipient", ["python", "browser.search"])
def test_builtin_tool_on_the_analysis_channel(recipient: str) -> None:
    header = f"<|channel|>analysis to={recipient} code<|message|>"
    assert parse_harmony(header + "print(1 < 2)<|call|>")[1:3] == [
        ("tool", recipient),
        ("tool_args", "print(1 < 2)"),
    ]


def test_preamble_is_answer() -> None:
    header = "<|channel|>commentary<|message|>"
    parser = Harmony()
    assert parser.feed(header + "Let me look.") == [Span(DROP, header), Span(TEXT, "Let me look.")]
    assert parser.channel == "commentary"
    assert [kind for kind, _ in parse_harmony(header + "Let me look.<|end|>" + FINAL + "It is.")] == [
        "drop",
        "text",
        "drop",
        "text",
    ]


def test_several_analysis_messages() -> None:
    text = ANALYSIS + "a<|end|><|start|>assistant" + ANALYSIS + "b<|end|>" + CALL + "{}<|call|>"
    assert [kind for kind, _ in parse_harmony(text)][:6] == ["open", "thinking", "close"] * 2


def test_white_space_inside_of_a_message_is_content() -> None:
    assert parse_harmony(ANALYSIS + "\n a \n<|end|>" + FINAL + " b \n") == [
        ("open", ANALYSIS),
        ("thinking", "\n a \n"),
        ("close", "<|end|>"),
        ("drop", FINAL),
        ("text", " b \n"),
    ]


def test_empty_analysis_is_no_block() -> None:
    text = ANALYSIS + " \n<|end|>"
    assert parse_harmony(text + FINAL + "b")[:2] == [("drop", text + FINAL), ("text", "b")]


def test_stored_history_ends_with_end() -> None:
    assert parse_harmony(FINAL + "b<|end|>")[1:] == [("text", "b"), ("drop", "<|end|>")]


def test_message_without_end_token_ends_at_the_next_header() -> None:
    assert parse_harmony(ANALYSIS + "a" + FINAL + "b") == [
        ("open", ANALYSIS),
        ("thinking", "a"),
        ("close", ""),
        ("drop", FINAL),
        ("text", "b"),
    ]
    assert parse_harmony(ANALYSIS + "a<|channel|>final<|message|>b")[-1] == ("text", "b")


def test_unknown_tokens_are_literal() -> None:
    assert parse_harmony(FINAL + "a <|x|> <|endoftext|> <|message|>")[1:] == [
        ("text", "a <|x|> <|endoftext|> <|message|>")
    ]


def test_unknown_channel_and_missing_channel_are_answer() -> None:
    assert parse_harmony("<|channel|>musing<|message|>a")[1] == ("text", "a")
    assert parse_harmony("<|start|>assistant<|message|>a")[1] == ("text", "a")
    assert parse_harmony("<|message|>a")[1] == ("text", "a")


def test_plain_text_is_answer() -> None:
    assert parse_harmony(" assistants help to=all") == [("text", " assistants help to=all")]
    assert parse_harmony(ANALYSIS + "a<|end|>\nb")[-1] == ("text", "\nb")
    assert parse_harmony(FINAL + "a<|return|>\n")[-1] == ("drop", "<|return|>\n")


def test_message_to_the_user_is_answer() -> None:
    assert parse_harmony("<|channel|>commentary to=user<|message|>a")[1] == ("text", "a")


def test_made_up_turn_of_another_role_is_dropped() -> None:
    made_up = '<|start|>functions.f to=assistant<|channel|>commentary<|message|>{"a": 1}<|end|>'
    assert parse_harmony(ANALYSIS + "a<|end|>" + made_up + FINAL + "b")[3:] == [
        ("drop", made_up + FINAL),
        ("text", "b"),
    ]


def test_truncated_header() -> None:
    """A truncated header gives no span, wherever it is cut."""
    with Cases() as case:
        for cut in range(1, len(CALL)):
            with case(CALL[:cut]):
                assert parse_harmony(ANALYSIS + "a<|end|>" + CALL[:cut])[3:] in (
                    [("drop", CALL[:cut])],
                    [("text", CALL[:cut])],  # an incomplete token is text
                )


def test_header_without_message_token() -> None:
    assert parse_harmony("<|channel|>final Hello.") == [("drop", "<|channel|>final"), ("text", " Hello.")]
    thought = "<|channel|>analysis " + "We need to think. " * 60
    assert [kind for kind, _ in parse_harmony(thought)] == ["open", "thinking"]
    noise = "<|channel|>" + "x" * MAX_HEADER_CHARS
    assert parse_harmony(noise) == [("text", noise)]


def test_call_cut_by_the_server_or_by_the_token_limit() -> None:
    assert parse_harmony(CALL + '{"a')[2:] == [("tool_args", '{"a'), ("tool_end", "")]


def test_truncated_reasoning() -> None:
    parser = Harmony()
    parser.feed(ANALYSIS + "a <|en")
    assert parser.end() == [Span("thinking", "<|en")]
