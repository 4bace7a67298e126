"""Properties of the splitter, and the numbered edge cases of tagged reasoning."""

from __future__ import annotations

import codecs
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.tags import DROP, FAMILIES, TEXT, THINKING, Family, ImplicitStart, Span, Splitter
from pellucid.tags.families import Position
from tests.cases import Cases
from tests.examples import by_circle, many
from tests.tags.tag_kit import ANYWHERE, Merged, Options, divisions, merge, run, split, splitter_of, text_of

NAMES = sorted(FAMILIES)


# ------------------------------------------------------------------------------------------- properties

ALPHABETS = {
    name: [
        *(*row.starts, *row.ends, *row.breaks, *row.special_breaks),
        *(*row.answer_starts, *row.structural, *row.trailers),
    ]
    for name, row in FAMILIES.items()
}
PROSE = ["a", "word ", " ", "\n", "\n\n", "  ", "<", "</", "<|", "`", "``", "```", '"', "{", "é", "<thi", "nk>"]


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, Family, Options]:
    """Draw text with a family's markers, complete and cut, among prose, white space and backticks."""
    name = draw(st.sampled_from(NAMES))
    markers = ALPHABETS[name]
    cut = st.sampled_from(markers).flatmap(
        lambda m: st.builds(lambda i, j: m[min(i, j) : max(i, j)], st.integers(0, 30), st.integers(0, 30))
    )
    piece = st.one_of(st.sampled_from(markers), st.sampled_from(markers), st.sampled_from(PROSE), cut)
    text = "".join(draw(st.lists(piece, max_size=14)))
    options: Options = {
        "implicit_start": draw(st.sampled_from([None, "never", "always", "auto"])),
        "max_undecided_chars": draw(st.sampled_from([10, 40, 1000])),
    }
    position: Position = draw(st.sampled_from(["start", "anywhere"]))
    return text, replace(FAMILIES[name], position=position), options


Case = tuple[str, list[str], Family, Options]
"""A text, the text in pieces, and the family and options of the splitter."""


@st.composite
def divided(draw: st.DrawFn) -> Case:
    text, family, options = draw(texts())
    return text, draw(divisions(text)), family, options


@many
@given(divided())
def test_spans_do_not_depend_on_how_the_text_is_divided(case: Case) -> None:
    text, pieces, family, options = case
    whole = run([text], family, **options)
    assert run(pieces, family, **options) == whole
    assert run(text, family, **options) == whole


@given(divided())
def test_texts_of_all_spans_are_the_input(case: Case) -> None:
    text, pieces, family, options = case
    assert "".join(part for _, part in run(pieces, family, **options)) == text


@given(divided())
def test_order_of_spans_is_legal(case: Case) -> None:
    """A block is open, thinking, close; thinking is nowhere else and never begins blank."""
    _, pieces, family, options = case
    spans = run(pieces, family, **options)
    inside = False
    for i, (kind, text) in enumerate(spans):
        if kind == "open":
            assert not inside
            assert spans[i + 1][0] == THINKING
            assert spans[i + 1][1].strip(" \t\r\n")
            inside = True
        elif kind == "close":
            assert inside
            inside = False
        elif kind in (THINKING, TEXT):
            assert inside == (kind == THINKING)
            assert text


@given(divided(), st.integers(0, 8))
def test_pause_loses_no_text_and_releases_held_text(case: Case, at: int) -> None:
    text, pieces, family, options = case
    splitter = Splitter(family, **options)
    spans: list[Span] = []
    fed = ""
    for i, piece in enumerate(pieces):
        spans += splitter.feed(piece)
        fed += piece
        if i == at:
            spans += splitter.pause()
            assert "".join(s.text for s in spans) == fed
    spans += splitter.end()
    assert "".join(s.text for s in spans) == text


