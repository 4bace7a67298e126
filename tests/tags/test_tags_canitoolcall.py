"""An independent oracle: recorded and rendered outputs with the expected reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

import pytest

from pellucid.tags import CLOSE, OPEN, TEXT, THINKING, TOOL, TOOL_ARGS, Harmony, ImplicitStart, Span, Splitter
from pellucid.tags import family as family_of
from tests.cases import Cases
from tests.tags.tag_kit import Options, input_of, text_of

ROOT = files("canitoolcall") / "_data" / "fixtures"


Row = dict[str, Any]


def _rows() -> Iterator[Row]:
    for folder in sorted(ROOT.iterdir(), key=lambda path: path.name):
        if folder.is_dir():
            for file in sorted(folder.iterdir(), key=lambda path: path.name):
                if file.name.endswith(".jsonl"):
                    yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


FAMILY = {
    "deepseek": "think-explicit",
    "gemma4": "gemma4",
    "glm": "think+tool-close",
    "kimi": "think+tool-close",
    "llama": "think",
    "mistral": "mistral",
    "qwen3-hermes": "think",
    "qwen3-xml": "think+tool-close",
}

# Models of a family whose markers are not its usual ones, as an operator would configure them.
MODEL: dict[str, tuple[str, Options]] = {
    "moonshotai/Kimi-K3": ("kimi-k3", {}),
    "moonshotai/Kimi-K2-Instruct-0905": (FAMILY["kimi"], {"implicit_start": "never"}),  # no reasoning
    "mistralai/Magistral-Small-2506": ("think", {}),  # later ones have [THINK]
}

# Intended differences.
REASONING_DEVIATIONS = {
    # A token's name spelled out in reasoning is the same text as the token: only token ids tell them apart.
    "gpt-oss/harmony-marker-in-reasoning": "I must not write ",
}
CONTENT_DEVIATIONS = {
    "gpt-oss/harmony-marker-in-reasoning",  # as above
    "gpt-oss/harmony-marker-in-arguments",  # as above
    # Tool markers stay in the answer: to read them is a tool parser's work.
    "kimi/k2i-vllm-empty-tool-section",
    "mistral/v13think-stop-at-open-marker",
    "qwen3-xml/q38-truncated-at-tool-call-open",
}


class Parsed(NamedTuple):
    """The parsed output of a row."""

    thinking: str
    text: str
    truncated: bool
    spans: list[Span]


def machine(row: Row) -> Splitter | Harmony:
    """Return the parser of a row, as an operator would configure it."""
    if row["family"] == "gpt-oss":
        return Harmony()
    name, options = MODEL.get(row["models"][0], (FAMILY[row["family"]], {}))
    family = family_of(name)
    return Splitter(family, **({"implicit_start": _start_of(row, family.starts)} | options))


def _start_of(row: Row, starts: tuple[str, ...]) -> ImplicitStart | None:
    """Return where generation begins: inside reasoning if the prompt ends with an opening marker, else outside."""
    prompt = (row.get("generation_prompt") or "").rstrip()
    if not prompt:
        return None if row.get("thinking") is not False else "never"
    return "always" if prompt.endswith(starts) else "never"


def _is_truncated(spans: list[Span]) -> bool:
    """Whether the output ends inside reasoning."""
    return any(span.kind == OPEN for span in spans) and [s.kind for s in spans if s.kind in (OPEN, CLOSE)][-1] == OPEN


def parse(row: Row) -> Parsed:
    """Parse the output of a row; one piece, characters and two parts must give equal spans."""
    text = row["raw_output"]
    results: list[Parsed] = []
    for pieces in ([text], text, [text[:20], text[20:]]):
        parser = machine(row)
        spans = [span for piece in pieces for span in parser.feed(piece)] + parser.end()
        assert input_of(spans) == text
        results.append(Parsed(text_of(spans, THINKING), text_of(spans, TEXT), _is_truncated(spans), spans))
    assert results[0][:3] == results[1][:3] == results[2][:3]
    return results[0]


ROWS = list(_rows())
EXPECTED = [row for row in ROWS if "expected" in row]
FAMILIES = sorted({row["family"] for row in EXPECTED})


def of_family(family: str) -> list[Row]:
    """Return the rows of a family that have an expected result."""
    return [row for row in EXPECTED if row["family"] == family]


def test_the_oracle_is_there() -> None:
    assert sum(bool(row["expected"].get("reasoning_content")) for row in EXPECTED) > 150


@pytest.mark.parametrize("family", FAMILIES)
def test_reasoning(family: str) -> None:
    with Cases() as case:
        for row in of_family(family):
            want = row["expected"].get("reasoning_content") or ""
            with case(row["id"]):
                assert parse(row).thinking == REASONING_DEVIATIONS.get(row["id"], want)


def test_answer_without_tool_calls() -> None:
    with Cases() as case:
        for row in EXPECTED:
            if not row["expected"]["tool_calls"] and row["id"] not in CONTENT_DEVIATIONS:
                with case(row["id"]):
                    assert parse(row).text == (row["expected"].get("content") or "")


def test_harmony_tool_calls() -> None:
    with Cases() as case:
        for row in of_family("gpt-oss"):
            if row["id"] in CONTENT_DEVIATIONS:
                continue
            calls = row["expected"]["tool_calls"]
            with case(row["id"]):
                spans = parse(row).spans
                # `python` and `browser` are built-in tools: calls here, reasoning in the oracle.
                names = [span.text for span in spans if span.kind == TOOL and span.text.startswith("functions.")]
                assert [name.removeprefix("functions.") for name in names] == [call["name"] for call in calls]
                if len(calls) == 1:
                    assert json.loads(text_of(spans, TOOL_ARGS)) == calls[0]["arguments"]


def test_truncated_inside_reasoning() -> None:
    with Cases() as case:
        for row in EXPECTED:
            if "truncated" in row["tags"]:
                with case(row["id"]):
                    thinking, text, truncated, spans = parse(row)
                    assert truncated == bool(thinking and not text and spans[-1].kind == THINKING)


def test_malformed_output_loses_nothing() -> None:
    with Cases() as case:
        for row in ROWS:
            if "expected" not in row:
                with case(row["id"]):
                    parse(row)
