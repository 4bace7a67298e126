"""Every dialect of Chat Completions: a small response of its server, as a stream and as a body, and its parts.

The chunks are written for these tests, in the shapes that the servers use.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import PartDeltaEvent
from pellucid.parts import ThinkingPart, ThinkingPartDelta, Usage
from tests.cases import Cases
from tests.cutting import cut, merged
from tests.examples import by_circle
from tests.providers.wire_kit import (
    ROWS,
    body,
    call,
    chunk,
    events_of,
    folded,
    kinds_and_texts,
    response_of,
    sse,
    thoughts,
)

THOUGHT, ANSWER = "Two and one.", "Three."
PLAIN = [("thinking", THOUGHT), ("text", ANSWER)]


class Dialect(NamedTuple):
    row: str
    stream: bytes
    whole: bytes
    expected: list[tuple[str, Any]] = PLAIN
    usage: Usage | None = None
    finish: str = "stop"


def usage(**fields: Any) -> dict[str, Any]:
    return {"prompt_tokens": 7, "completion_tokens": 20, "total_tokens": 27, **fields}


WIRE_USAGE = usage(completion_tokens_details={"reasoning_tokens": 12})
USAGE = Usage(7, 20, 12, details={"reasoning_tokens": 12})
USAGE_CHUNK = {"choices": [], "usage": WIRE_USAGE}


def field(name: str, *, toggled: bool = False) -> bytes:
    """Return a stream with reasoning in its own field, then text; if `toggled`, the unused field is null."""
    none: dict[str, Any] = {"content": None} if toggled else {}
    quiet: dict[str, Any] = {name: None} if toggled else {}
    empty: dict[str, Any] = {name: ""} if toggled else {}
    first: dict[str, Any] = {name: "Two "}
    second: dict[str, Any] = {name: "and one."}
    return sse(
        chunk(role="assistant", content="" if not toggled else None, **empty),
        chunk(**first, **none),
        chunk(**second, **none),
        chunk(content="Thr", **quiet),
        chunk(content="ee.", **quiet),
        chunk("stop", content="", **quiet),
        USAGE_CHUNK,
    )


def tagged_stream(open_: str = "<think>\n", close: str = "\n</think>\n\n") -> bytes:
    """Return a stream with reasoning between tags that are split across chunks."""
    text = f"{open_}{THOUGHT}{close}{ANSWER}"
    return sse(chunk(role="assistant"), *(chunk(content=text[at : at + 3]) for at in range(0, len(text), 3)),
               chunk("stop"), USAGE_CHUNK)  # fmt: skip


def field_body(name: str) -> bytes:
    return body(usage=WIRE_USAGE, content=ANSWER, **{name: THOUGHT})


TAGGED_BODY = body(usage=WIRE_USAGE, content=f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}")


def detail(kind: str = "text", **fields: Any) -> dict[str, Any]:
    return {"type": f"reasoning.{kind}", **fields}


OPENROUTER = sse(
    ": OPENROUTER PROCESSING",
    chunk(role="assistant", content="", reasoning="Two ", reasoning_details=[
        detail(text="Two ", format="anthropic-claude-v1", index=0)]),
    ": OPENROUTER PROCESSING",
    chunk(content="", reasoning="and one.", reasoning_details=[
        detail(text="and one.", format="anthropic-claude-v1", index=0)]),
    chunk(content="", reasoning=None, reasoning_details=[
        detail(signature="Et8B/+=", format="anthropic-claude-v1", index=0)]),
    chunk(content=ANSWER),
    chunk("stop", content="", choice={"native_finish_reason": "end_turn"}),
    USAGE_CHUNK,
)  # fmt: skip
OPENROUTER_BODY = body(usage=WIRE_USAGE, content=ANSWER, reasoning=THOUGHT, reasoning_details=[
    detail(text=THOUGHT, signature="Et8B/+=", format="anthropic-claude-v1", index=0)])  # fmt: skip

MINIMAX: dict[str, Any] = {"id": "reasoning-text-1", "format": "MiniMax-response-v1", "index": 0}

DIALECTS: dict[str, Dialect] = {
    "openai": Dialect(
        "openai",
        sse(chunk(role="assistant", content="", refusal=None), chunk(content=ANSWER), chunk("stop"), USAGE_CHUNK),
        body(usage=WIRE_USAGE, content=ANSWER, refusal=None, annotations=[]),
        [("text", ANSWER)],
    ),
    "azure": Dialect(
        "azure",
        sse(
            {"choices": [], "id": "", "model": "", "object": "", "prompt_filter_results": [{"prompt_index": 0}]},
            chunk(role="assistant", content="", choice={"content_filter_results": {}}),
            chunk(content=ANSWER, choice={"content_filter_results": {"hate": {"filtered": False}}}),
            chunk("stop"),
            USAGE_CHUNK,
        ),
        body(usage=WIRE_USAGE, content=ANSWER),
        [("text", ANSWER)],
    ),
    "azure, DeepSeek": Dialect("azure", field("reasoning_content", toggled=True), field_body("reasoning_content")),
    "azure, older DeepSeek": Dialect("azure", tagged_stream(), TAGGED_BODY),
    "deepseek": Dialect("deepseek", field("reasoning_content", toggled=True), field_body("reasoning_content")),
    "vllm before 0.16": Dialect("vllm", field("reasoning_content"), field_body("reasoning_content")),
    "vllm": Dialect("vllm", field("reasoning"), field_body("reasoning")),
    "vllm without a reasoning parser": Dialect("vllm", tagged_stream(), TAGGED_BODY),
    "sglang": Dialect("sglang", field("reasoning_content", toggled=True), field_body("reasoning_content")),
    "llama.cpp": Dialect("llama.cpp", field("reasoning_content"), field_body("reasoning_content")),
    "llama.cpp, deepseek-legacy: sent twice": Dialect(
        "llama.cpp",
        sse(
            chunk(role="assistant", content=None),
            chunk(content="<think>"),
            chunk(content="Two ", reasoning_content="Two "),
            chunk(content="and one.", reasoning_content="and one."),
            chunk(content="</think>\n"),
            chunk(content=ANSWER),
            chunk("stop"),
            USAGE_CHUNK,
        ),
        body(usage=WIRE_USAGE, content=f"<think>{THOUGHT}</think>\n{ANSWER}", reasoning_content=THOUGHT),
    ),
    "llama.cpp, format none": Dialect("llama.cpp", tagged_stream(), TAGGED_BODY),
    "ollama": Dialect("ollama", field("reasoning"), field_body("reasoning")),
    "groq, parsed": Dialect(
        "groq",
        sse(
            chunk(role="assistant", content="", channel="analysis") | {"x_groq": {"id": "req_1"}},
            chunk(reasoning=THOUGHT, channel="analysis"),
            chunk(content=ANSWER, channel="final"),
            chunk("stop") | {"x_groq": {"id": "req_1", "usage": WIRE_USAGE}, "usage": WIRE_USAGE},
        ),
        field_body("reasoning"),
    ),
    "groq, raw": Dialect("groq", tagged_stream(), TAGGED_BODY),
    "groq, hidden": Dialect(
        "groq",
        sse(chunk(role="assistant", content=""), chunk(content=ANSWER),
            chunk("stop") | {"x_groq": {"usage": WIRE_USAGE}}),
        body(usage=WIRE_USAGE, content=ANSWER),
        [("text", ANSWER)],
    ),
    "huggingface, a partner's field": Dialect("huggingface", field("reasoning"), field_body("reasoning")),
    "huggingface, a partner's tags": Dialect("huggingface", tagged_stream(), TAGGED_BODY),
    "openrouter": Dialect("openrouter", OPENROUTER, OPENROUTER_BODY),
    "openrouter, nothing structured": Dialect("openrouter", field("reasoning"), field_body("reasoning")),
    "together": Dialect("together", field("reasoning"), field_body("reasoning")),
    "together, GLM": Dialect("together", field("reasoning_content"), field_body("reasoning_content")),
    "together, older R1": Dialect("together", tagged_stream(), TAGGED_BODY),
    "fireworks": Dialect("fireworks", field("reasoning_content"), field_body("reasoning_content")),
    "fireworks, tags": Dialect("fireworks", tagged_stream(), TAGGED_BODY),
    "cerebras": Dialect("cerebras", field("reasoning"), field_body("reasoning")),
    "cerebras, raw": Dialect("cerebras", tagged_stream(), TAGGED_BODY),
    "qwen": Dialect("qwen", field("reasoning_content", toggled=True), field_body("reasoning_content")),
    "kimi": Dialect(
        "kimi",
        field("reasoning_content").replace(b'"prompt_tokens": 7', b'"cached_tokens": 3, "prompt_tokens": 7'),
        body(usage=WIRE_USAGE | {"cached_tokens": 3}, content=ANSWER, reasoning_content=THOUGHT),
        usage=Usage(7, 20, 12, 3, details={"reasoning_tokens": 12}),
    ),
    "zai": Dialect("zai", field("reasoning_content"), field_body("reasoning_content")),
    "minimax, tags": Dialect("minimax", tagged_stream(), TAGGED_BODY),
    "minimax, incremental details": Dialect(
        "minimax",
        sse(
            chunk(role="assistant", content="", reasoning_content="Two ",
                  reasoning_details=[detail(text="Two ", **MINIMAX)]),
            chunk(reasoning_content="and ", reasoning_details=[detail(text="and ", **MINIMAX)]),
            chunk(reasoning_content="one.", reasoning_details=[detail(text="one.", **MINIMAX)]),
            chunk(content=ANSWER),
            chunk("stop"),
            USAGE_CHUNK | {"base_resp": {"status_code": 0, "status_msg": ""}},
        ),
        body(usage=WIRE_USAGE, content=ANSWER, reasoning_content=THOUGHT,
             reasoning_details=[detail(text=THOUGHT, **MINIMAX)]),
    ),
    "minimax, cumulative details": Dialect(
        "minimax",
        sse(
            *(chunk(content="", reasoning_details=[detail(text=text, **MINIMAX)])
              for text in ("Two ", "Two and ", "Two and one.", "Two and one.")),
            chunk(content=ANSWER),
            chunk("stop"),
            USAGE_CHUNK,
        ),
        body(usage=WIRE_USAGE, content=ANSWER, reasoning_details=[detail(text=THOUGHT, **MINIMAX)]),
    ),
    "minimax, the whole message again at the end": Dialect(
        "minimax",
        sse(
            chunk(reasoning_content=THOUGHT),
            chunk(content=ANSWER),
            {"choices": [{"index": 0, "finish_reason": "stop",
                          "message": {"content": ANSWER, "reasoning_content": THOUGHT}}], "usage": WIRE_USAGE},
        ),
        field_body("reasoning_content"),
    ),
    "xai, deltas sent twice, reasoning in addition to the completion": Dialect(
        "xai",
        sse(
            chunk(role="assistant", reasoning_content="Two "),
            chunk(reasoning_content="Two "),
            chunk(reasoning_content="and one."),
            chunk(reasoning_content="and one."),
            chunk(content="Three"),
            chunk(content="."),
            chunk("stop"),
            USAGE_CHUNK | {"usage": WIRE_USAGE | {"completion_tokens": 8}},
        ),
        body(usage=WIRE_USAGE | {"completion_tokens": 8}, content=ANSWER, reasoning_content=THOUGHT),
    ),
    "perplexity": Dialect(
        "perplexity",
        tagged_stream().replace(b'"completion_tokens_details": {"reasoning_tokens": 12}', b'"reasoning_tokens": 12'),
        body(usage=usage(reasoning_tokens=12), content=f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"),
    ),
    "perplexity, full mode: the message so far next to the delta": Dialect(
        "perplexity",
        sse(
            *({"choices": [{"index": 0, "delta": {"content": new}, "message": {"content": so_far}}]}
              for new, so_far in (("<think>\n" + THOUGHT, "<think>\n" + THOUGHT),
                                  ("\n</think>\n\n" + ANSWER, f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"))),
            chunk("stop"),
            USAGE_CHUNK,
        ),
        TAGGED_BODY,
    ),
    "lmstudio": Dialect("lmstudio", field("reasoning"), field_body("reasoning_content")),
    "snowflake: no finish reason, empty strings for nothing": Dialect(
        "snowflake",
        sse(
            chunk("", reasoning_details=[detail(text="Two ", index=0, id="", signature="")]),
            chunk("", reasoning_details=[detail(text="and one.", index=0, id="", signature="")]),
            chunk("", content=ANSWER, function_call={"name": "", "arguments": ""}, refusal=""),
            USAGE_CHUNK,
        ),
        body("", usage=WIRE_USAGE, content=ANSWER, function_call={"name": "", "arguments": ""}, refusal="",
             reasoning_details=[detail(text=THOUGHT, index=0, id="r1", signature="Et8B")]),
    ),
    "crusoe": Dialect("crusoe", field("reasoning"), field_body("reasoning")),
    "bedrock-mantle-chat": Dialect("bedrock-mantle-chat", field("reasoning"), field_body("reasoning")),
    "copilot": Dialect(
        "copilot",
        sse(
            chunk(role="assistant", reasoning_text="Two "),
            chunk(reasoning_text="and one."),
            chunk(reasoning_opaque="c2lnbmF0dXJl=="),
            chunk(content=ANSWER),
            chunk("stop"),
            USAGE_CHUNK,
        ),
        body(usage=WIRE_USAGE, content=ANSWER, reasoning_text=THOUGHT, reasoning_opaque="c2lnbmF0dXJl=="),
    ),
    "openai-compat": Dialect("openai-compat", field("reasoning_text"), field_body("reasoning")),
    "openai-compat, content as a list of parts": Dialect(
        "openai-compat",
        sse(
            chunk(role="assistant", content=""),
            chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Two "}]}]),
            chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "and one."}]}]),
            chunk(content=[{"type": "text", "text": "Three"}]),
            chunk("stop", content="."),
            USAGE_CHUNK,
        ),
        body(usage=WIRE_USAGE, content=[
            {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}], "signature": None},
            {"type": "text", "text": ANSWER}]),
    ),
}  # fmt: skip

each = pytest.mark.parametrize("name", DIALECTS)


def test_every_profile_has_a_dialect_here() -> None:
    assert {dialect.row for dialect in DIALECTS.values()} == set(ROWS)


@pytest.mark.parametrize("form", ["stream", "whole"])
def test_each_dialect_is_decoded(form: str) -> None:
    with Cases() as case:
        for name, dialect in DIALECTS.items():
            with case(name):
                response = response_of(dialect.row, dialect.stream if form == "stream" else dialect.whole)
                assert kinds_and_texts(response) == dialect.expected
                assert response.finish_reason == dialect.finish
                assert response.usage == (dialect.usage or USAGE)
                assert all(part.complete for part in thoughts(response))


@each
def test_a_stream_split_anywhere_gives_the_same_events(name: str) -> None:
    """Every third position with the profile `long`, every eleventh otherwise."""
    stride = by_circle(11, 3)
    dialect = DIALECTS[name]
    for data in (dialect.stream, dialect.whole):
        whole = merged(events_of(dialect.row, data))
        for place in range(len(name) % stride, len(data), stride):
            assert merged(events_of(dialect.row, cut(data, [place]))) == whole
        assert merged(events_of(dialect.row, [data[at : at + 1] for at in range(len(data))])) == whole


@given(st.sampled_from(sorted(DIALECTS)), st.lists(st.integers(0, 2_000), max_size=12))
def test_a_stream_split_at_many_places_gives_the_same_events(name: str, places: list[int]) -> None:
    dialect = DIALECTS[name]
    assert merged(events_of(dialect.row, cut(dialect.stream, places))) == merged(events_of(dialect.row, dialect.stream))


@each
def test_a_truncated_stream_keeps_the_content_received(name: str) -> None:
    """Truncated at any position, the turn is valid and closed, and its text is a prefix of the complete text."""
    dialect = DIALECTS[name]
    everything = "".join(text for _, text in dialect.expected)
    for place in range(0, len(dialect.stream), 7):
        response = folded(dialect.row, dialect.stream[:place]).response
        assert response is not None
        came = "".join(text for _, text in kinds_and_texts(response))
        # A truncated tag is text.
        assert everything.startswith(re.sub(r"\s*(<[/think]*)?$", "", came))


# --- details: structured reasoning -------------------------------------------------------------------------------


def single_thought(row: str, *deltas: dict[str, Any]) -> list[ThinkingPart]:
    return thoughts(response_of(row, sse(*(chunk(**delta) for delta in deltas), chunk(content="A"), chunk("stop"))))


def test_the_signature_may_be_a_last_fragment_without_text() -> None:
    (part,) = thoughts(response_of("openrouter", OPENROUTER))
    assert part.signature == "Et8B/+="
    assert part.provider_details == {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}


def test_fragments_of_a_block_are_joined() -> None:
    assert thoughts(response_of("openrouter", OPENROUTER)) == thoughts(response_of("openrouter", OPENROUTER_BODY))


def test_encrypted_reasoning_without_text_is_a_part() -> None:
    (part,) = single_thought(
        "openrouter", {"reasoning_details": [detail("encrypted", data="gAAA", id="rs_1", format="x", index=0)]}
    )
    assert (part.content, part.signature, part.form, part.id) == ("", "gAAA", "redacted", "rs_1")


@pytest.mark.parametrize("ending", ["text", "call", "entry", "cut"])
def test_encrypted_fragments_are_joined_once(ending: str) -> None:
    """However many there are, the joined data is written once, before whatever ends the block."""
    count = 500
    frames = [
        chunk(content="", reasoning=None, reasoning_details=[detail("encrypted", data=f"{number:03}", index=0)])
        for number in range(count)
    ]
    after = {
        "text": [chunk("stop", content="So.")],
        "call": [chunk("tool_calls", tool_calls=[call("{}", name="f", id="c1", index=0)])],
        "entry": [chunk("stop", reasoning_details=[detail("text", text="Why.", index=1)])],
        "cut": [],
    }[ending]
    data = "".join(f"{number:03}" for number in range(count))
    result = folded("openrouter", sse(*frames, *after, done=ending != "cut"))
    assert result.response is not None
    first = result.response.parts[0]
    assert isinstance(first, ThinkingPart)
    assert (first.signature, first.form, first.complete) == (data, "redacted", ending != "cut")
    written = [
        event.delta.signature_delta or ""
        for event in events_of("openrouter", sse(*frames, *after))
        if isinstance(event, PartDeltaEvent) and isinstance(event.delta, ThinkingPartDelta)
    ]
    assert sum(map(len, written)) == len(data) + 3, "the first fragment opens the part, and all are joined once"


def test_encrypted_fragments_are_joined_when_the_response_fails() -> None:
    frames = [chunk(reasoning_details=[detail("encrypted", data=piece, index=0)]) for piece in ("gA", "AA")]
    result = folded("openrouter", sse(*frames, {"error": {"code": 502, "message": "lost"}}))
    assert result.error is not None
    assert result.response is not None
    (part,) = thoughts(result.response)
    assert (part.signature, part.complete) == ("gAAA", False)


def test_a_summary_and_its_encrypted_original_share_an_item() -> None:
    response = response_of(
        "openrouter",
        sse(
            chunk(reasoning="**Plan**", reasoning_details=[detail("summary", summary="**Plan**", index=0)]),
            chunk(reasoning_details=[detail("encrypted", data="gAAA", id="rs_1", index=0)]),
            chunk(content="A"),
            chunk("stop"),
        ),
    )
    summary, encrypted = thoughts(response)
    assert (summary.content, summary.form, summary.signature) == ("**Plan**", "summary", None)
    assert (encrypted.content, encrypted.form, encrypted.signature) == ("", "redacted", "gAAA")
    items = [e for e in events_of("openrouter", sse(
        chunk(reasoning_details=[detail("summary", summary="P", index=0), detail("encrypted", data="g", index=0)]),
        chunk("stop"))) if e.event_kind == "item_start"]  # fmt: skip
    assert len(items) == 1


def test_encrypted_details_do_not_suppress_the_reasoning_field() -> None:
    """The field repeats the text of the details; details without text repeat nothing."""
    delta = {"reasoning": "Hm.", "reasoning_details": [detail("encrypted", data="gAAA", index=0)]}
    assert sorted(part.content for part in single_thought("openrouter", delta)) == ["", "Hm."]


def test_fragments_without_index_continue_the_open_block() -> None:
    parts = single_thought("openrouter", *({"reasoning_details": [detail(text=text)]} for text in ("a", "b", "c")))
    assert [part.content for part in parts] == ["abc"]


def test_a_fragment_without_index_after_a_signature_is_a_new_block() -> None:
    parts = single_thought(
        "openrouter",
        {"reasoning_details": [detail(text="a")]},
        {"reasoning_details": [detail(signature="S1")]},
        {"reasoning_details": [detail(text="b", signature="S2")]},
    )
    assert [(part.content, part.signature) for part in parts] == [("a", "S1"), ("b", "S2")]


def test_blocks_of_a_whole_body_are_never_merged() -> None:
    """In a body, each entry is complete and has its own signature, whether all have one index or none."""
    indexes: list[dict[str, Any]] = [{}, {"index": 0}]
    for index in indexes:
        entries = [detail(text=text, signature=f"S{text}", **index) for text in "ab"]
        parts = thoughts(response_of("openrouter", body(content="A", reasoning_details=entries)))
        assert [(part.content, part.signature) for part in parts] == [("a", "Sa"), ("b", "Sb")]


def test_empty_details_are_ignored() -> None:
    assert single_thought("openrouter", {"reasoning_details": [detail(text="", index=0)]}) == []


def test_an_id_before_the_text_belongs_to_the_part() -> None:
    (part,) = single_thought(
        "openrouter",
        {"reasoning_details": [detail(text="", id="r1", format="f", index=0)]},
        {"reasoning_details": [detail(text="a", index=0)]},
    )
    assert (part.id, part.provider_details) == ("r1", {"type": "reasoning.text", "format": "f", "index": 0})


def test_details_that_repeat_the_reasoning_field_are_not_repeated() -> None:
    parts = single_thought(
        "openrouter",
        {"reasoning": "Two "},
        {"reasoning": "and one."},
        {"reasoning_details": [detail(text=THOUGHT, signature="S", index=0)]},
    )
    assert "".join(part.content for part in parts) == THOUGHT
    assert parts[-1].signature == "S"


def test_details_of_an_unknown_type_are_preserved() -> None:
    entry = detail("server_tool_call", tool_name="search", arguments="{}", index=2)
    response = response_of("openrouter", sse(chunk(reasoning_details=[entry]), chunk("stop", content="A")))
    assert response.parts[0].part_kind == "opaque"
    assert response.parts[0].native == entry


# --- tags --------------------------------------------------------------------------------------------------------


def test_a_closing_tag_alone_ends_an_implicit_start() -> None:
    """If the profile says that responses may begin within reasoning."""
    row = msgspec.structs.replace(ROWS["llama.cpp"], implicit_start="auto")
    data = sse(chunk(content="Two and one.\n"), chunk(content="</think>\n\nThree."), chunk("stop"))
    assert kinds_and_texts(response_of(row, data)) == PLAIN


def test_a_closing_tag_alone_is_not_shown() -> None:
    data = sse(chunk(content="\n</think>\n\n"), chunk(content=ANSWER), chunk("stop"))
    assert kinds_and_texts(response_of("llama.cpp", data)) == [("text", ANSWER)]


def test_the_reasoning_field_and_tagged_text_are_both_reasoning() -> None:
    data = body(content="<think>Second.</think>A", reasoning_content="First.")
    assert "".join(part.content for part in thoughts(response_of("llama.cpp", data))) == "First.Second."


def test_text_withheld_as_a_possible_tag_precedes_later_reasoning() -> None:
    data = sse(chunk(content="a "), chunk(content="<thi"), chunk(reasoning="hm"), chunk("stop"))
    assert kinds_and_texts(response_of("vllm", data)) == [("text", "a <thi"), ("thinking", "hm")]


def test_tags_within_the_answer_are_text() -> None:
    text = "Write `<think>` before it, or <think> so."
    assert kinds_and_texts(response_of("groq", body(content=text))) == [("text", text)]


def test_json_output_after_tags_is_exact() -> None:
    text = ' \n{"a": " <think> "}\n'
    response = response_of("perplexity", body(content=f"<think>x</think>{text}"))
    assert response.text is not None
    assert response.text.strip() == text.strip()


def test_openai_text_is_not_searched_for_tags() -> None:
    assert kinds_and_texts(response_of("openai", TAGGED_BODY)) == [
        ("text", f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}")
    ]


# --- reasoning that is only counted ------------------------------------------------------------------------------


def test_reasoning_tokens_within_completion_tokens_are_not_added() -> None:
    inside = usage(completion_tokens_details={"reasoning_tokens": 12})
    assert response_of("xai", body(usage=inside, content="A")).usage.output_tokens == 20


def test_copilot_sends_the_signature_in_a_field_of_its_own() -> None:
    for data in (DIALECTS["copilot"].stream, DIALECTS["copilot"].whole):
        (part,) = thoughts(response_of("copilot", data))
        assert part.signature == "c2lnbmF0dXJl=="


def test_a_tool_call_of_gemini_carries_its_signature() -> None:
    signed = call("{}", name="f", index=0, id="c1", extra_content={"google": {"thought_signature": "CiQB"}})
    for data in (sse(chunk(tool_calls=[signed]), chunk("tool_calls")), body("tool_calls", tool_calls=[signed])):
        (part,) = response_of("openai-compat", data).tool_calls
        assert part.signature == "CiQB"
