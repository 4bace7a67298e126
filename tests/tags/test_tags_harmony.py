"""Harmony as text: the splitter's laws, and the shapes that gpt-oss is known to produce."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.tags import DROP, TEXT, Harmony, Span
from pellucid.tags.harmony import HEADER_CAP
from tests.examples import many

ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"
CALL = "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"


def merge(spans):
    return [(kind, "".join(text for _, text in group)) for kind, group in groupby(spans, key=lambda s: s.kind)]


def run(pieces, **options):
    parser = Harmony(**options)
    return merge([span for piece in pieces for span in parser.feed(piece)] + parser.end())


def raw(spans):
    return "".join(text for kind, text in spans if kind != "tool")


def parse(text, **options):
    """The merged spans of `text`, the same for every division into two parts and into characters."""
    whole = run([text], **options)
    assert run(text, **options) == whole
    for at in range(1, len(text)):
        assert run([text[:at], text[at:]], **options) == whole
    assert raw(whole) == text
    return whole


# ------------------------------------------------------------------------------------------------- laws

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


@st.composite
def divided(draw):
    text = "".join(draw(st.lists(st.sampled_from(PIECES), max_size=14)))
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return text, pieces, draw(st.booleans())


@many
@given(divided())
def test_spans_do_not_depend_on_how_the_text_is_divided(case):
    text, pieces, glued = case
    whole = run([text], glued=glued)
    assert run(pieces, glued=glued) == whole
    assert run(text, glued=glued) == whole
    assert raw(whole) == text


@given(divided())
def test_order_of_spans_is_legal(case):
    _, pieces, glued = case
    parser = Harmony(glued=glued)
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
    assert parser.truncated or inside is None


@given(divided(), st.integers(0, 8))
def test_pause_loses_nothing_and_holds_nothing(case, at):
    text, pieces, glued = case
    parser = Harmony(glued=glued)
    spans, fed = [], ""
    for i, piece in enumerate(pieces):
        spans += parser.feed(piece)
        fed += piece
        if i == at:
            spans += parser.pause()
            assert raw(spans) == fed
    assert raw(spans + parser.end()) == text


def test_end_is_idempotent_and_feed_after_end_raises():
    parser = Harmony()
    parser.feed(ANALYSIS + "a")
    assert parser.end() == []
    assert parser.end() == []
    assert parser.truncated
    with pytest.raises(RuntimeError):
        parser.feed("b")


@pytest.mark.parametrize("text", ["plain", " a < b", "<br>", "<|x|>", "analysis", "assistants", "to=5 and "])
def test_text_that_cannot_be_a_token_is_released_at_once(text):
    parser = Harmony()
    parser.feed(FINAL + "x")
    assert parser.feed(text) == [Span(TEXT, text)]


@pytest.mark.parametrize("start", ["", ANALYSIS, FINAL + "x", "<|channel|>"])
@pytest.mark.parametrize("unit", ["<", " ", "abc", "<|end", "<|end|>", "<|start|>", "<|channel|>", "to=", ANALYSIS])
def test_work_is_linear(start, unit):
    """What is held to be read again is at most a header that has not been given up."""
    text = start + unit * (100_000 // len(unit))
    parser = Harmony()
    for at in range(0, len(text), 3):
        parser.feed(text[at : at + 3])
        assert len(parser._pending) <= HEADER_CAP
    parser.end()
    assert raw(run([text])) == text


# ----------------------------------------------------------------------------------------------- shapes


def test_reasoning_call_answer():
    text = ANALYSIS + "We need…<|end|>" + CALL + '{"city":"SF"}<|call|>' + FINAL + "Sunny.<|return|>"
    assert parse(text) == [
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
def test_recipient_anywhere_in_the_header(header):
    assert parse(header + "{}<|call|>") == [
        ("drop", header),
        ("tool", "functions.f"),
        ("tool_args", "{}"),
        ("tool_end", "<|call|>"),
    ]


@pytest.mark.parametrize("recipient", ["python", "browser.search"])
def test_builtin_tool_on_the_analysis_channel(recipient):
    header = f"<|channel|>analysis to={recipient} code<|message|>"
    assert parse(header + "print(1 < 2)<|call|>")[1:3] == [
        ("tool", recipient),
        ("tool_args", "print(1 < 2)"),
    ]


def test_preamble_is_answer():
    header = "<|channel|>commentary<|message|>"
    parser = Harmony()
    assert parser.feed(header + "Let me look.") == [Span(DROP, header), Span(TEXT, "Let me look.")]
    assert parser.channel == "commentary"
    assert [kind for kind, _ in parse(header + "Let me look.<|end|>" + FINAL + "It is.")] == [
        "drop",
        "text",
        "drop",
        "text",
    ]


def test_several_analysis_messages():
    text = ANALYSIS + "a<|end|><|start|>assistant" + ANALYSIS + "b<|end|>" + CALL + "{}<|call|>"
    assert [kind for kind, _ in parse(text)][:6] == ["open", "thinking", "close"] * 2


def test_white_space_inside_of_a_message_is_content():
    assert parse(ANALYSIS + "\n a \n<|end|>" + FINAL + " b \n") == [
        ("open", ANALYSIS),
        ("thinking", "\n a \n"),
        ("close", "<|end|>"),
        ("drop", FINAL),
        ("text", " b \n"),
    ]


def test_empty_analysis_is_no_block():
    text = ANALYSIS + " \n<|end|>"
    assert parse(text + FINAL + "b")[:2] == [("drop", text + FINAL), ("text", "b")]


def test_stored_history_ends_with_end():
    assert parse(FINAL + "b<|end|>")[1:] == [("text", "b"), ("drop", "<|end|>")]


def test_message_without_end_token_ends_at_the_next_header():
    assert parse(ANALYSIS + "a" + FINAL + "b") == [
        ("open", ANALYSIS),
        ("thinking", "a"),
        ("close", ""),
        ("drop", FINAL),
        ("text", "b"),
    ]
    assert parse(ANALYSIS + "a<|channel|>final<|message|>b")[-1] == ("text", "b")


def test_unknown_tokens_are_literal():
    assert parse(FINAL + "a <|x|> <|endoftext|> <|message|>")[1:] == [("text", "a <|x|> <|endoftext|> <|message|>")]


def test_unknown_channel_and_missing_channel_are_answer():
    assert parse("<|channel|>musing<|message|>a")[1] == ("text", "a")
    assert parse("<|start|>assistant<|message|>a")[1] == ("text", "a")
    assert parse("<|message|>a")[1] == ("text", "a")


def test_plain_text_is_answer():
    assert parse(" assistants help to=all") == [("text", " assistants help to=all")]
    assert parse(ANALYSIS + "a<|end|>\nb")[-1] == ("text", "\nb")
    assert parse(FINAL + "a<|return|>\n")[-1] == ("drop", "<|return|>\n")


def test_message_to_the_user_is_answer():
    assert parse("<|channel|>commentary to=user<|message|>a")[1] == ("text", "a")


def test_made_up_turn_of_another_role_is_dropped():
    made_up = '<|start|>functions.f to=assistant<|channel|>commentary<|message|>{"a": 1}<|end|>'
    assert parse(ANALYSIS + "a<|end|>" + made_up + FINAL + "b")[3:] == [
        ("drop", made_up + FINAL),
        ("text", "b"),
    ]


@pytest.mark.parametrize("cut", range(1, len(CALL)))
def test_truncated_header(cut):
    """A header that was cut off says nothing, at whatever place."""
    assert parse(ANALYSIS + "a<|end|>" + CALL[:cut])[3:] in (
        [("drop", CALL[:cut])],
        [("text", CALL[:cut])],  # a token that was cut within itself is text
    )


def test_header_without_message_token():
    assert parse("<|channel|>final Hello.") == [("drop", "<|channel|>final"), ("text", " Hello.")]
    thought = "<|channel|>analysis " + "We need to think. " * 60
    assert [kind for kind, _ in parse(thought)] == ["open", "thinking"]
    noise = "<|channel|>" + "x" * HEADER_CAP
    assert parse(noise) == [("text", noise)]


def test_call_cut_by_the_server_or_by_the_token_limit():
    assert parse(CALL + '{"a')[2:] == [("tool_args", '{"a'), ("tool_end", "")]


def test_truncated_reasoning():
    parser = Harmony()
    parser.feed(ANALYSIS + "a <|en")
    assert parser.end() == [Span("thinking", "<|en")]
    assert parser.truncated


# ------------------------------------------------------------------------------------------------ glued


def test_glued_form_is_read_when_asked_for():
    text = "analysisThe user asks.assistantfinalHello, assistantfinal!"
    assert parse(text, glued=True) == [
        ("open", "analysis"),
        ("thinking", "The user asks."),
        ("close", ""),
        ("drop", "assistantfinal"),
        ("text", "Hello, assistantfinal!"),
    ]
    assert parse(text) == [("text", text)]


@pytest.mark.parametrize(
    "between", [" to=functions.f json", " to=functions.fjson", " to=functions.f ", " to=functions.f"]
)
def test_glued_call(between):
    text = f'analysisa.assistantcommentary{between}{{"x": 1}}assistantanalysisb'
    assert parse(text, glued=True)[3:] == [
        ("drop", "assistantcommentary" + between),
        ("tool", "functions.f"),
        ("tool_args", '{"x": 1}'),
        ("tool_end", ""),
        ("open", "assistantanalysis"),
        ("thinking", "b"),
    ]


def test_glued_preamble():
    assert parse("commentaryLet me see.assistantfinalSo.", glued=True) == [
        ("drop", "commentary"),
        ("text", "Let me see."),
        ("drop", "assistantfinal"),
        ("text", "So."),
    ]


def test_glued_truncation():
    parser = Harmony(glued=True)
    parser.feed("analysisThe user assistantfi")
    parser.end()
    assert parser.truncated
    assert parse("analysis", glued=True) == [("drop", "analysis")]


@pytest.mark.parametrize("text", ["Hello", "an answer", "Analysis: x", " final"])
def test_glued_flag_leaves_other_output_alone(text):
    kinds = [kind for kind, _ in parse(text, glued=True)]
    assert kinds == (["drop"] if text == " final" else ["text"])
    assert parse(ANALYSIS + "a<|end|>" + FINAL + "b", glued=True)[1] == ("thinking", "a")
