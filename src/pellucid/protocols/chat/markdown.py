"""A chat as a Markdown document, from its canonical events.

Nothing that a person or a model wrote can change the structure of the document: a question is a quotation, reasoning,
arguments and results are fenced with a fence that their text does not contain, and a text that leaves a fence or an
HTML block open ends with itself (CommonMark 0.31, 4.5 and 4.6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET

from .types import (
    Answer,
    FileSegment,
    Question,
    ReasoningSegment,
    RefusalSegment,
    Segment,
    TextSegment,
)

_FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_HTML_BLOCK = re.compile(r"^( {0,3})<(?=[A-Za-z/!?])")
_LINE_ENDS = re.compile(r"\r\n|[\r\u2028\u2029\x0b\x0c\x85]")


def to_markdown(title: str, events: Iterable[Question | Answer]) -> str:
    """Return a document with the events of one branch, in their order."""
    parts = [f"# {_inline(title)}"]
    for event in events:
        if isinstance(event, Question):
            parts += ["## Question", _quotation("\n\n".join(segment.text for segment in event.segments))]
        else:
            parts += _answer(event)
    return "\n\n".join(parts) + "\n"


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
            return "\n\n".join(part for part in (_closed(segment.text), "\n".join(dict.fromkeys(links))) if part)
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
    return "\n".join(f"> {line}".rstrip() for line in _LINE_ENDS.sub("\n", _closed(text)).split("\n"))


def _closed(text: str) -> str:
    """Return Markdown that leaves no fence and no HTML block open at its end."""
    lines, fence = list[str](), ""
    for line in _LINE_ENDS.sub("\n", text).strip("\n").split("\n"):
        match = _FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
        elif match:
            fence = match[1]
        else:
            line = _HTML_BLOCK.sub(r"\1\\<", line)
        lines.append(line)
    return "\n".join([*lines, fence] if fence else lines)


def _inline(text: str) -> str:
    """Return a text as one line in which nothing is markup."""
    return re.sub(r"([\\`*_\[\]<>#|&])", r"\\\1", " ".join(text.split()))


def _url(url: str) -> str:
    return re.sub(r"[<>\s\\]", lambda match: f"%{ord(match[0]):02X}", url)