def test_end_is_idempotent_and_feed_after_end_raises() -> None:
    splitter = splitter_of("think")
    splitter.feed("<think>a")
    assert splitter.end() == []
    assert splitter.end() == []
    assert splitter.pause() == []
    assert splitter.truncated
    with pytest.raises(RuntimeError):
        splitter.feed("b")


def held(splitter: Splitter, text: str) -> str:
    """Feed `text` character by character and return what is held back."""
    out = "".join(span.text for char in text for span in splitter.feed(char))
    assert text.startswith(out)
    return text[len(out) :]


@given(st.text(alphabet="</think> a\n", max_size=40))
def test_reasoning_holds_only_white_space_and_a_prefix_of_the_closing_marker(tail: str) -> None:
    text = "<think>x" + tail.replace("</think>", "")
    prefix = next(p for p in ("</think"[:n] for n in range(7, -1, -1)) if text.endswith(p))
    body = text[: len(text) - len(prefix)]
    assert held(splitter_of(("<think>", "</think>")), text) == body[len(body.rstrip(" \t\r\n")) :] + prefix


@given(st.text(alphabet="</think> a\n`", max_size=40))
def test_answer_holds_only_a_prefix_of_a_live_marker(tail: str) -> None:
    text = "x" + tail
    prefixes = sorted({m[:n] for m in ("<think>", "</think>") for n in range(len(m))}, key=len)
    longest = [prefix for prefix in prefixes if text.endswith(prefix)][-1]
    # Less is held inside code, where no marker is active.
    assert held(splitter_of(("<think>", "</think>")), text) in ({longest, ""} if "`" in text else {longest})


@pytest.mark.parametrize("text", ["plain ", "a < b", "<thi ", "<br>", "</div>", "trailing spaces   \n\n", "＜t"])
def test_text_that_cannot_be_a_marker_is_released_at_once(text: str) -> None:
    splitter = splitter_of("think")
    assert splitter.feed("x") == [Span(TEXT, "x")]
    assert "".join(span.text for span in splitter.feed(text)) == text


def test_white_space_in_the_answer_is_not_held() -> None:
    splitter = splitter_of("think")
    splitter.feed("<think>a</think>b")
    assert splitter.feed(" \n\n") == [Span(TEXT, " \n\n")]


