"""An independent oracle: recorded and rendered outputs with the reasoning that they should give."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from pellucid.tags import TEXT, THINKING, TOOL, TOOL_ARGS, Harmony, Splitter

ROOT = files("canitoolcall") / "_data" / "fixtures"


def _rows():
    for folder in sorted(ROOT.iterdir(), key=lambda p: p.name):
        if folder.is_dir():
            for file in sorted(folder.iterdir(), key=lambda p: p.name):
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
MODEL = {
    "moonshotai/Kimi-K3": {"family": "kimi-k3"},
    "moonshotai/Kimi-K2-Instruct-0905": {"implicit_start": "never"},  # does not think
    "mistralai/Magistral-Small-2506": {"family": "think"},  # later ones have [THINK]
}

# Where the splitter means to differ.
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


def machine(row):
    if row["family"] == "gpt-oss":
        return Harmony()
    options = {
        "family": FAMILY[row["family"]],
        "thinking": row.get("thinking") is not False,
        "prefill": row.get("generation_prompt") or "",
    }
    return Splitter(**(options | MODEL.get(row["models"][0], {})))


def parse(row):
    """The spans of a row's output, the same in one piece, in characters and in two parts."""
    text = row["raw_output"]
    results = []
    for pieces in ([text], text, [text[:20], text[20:]]):
        parser = machine(row)
        spans = [span for piece in pieces for span in parser.feed(piece)] + parser.end()
        assert "".join(span.text for span in spans if span.kind != "tool") == text
        results.append((said(spans, THINKING), said(spans, TEXT), parser.truncated, spans))
    assert results[0][:3] == results[1][:3] == results[2][:3]
    return results[0]


def said(spans, kind):
    return "".join(span.text for span in spans if span.kind == kind)


ROWS = [pytest.param(row, id=row["id"]) for row in _rows()]
EXPECTED = [param for param in ROWS if "expected" in param.values[0]]


def test_the_oracle_is_there():
    assert sum(bool(p.values[0]["expected"].get("reasoning_content")) for p in EXPECTED) > 150


@pytest.mark.parametrize("row", EXPECTED)
def test_reasoning(row):
    thinking = parse(row)[0]
    want = row["expected"].get("reasoning_content") or ""
    assert thinking == REASONING_DEVIATIONS.get(row["id"], want)


@pytest.mark.parametrize(
    "row",
    [p for p in EXPECTED if not p.values[0]["expected"]["tool_calls"] and p.id not in CONTENT_DEVIATIONS],
)
def test_answer_without_tool_calls(row):
    assert parse(row)[1] == (row["expected"].get("content") or "")


@pytest.mark.parametrize("row", [p for p in EXPECTED if p.values[0]["family"] == "gpt-oss"])
def test_harmony_tool_calls(row):
    if row["id"] in CONTENT_DEVIATIONS:
        pytest.skip("spelled-out tokens")
    calls = row["expected"]["tool_calls"]
    spans = parse(row)[3]
    # `python` and `browser` are built-in tools: calls here, reasoning's business in the oracle.
    names = [span.text for span in spans if span.kind == TOOL and span.text.startswith("functions.")]
    assert [name.removeprefix("functions.") for name in names] == [call["name"] for call in calls]
    if len(calls) == 1:
        assert json.loads(said(spans, TOOL_ARGS)) == calls[0]["arguments"]


@pytest.mark.parametrize("row", [p for p in EXPECTED if "truncated" in p.values[0]["tags"]])
def test_truncated_inside_reasoning(row):
    thinking, text, truncated, spans = parse(row)
    assert truncated == bool(thinking and not text and spans[-1].kind == THINKING)


@pytest.mark.parametrize("row", [p for p in ROWS if "expected" not in p.values[0]])
def test_malformed_output_loses_nothing(row):
    parse(row)
