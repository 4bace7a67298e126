"""gpt-oss behind a server that passes the harmony format on unchanged: the profile has `tags = "harmony"`."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.parts import BuiltinToolCallPart, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from tests.providers.wire_kit import ROWS, chunk, folded, sse

RAW = (
    "<|channel|>analysis<|message|>The weather is wanted.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>I will look.<|end|>"
    "<|start|>assistant<|channel|>analysis to=python<|message|>1+1<|call|>"
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"city":"SF"}<|call|>'
)
PARTS: list[ModelResponsePart] = [
    ThinkingPart("The weather is wanted."),
    TextPart("I will look."),
    BuiltinToolCallPart("python", "1+1"),
    ToolCallPart("get_weather", '{"city":"SF"}'),
]
ROW = replace(ROWS["vllm"], tags="harmony")


def parts(pieces: list[str]) -> list[ModelResponsePart]:
    response = folded(ROW, sse(*(chunk(content=piece) for piece in pieces), chunk("stop"))).response
    assert response is not None
    return [replace(part, provider_name=None) for part in response.parts]


@given(st.lists(st.integers(0, len(RAW)), max_size=8))
def test_any_split_gives_the_same_parts(places: list[int]) -> None:
    edges = sorted({0, len(RAW), *places})
    assert parts([RAW[a:b] for a, b in pairwise(edges)]) == PARTS


def test_a_preamble_is_a_separate_message() -> None:
    raw = "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>Then.<|return|>"
    assert parts([raw]) == [TextPart("First."), TextPart("Then.")]