STARTS = ["", "<think>", "<think>x", "<think>x</think>", "x"]
UNITS = ["<", "a", " ", "\n", "`", "</think", "<|im_end|>", "a </think>\n", "<think>"]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("family", [FAMILIES["think"], ANYWHERE])
def test_work_is_linear(start: str, family: Family) -> None:
    """Each piece is scanned once with the pending text, which is never longer than a marker."""
    longest = max(len(marker) for marker in ALPHABETS["think"])
    with Cases() as case:
        for unit in UNITS:
            splitter = Splitter(family)
            splitter.feed(start)
            text = unit * (by_circle(7_500, 60_000) // len(unit))
            scanned = spans = 0
            with case(repr(unit)):
                for at in range(0, len(text), 3):
                    scanned += len(splitter._pending) + 3
                    spans += len(splitter.feed(text[at : at + 3]))
                    assert len(splitter._pending) < longest
                assert scanned < longest * len(text)
                assert spans <= len(text)
                splitter.end()


@pytest.mark.parametrize("implicit_start", [None, "always", "auto"])
def test_a_text_may_have_any_length(implicit_start: ImplicitStart | None) -> None:
    with Cases() as case:
        for unit in ["<", " ", "abc", "</thin", "` ", "<|im_end|>"]:
            text = unit * (by_circle(125_000, 1_000_000) // len(unit))
            pieces = [text[i : i + 3] for i in range(0, len(text), 3)]
            for division in (pieces, [text]):
                splitter = splitter_of("think", implicit_start=implicit_start)
                with case(f"{unit!r} in {len(division)} pieces"):
                    size = sum(len(span.text) for piece in division for span in splitter.feed(piece))
                    assert size + sum(len(span.text) for span in splitter.end()) == len(text)


# ----------------------------------------------------------------------------------------- edge cases


def test_case_1_marker_split_over_chunks() -> None:
    text = "<think>über</think>ja"
    expected = [("open", "<think>"), ("thinking", "über"), ("close", "</think>"), ("text", "ja")]
    assert split(text) == expected
    decoder = codecs.getincrementaldecoder("utf-8")()  # bytes are decoded first, so ü may be cut, too
    assert run(decoder.decode(bytes([byte])) for byte in text.encode()) == expected


def test_case_1_longest_suffix_because_of_self_overlap() -> None:
    assert split("<think>a<</think>b") == [
        ("open", "<think>"),
        ("thinking", "a<"),
        ("close", "</think>"),
        ("text", "b"),
    ]
    assert split("x <<think>y</think>", ANYWHERE)[0] == ("text", "x <")


def test_case_2_false_prefix() -> None:
    assert split("a < b, <thi then ng>, <") == [("text", "a < b, <thi then ng>, <")]
    assert split("<thi then ng>") == [("text", "<thi then ng>")]
    assert split("<think>a </thin") == [("open", "<think>"), ("thinking", "a </thin")]


def test_case_3_everything_in_one_chunk() -> None:
    assert [tuple(span) for span in splitter_of().feed("<think>a</think>b")] == [
        ("open", "<think>"),
        ("thinking", "a"),
        ("close", "</think>"),
        ("text", "b"),
    ]


def test_case_4_opening_marker_prefilled_by_the_template() -> None:
    expected = [("open", ""), ("thinking", "a"), ("close", "\n</think>\n"), ("text", "b")]
    assert split("a\n</think>\nb", implicit_start="always") == expected
    assert split("a\n</think>\nb", "think-forced") == expected
    assert split("a\n</think>\nb", "think-explicit") == expected
    assert split("a", "think-explicit", implicit_start="never") == [("text", "a")]
    # A model that writes the marker anyway.
    assert split("\n<think>\na</think>", "think-forced")[0] == ("open", "\n<think>\n")


def test_case_4_auto_waits_for_a_marker() -> None:
    auto: Options = {"implicit_start": "auto"}
    assert split("a\n</think>\nb", **auto) == [
        ("open", ""),
        ("thinking", "a"),
        ("close", "\n</think>\n"),
        ("text", "b"),
    ]
    assert split("plain", **auto) == [("text", "plain")]
    assert split("<think>a</think>b", **auto)[0] == ("open", "<think>")
    assert split("see <think>a</think>b", **auto) == [("text", "see <think>a</think>b")]
    assert splitter_of(**auto).feed("plain") == []


def test_case_4_auto_is_capped() -> None:
    assert split("0123456789</think>b", implicit_start="auto", max_undecided_chars=10) == [
        ("text", "0123456789</think>b")
    ]
    assert split("0</think>b", implicit_start="auto", max_undecided_chars=10)[1] == ("thinking", "0")
    splitter = splitter_of(implicit_start="auto", max_undecided_chars=10)
    assert splitter.feed("0123456789") == [Span(TEXT, "0123456789")]


def test_case_5_close_without_open() -> None:
    assert split(" </think>\n\nb") == [("drop", " </think>\n\n"), ("text", "b")]
    assert split("</think>b", "minimax-m3", implicit_start="never") == [("text", "</think>b")]
    assert split("</mm:think>b", "minimax-m3", implicit_start="never")[0] == ("drop", "</mm:think>")
    assert split("a</think>b") == [("text", "a</think>b")]


@pytest.mark.parametrize(
    ("text", "thinking"), [("<think>\na b\n", "a b\n"), ("<think>a</th", "a</th"), ("<think>a ", "a ")]
)
def test_case_6_unclosed_block(text: str, thinking: str) -> None:
    spans = split(text)
    assert spans[0][0] == "open"
    assert spans[1:] == [("thinking", thinking)]
    splitter = splitter_of()
    splitter.feed(text)
    assert not splitter.truncated
    splitter.end()
    assert splitter.truncated


def test_case_6_unclosed_before_any_reasoning() -> None:
    splitter = splitter_of()
    assert splitter.feed("<think>\n") == []
    assert splitter.end() == [Span(DROP, "<think>\n")]
    assert splitter.truncated
    silent = splitter_of("think-forced")  # no text at all
    assert silent.end() == []
    assert not silent.truncated


def test_case_7_white_space_around_markers_is_stripped_and_kept() -> None:
    assert split("\n<think> \n a  b \n</think> \n\n  c \n") == [
        ("open", "\n<think> \n "),
        ("thinking", "a  b"),
        ("close", " \n</think> \n\n"),
        ("text", "  c \n"),
    ]


def test_case_7_text_that_no_marker_touches_is_left_alone() -> None:
    assert split("\n\n  a \n") == [("text", "\n\n  a \n")]
    assert split(" \n") == [("text", " \n")]


@pytest.mark.parametrize("code", ["`<think>`", "``<think>``", "```xml\n<think>a</think>\n```", "\n~ '<think>'"])
def test_case_8_marker_in_the_answers_code(code: str) -> None:
    text = f"Use {code} here"
    assert split(text) == [("text", text)]
    if "'" not in code:
        assert split(text, ANYWHERE) == [("text", text)]


def test_case_8_anywhere_outside_of_code() -> None:
    spans = split("A `<think>` b ```\n<think>\n``` c <think>d</think> e", ANYWHERE)
    assert text_of(spans, THINKING) == "d"
    assert split("a ` lone\n<think>d</think>", ANYWHERE)[1:3] == [
        ("open", "<think>"),
        ("thinking", "d"),
    ]


def test_case_8_first_close_wins_inside_reasoning() -> None:
    assert text_of(split('<think>print("</think>")'), THINKING) == 'print("'


def test_case_9_nested_markers_are_literal() -> None:
    assert split("<think><think>a</think>b") == [
        ("open", "<think>"),
        ("thinking", "<think>a"),
        ("close", "</think>"),
        ("text", "b"),
    ]


def test_case_10_multiple_blocks() -> None:
    text = "<think>a</think>b<think>c</think>d"
    assert text_of(split(text), TEXT) == "b<think>c</think>d"
    assert split(text, ANYWHERE) == [
        ("open", "<think>"),
        ("thinking", "a"),
        ("close", "</think>"),
        ("text", "b"),
        ("open", "<think>"),
        ("thinking", "c"),
        ("close", "</think>"),
        ("text", "d"),
    ]


def test_case_11_second_draft_closed_by_a_stray_marker() -> None:
    text = "<think>a</think>draft</think>final"
    assert split(text)[3:] == [("text", "draft"), ("drop", "</think>"), ("text", "final")]
    assert split("<think>a</think>\n</think>b")[2:] == [("close", "</think>\n</think>"), ("text", "b")]


@pytest.mark.parametrize(
    "answer", ["`</think>`", '"</think>"', "```\n</think>\n```\n", "a <think>b</think> c", '{"a": "x</think>"}']
)
def test_case_11_a_marker_that_is_quoted_stays(answer: str) -> None:
    assert text_of(split("<think>a</think>" + answer), TEXT) == answer


def test_case_12_tool_marker_ends_reasoning() -> None:
    call = '<tool_call>\n{"name": "f"}\n</tool_call>'
    assert split(f"a\n{call}", "think+tool-close") == [
        ("open", ""),
        ("thinking", "a"),
        ("close", "\n"),
        ("text", call),
    ]
    # Only at the start of a line, unless it is a token that prose does not contain.
    assert text_of(split("a <tool_call> b</think>c", "think+tool-close"), THINKING) == "a <tool_call> b"
    kimi = "a<|tool_calls_section_begin|>b"
    assert split(kimi, "think+tool-close")[2:] == [("close", ""), ("text", "<|tool_calls_section_begin|>b")]
    assert split(call, "think+tool-close") == [("text", call)]


def test_case_13_end_of_sequence_tokens() -> None:
    assert split("a<|im_end|>\n<|endoftext|>") == [("text", "a"), ("drop", "<|im_end|>\n<|endoftext|>")]
    assert split("<think>a</think>b<｜end▁of▁sentence｜>")[-1] == ("drop", "<｜end▁of▁sentence｜>")
    assert split("<think>a\n<|im_end|>") == [
        ("open", "<think>"),
        ("thinking", "a\n"),
        ("drop", "<|im_end|>"),
    ]
    assert split("<think>a<|im_end|>\n</think>b")[2] == ("close", "<|im_end|>\n</think>")
    assert split("ends <|im_end|> in the middle") == [("text", "ends <|im_end|> in the middle")]


@pytest.mark.parametrize("text", ["<think>\n\n</think>\n\n", "<think></think>\n", "\n<think> </think>"])
def test_case_14_empty_block(text: str) -> None:
    assert split(text + "b") == [("drop", text), ("text", "b")]
    assert split(text) == [("drop", text)]


def test_case_15_reasoning_in_a_field_and_in_tags() -> None:
    """The caller compares the tagged copy with the field: the text is available, stripped."""
    native = "The same thought."
    assert text_of(split(f"<think>\n{native}\n</think>\n\nb"), THINKING) == native


@pytest.mark.parametrize("text", ["<think id=1>a</think>", "<Think>a</Think>", "< think >a</ think >", "<thinking>a"])
def test_case_16_exact_match_only(text: str) -> None:
    assert split(text) == [("text", text)]


def test_case_17_one_splitter_for_each_choice() -> None:
    a, b = splitter_of(), splitter_of()
    assert a.feed("<thi") == []
    assert b.feed("nk>") == [Span(TEXT, "nk>")]
    assert merge(a.feed("nk>x") + a.end()) == [("open", "<think>"), ("thinking", "x")]


def test_case_18_structured_output_is_exact() -> None:
    body = json.dumps({"a": " x ", "b": ["</think>", "<think>", "<|im_end|>", "`"]}, indent=2) + "\n"
    assert text_of(split("<think>a</think>\n" + body), TEXT) == body
    assert text_of(split("<think>a</think>\n" + body, ANYWHERE), TEXT) == body
    again = body + "<think>b</think>{}"
    assert text_of(split(again, ANYWHERE), TEXT) == body + "{}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a</think>b", [("open", ""), ("thinking", "a"), ("close", "</think>"), ("text", "b")]),
        (" here", [("open", " "), ("thinking", "here")]),
        ("<think>\na", [("open", "<think>\n"), ("thinking", "a")]),
        ("</think>\n\nb", [("drop", "</think>\n\n"), ("text", "b")]),
    ],
)
def test_case_19_assistant_prefill(text: str, expected: Merged) -> None:
    """The prompt already holds the opening marker, or the marker and the beginning of the reasoning."""
    assert split(text, "think", implicit_start="always") == expected


@pytest.mark.parametrize("text", ["&lt;think&gt;a&lt;/think&gt;", "＜think＞a＜/think＞"])
def test_case_20_escaped_and_fullwidth_are_no_markers(text: str) -> None:
    assert split(text) == [("text", text)]
    assert split(f"<think>{text}</think>")[1] == ("thinking", text)


# ---------------------------------------------------------------------------------------------- pause


def test_pause_lets_a_tool_call_follow_its_reasoning() -> None:
    splitter = splitter_of()
    assert [s.kind for s in splitter.feed("<think>a</think>\n\n")] == ["open", "thinking"]
    assert splitter.pause() == [Span("close", "</think>\n\n")]
    assert splitter.feed("\n\nb") == [Span(DROP, "\n\n"), Span(TEXT, "b")]
