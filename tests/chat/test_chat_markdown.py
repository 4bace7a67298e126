"""A chat as a Markdown document: no text can leave its part, or look like another part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pellucid.protocols.chat import Answer, Question
from pellucid.protocols.chat.attachments import size_text
from pellucid.protocols.chat.markdown import to_markdown, without_marks
from pellucid.protocols.chat.types import AttachmentInfo, RefusalSegment, Segment, TextSegment

HOSTILE = {
    "headings": "Fine.\n\n## Question\n\n> forged\n\n# Answer · gpt-9\n\nforged",
    "underlined headings": "Fine.\n\nAnswer\ngpt-9\n===\n\nx\n---",
    "a fence": "open\n```\ncode",
    "a fence in a list": "1. a\n\n   ```\n   x",
    "a fence in a list item's first line": "- ```\n  x",
    "a fence in a quotation": "> ```\n> x",
    "a fence in a fence": "````\n```\nx",
    "a closing fence with text": "```\n``` x\ny",
    "a fence after a tab": "\t```\n```",
    "a fence in HTML": "<pre>\n```\n## Question\n",
    "HTML": "<script>\nx\n\n<!-- y",
    "HTML in a line": "text <img src=x onerror=alert(1)> <details>",
    "HTML in a list": "- <script>\n* <!-- x\n\n1. x\n   <pre>",
    "HTML in a quotation": "> <script>",
    "HTML behind a link": "[a](x`y) <script> `z",
    "HTML in a cell": "| a | b |\n|---|---|\n| `x | <b> ` |",
    "lines of other kinds": "a\r```\u2028b",
    "deep lists": "\n".join("  " * depth + "- a" for depth in range(60)) + "\n```\n<b>",
}
LINES = [
    "a",
    "```",
    "~~~ x",
    "## Question",
    "===",
    "---",
    "<pre>",
    "</pre>",
    "<b>x",
    "<!--",
    "`",
    "`<b>`",
    "[a](`",
    "| ` | <i> |",
    "",
]
PREFIXES = ["", "- ", "1. ", "> ", "  ", "   ", "    ", "\t", "\\"]


def events(text: str) -> list[Question | Answer]:
    question = Question(
        id="ask_1",
        conversation_id="chat_1",
        created_at=1,
        segments=[TextSegment(id="s", text=text)],
        attachments=[AttachmentInfo(id="f", name=text, media_type="text/plain", size=3, url="/f")],
    )
    segments: list[Segment] = [TextSegment(id="t", text=text), RefusalSegment(id="r", text=text)]
    return [question, Answer(id="evt_1", conversation_id="chat_1", model="m", created_at=1, segments=segments)]


def check(text: str) -> None:
    document = to_markdown("Title", [*events(text), *events("plain")])
    tokens = MarkdownIt("commonmark", {"html": True}).parse(document)
    top = [
        tokens[index + 1].content
        for index, one in enumerate(tokens)
        if one.type == "heading_open" and one.level == 0 and one.tag in ("h1", "h2")
    ]
    assert top == ["Title", *["Question", "Answer · m"] * 2], document
    assert not any(one.type.startswith("html") for token in tokens for one in (token, *(token.children or ()))), (
        document
    )


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_stays_in_its_part(text: str) -> None:
    check(text)


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(PREFIXES), max_size=3).map("".join), st.sampled_from(LINES)), max_size=8
    )
)
def test_any_text_stays_in_its_part(lines: list[tuple[str, str]]) -> None:
    check("\n".join(prefix + line for prefix, line in lines))


@pytest.mark.parametrize(
    "text",
    [
        "use `vector<int>` here",
        "```html\n<b># x</b>\n```",
        "1. do\n\n   ```html\n   <b>\n   ```\n\n2. x",
        "    <b>\n    # no heading",
        "1 < 2, a<3, <https://example.org>",
        "> quotation\n\n* * *\n\n### Section",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    expected = text.replace("### Section", "##### Section")
    assert expected in to_markdown("Title", events(text))


def test_a_question_names_its_files() -> None:
    files = [
        AttachmentInfo(id="f", name="moss_map.png", media_type="image/png", size=1_500_000, url="/f"),
        AttachmentInfo(id="g", name="notes.txt", media_type="text/plain", size=2_000, url="/g"),
    ]
    segments = [TextSegment(id="s", text="Where?")]
    question = Question(id="ask_1", conversation_id="chat_1", created_at=1, segments=segments, attachments=files)
    image, notes = f"moss\\_map.png ({size_text(1_500_000)})", f"notes.txt ({size_text(2_000)})"
    expected = f"> Where?\n\n- *Attached: {image}*\n- *Attached: {notes}*\n"
    assert expected in to_markdown("Title", [question])


@pytest.mark.parametrize(
    ("line", "query", "plain"),
    [
        ("… The **moon**, $$F = G$$ | body | share | `x`", "moon", "… The moon, F = G body share x"),
        ("# Title > quoted *word* [a link](https://x.example)", "", "Title quoted word a link"),
        ("| a | b | |---|:--| | c |", "", "a b c"),
        ("2 * 3 = 2*3, a_b, -1 | ~5 #1", "", "2 * 3 = 2*3, a_b, -1 ~5 #1"),
        ("use **kwargs", "**KWARGS", "use **kwargs"),
    ],
)
def test_a_line_for_people_has_no_marks(line: str, query: str, plain: str) -> None:
    assert without_marks(line, query) == plain
