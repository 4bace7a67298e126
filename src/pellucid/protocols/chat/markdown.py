"""A chat as a Markdown document, from its canonical events.

Nothing that a person or a model wrote can change the structure of the document: a question is a quotation, reasoning,
arguments and results are fenced with a fence that their text does not contain, and other text is changed (`_contained`)
where it would end its part or look like another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from .attachments import size_text
from .types import (
    Answer,
    FileSegment,
    Question,
    ReasoningSegment,
    RefusalSegment,
    Segment,
    TextSegment,
)

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_LINE_ENDS = re.compile(r"\r\n|[\r\u2028\u2029\x0b\x0c\x85]")


def to_markdown(title: str, events: Iterable[Question | Answer]) -> str:
    """Return a document with the events of one branch, in their order."""
    parts = [f"# {_inline(title)}"]
    for event in events:
        if isinstance(event, Question):
            parts += ["## Question", _quotation("\n\n".join(segment.text for segment in event.segments))]
            if event.attachments is not UNSET:
                parts.append(
                    "\n".join(f"- *Attached: {_inline(one.name)} ({size_text(one.size)})*" for one in event.attachments)
                )
        else:
            parts += _answer(event)
    return "\n\n".join(parts) + "\n"


_MARKS = re.compile(
    r"!?\[(?P<text>[^\]]*)\]\([^)\s]*\)"  # A link.
    r"|(?<!\S)(?:\|?(?::?-{2,}:?\|)+|\||:?-{3,}:?|={3,}|#{1,6}|>)(?!\S)"  # Rows of tables, rules, headings, quotations.
    r"|\*{2,}|~~|`+|\$\$|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)"
)


def without_marks(line: str, query: str = "") -> str:
    """Return a line of a Markdown text as people read it; unchanged if it would not contain the query any more."""
    plain = " ".join(_MARKS.sub(lambda match: match["text"] or "", line).split())
    query = query.casefold()
    return line if query in line.casefold() and query not in plain.casefold() else plain


def _answer(answer: Answer) -> Iterator[str]:
    yield f"## Answer · {_inline(answer.model)}"
    for segment in answer.segments:
        if text := _segment(segment):
            yield text
    if answer.status != "completed":
        message = "" if answer.error is UNSET else f": {answer.error.message}"
        yield f"*{_inline(answer.status.replace('_', ' ') + message)}*"
    if answer.feedback is not UNSET:
        yield f"*Rated {answer.feedback.rating}*"
        if answer.feedback.comment:
            yield _quotation(answer.feedback.comment)


def _segment(segment: Segment) -> str:
    match segment:
        case TextSegment():
            sources = [] if segment.annotations is UNSET else segment.annotations
            links = [f"- {_inline(source.title)}: <{_url(source.url)}>" for source in sources]
            return "\n\n".join(part for part in (_contained(segment.text), "\n".join(dict.fromkeys(links))) if part)
        case ReasoningSegment():
            if not segment.combined_text:
                return "*Reasoned; the text is not shown.*"
            return _folded("Reasoning", _fenced(segment.combined_text))
        case RefusalSegment():
            return _quotation(segment.text)
        case FileSegment():
            return f"*A file ({_inline(segment.media_type)})*"
    blocks = [_fenced(_json(segment.args), "json")]
    if segment.result is not UNSET:
        blocks.append(_fenced(_json(segment.result)))
    if segment.error is not UNSET:
        blocks.append(_fenced(segment.error))
    return _folded(f"Tool: {_inline(segment.name)}", "\n\n".join(blocks))


def _json(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _folded(summary: str, content: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{content}\n\n</details>"


def _fenced(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{_LINE_ENDS.sub(chr(10), text)}\n{fence}"


def _quotation(text: str) -> str:
    return _contained("\n".join(f"> {line}".rstrip() for line in _LINE_ENDS.sub("\n", text).strip("\n").split("\n")))


def _inline(text: str) -> str:
    """Return a text as one line in which nothing is markup."""
    return re.sub(r"([\\`*_\[\]<>#|&])", r"\\\1", " ".join(text.split()))


def _url(url: str) -> str:
    return re.sub(r"[<>\s\\]", lambda match: f"%{ord(match[0]):02X}", url)


# --- text that stays in its part -----------------------------------------------------------------------------------

_TOP_LEVEL = 2
"""The levels of headings that the document has itself."""
_MAX_PASSES = 4
_INLINE = re.compile(
    r"\\."  # An escaped character.
    r"|(?P<ticks>`+)(?:(?P<code>.*?[^`])(?P=ticks)(?!`))?"
    r"|<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*>"  # An address.
    r"|<(?=[A-Za-z/!?])",
    re.DOTALL,
)
_NO_CODE_SPANS = re.compile(r"\]\(|://|www\.|[|$]")
"""What may contain an end of a code span, which then is none: links, cells of tables, formulas."""


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # Only exports need it.

    parser = MarkdownIt("commonmark", {"html": True})
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _contained(text: str) -> str:
    """Return Markdown that looks the same, but cannot change what is around it (CommonMark 0.31).

    Its headings are below those of the document, HTML is text, and no fence is left open. The parser says what is code,
    in which `<` is only a character. A text with which this fails is a code block.
    """
    text = _LINE_ENDS.sub("\n", text).strip("\n")
    for _ in range(_MAX_PASSES):
        tokens, lines = _parser().parse(f"{text}\n"), text.split("\n")
        blocks = [token.map for token in tokens if token.type == "html_block" and token.map]
        if not blocks:
            contained = _rewrite(lines, tokens)
            return contained if _is_contained(contained) else _fenced(text)
        # Without HTML, the lines of its blocks may be others.
        for start, end in blocks:
            lines[start:end] = [_escape_html(line, keep_code_spans=False) for line in lines[start:end]]
        text = "\n".join(lines)
    return _fenced(text)


def _is_contained(text: str) -> bool:
    tokens = _parser().parse(f"{text}\n\n## .\n")
    headings = [one for one in tokens if one.type == "heading_open" and one.level == 0]
    return not any(one.type == "html_block" for one in tokens) and (
        [one.tag for one in headings if int(one.tag[1:]) <= _TOP_LEVEL] == ["h2"]
    )


def _rewrite(lines: Sequence[str], tokens: Sequence[Token]) -> str:
    rewritten = [_escape_html(line, keep_code_spans=False) for line in lines]
    fence, heading = "", None  # The heading of the document's level that begins.
    for token in tokens:
        if token.map is None:
            continue
        start, end = token.map
        if token.type in ("fence", "code_block"):
            rewritten[start:end] = lines[start:end]
            is_last = token.type == "fence" and token.level == 0 and end == len(lines)
            if is_last and (end - start == 1 or not lines[-1].strip().startswith(token.markup)):
                fence = token.markup
        elif token.type == "heading_open":
            heading = token if token.level == 0 else None
        elif token.type == "inline":
            block = "\n".join(lines[start:end])
            keep_code_spans = _NO_CODE_SPANS.search(block) is None
            if heading is not None and heading.map is not None:
                start, end = heading.map
                marks = "#" * min(6, int(heading.tag[1:]) + _TOP_LEVEL)
                words = _escape_html(" ".join(token.content.split()), keep_code_spans=keep_code_spans)
                # An underlined heading has several lines.
                rewritten[start:end] = [f"{marks} {words}", *[""] * (end - start - 1)]
            elif keep_code_spans:
                rewritten[start:end] = _escape_html(block, keep_code_spans=True).split("\n")
            heading = None
    return "\n".join([*rewritten, fence] if fence else rewritten)


def _escape_html(text: str, *, keep_code_spans: bool) -> str:
    """Escape what could begin HTML."""
    if "<" not in text:
        return text

    def escape(match: re.Match[str]) -> str:
        code = match["code"]
        if match[0] == "<":
            return "\\<"
        if code is None or keep_code_spans or "<" not in code:
            return match[0]
        return match["ticks"] + _escape_html(code, keep_code_spans=False) + match["ticks"]

    return _INLINE.sub(escape, text)
