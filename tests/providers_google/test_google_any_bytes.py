"""Any bytes, cut anywhere, give one legal and closed turn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import FrameTooLarge
from pellucid.framing.json_array import JSONArrayDecoder
from tests.examples import many
from tests.providers_google.google_kit import answer, array, call, cut, events_of, folded, merged, sse, text, thought

names = st.sampled_from(["text", "thought", "thoughtSignature", "functionCall", "inlineData", "parts", "content"])
words = st.text(alphabet='ab "\\{}[],:\n🏔é_', max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | words, inner, max_size=3),
    max_leaves=8,
)
signatures = st.none() | st.sampled_from(["S", "T"])
partial = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("f"),
        "willContinue": st.booleans(),
        "partialArgs": st.lists(
            st.fixed_dictionaries(
                {"jsonPath": st.sampled_from(["$.a", "$.a[0]", "$.a[0].b", "$", "$.b['c']"]), "stringValue": words},
                optional={"willContinue": st.booleans()},
            ),
            max_size=2,
        ),
    },
).map(lambda fragment: {"functionCall": fragment})
parts = st.one_of(
    st.builds(text, words, signatures),
    st.builds(thought, words, signatures),
    st.builds(lambda args, signature: call("f", signature, a=args), words, signatures),
    partial,
    st.just({"executableCode": {"code": "1"}}),
    st.just({"codeExecutionResult": {"output": "1"}}),
    st.just({"toolCall": {"toolType": "URL_CONTEXT", "id": "i"}}),
    st.just({"inlineData": {"mimeType": "image/png", "data": "AA=="}}),
    st.just({"hologram": 1}),
    st.dictionaries(names | words, json_values, max_size=3),
)
grounded = st.builds(
    lambda text, at: {
        "webSearchQueries": ["q"],
        "groundingChunks": [{"web": {"uri": "u"}}],
        "groundingSupports": [{"segment": {"startIndex": at, "text": text}, "groundingChunkIndices": [0]}],
    },
    words,
    st.integers(-1, 9),
)
chunks = st.builds(
    lambda some, finish, more: answer(*some, finish=finish, **more),
    st.lists(parts, max_size=3),
    st.none() | st.sampled_from(["STOP", "MAX_TOKENS", "OTHER", "SAFETY", "MALFORMED_FUNCTION_CALL"]),
    st.fixed_dictionaries(
        {}, optional={"groundingMetadata": grounded | json_values, "urlContextMetadata": json_values}
    ),
)
asides = st.one_of(
    st.fixed_dictionaries({"usageMetadata": st.dictionaries(words | st.just("promptTokenCount"), json_values)}),
    st.fixed_dictionaries({"promptFeedback": json_values}),
    st.fixed_dictionaries({"error": json_values}),
    st.fixed_dictionaries({"candidates": json_values}),
    st.fixed_dictionaries({"candidates": st.lists(st.fixed_dictionaries({"content": json_values}), max_size=2)}),
    json_values,
)  # fmt: skip
streams = st.lists(st.one_of(chunks, chunks, asides), max_size=6)
written = st.builds(
    lambda some, how: how(some),
    streams,
    st.sampled_from([lambda s: sse(*s), lambda s: array(*s), lambda s: sse(*s, end="\n"), lambda s: body_of(s)]),
)


def body_of(some: list[Any]) -> bytes:
    return json.dumps(some[0] if some else {}).encode()


@given(written, st.lists(st.integers(0, 3000), max_size=6))
def test_any_stream_cut_anywhere_gives_the_same_legal_turn(data: bytes, places: list[int]) -> None:
    whole = events_of(data)
    folded(data)
    assert merged(events_of(cut(data, places))) == merged(whole)


@given(written, st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=3)), min_size=1, max_size=4))
@many
def test_garbled_bytes_give_a_legal_turn(data: bytes, spots: list[tuple[int, bytes]]) -> None:
    for place, junk in spots:
        data = data[:place] + junk + data[place + len(junk) :]
    folded(data)
    folded(data[: spots[0][0]])
    folded(data[: spots[0][0]], cause="cancelled")


@given(
    st.binary(max_size=200) | st.text(alphabet='[]{}",:\\ data:\n', max_size=60).map(str.encode), st.integers(0, 200)
)
def test_any_bytes_give_a_legal_turn(data: bytes, place: int) -> None:
    folded(data)
    assert merged(events_of(cut(data, [place]))) == merged(events_of(data))


def test_json_nested_too_deeply_is_an_error_and_not_a_crash() -> None:
    for depth in (200, 700, 2_000, 100_000):
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        for data in (
            b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":%b}}]}}]}\n\n' % deep,
            b'data: {"candidates":[{"content":{"parts":[{"function_call":{"name":"f","x":%b}}]}}]}\n\n' % deep,
            b'[{"candidates":[{"content":{"parts":[{"new":%b}]}}]}]' % deep,
        ):
            folded(data)


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    result = folded(b'data: {"candidates":[{"content":{"parts":[{"text":"a\\ud83d"}]},"finishReason":"STOP"}]}\r\n\r\n')
    assert result.response is not None
    assert result.response.text == "a\ufffd"


# --- the framing -------------------------------------------------------------------------------------------------


@given(st.lists(st.dictionaries(words, json_values, max_size=3), max_size=4), st.lists(st.integers(0, 400), max_size=8))
def test_the_elements_of_an_array(values: list[Any], places: list[int]) -> None:
    data = json.dumps(values, indent=1).encode()
    reader = JSONArrayDecoder()
    elements = [element for piece in cut(data, places) for element in reader.feed(piece)]
    assert [json.loads(element) for element in elements] == json.loads(data)
    assert reader.closed
    assert reader.end() == []


@many
@given(st.text(alphabet='[]{}",\\ a\n1', max_size=40), st.integers(1, 40))
def test_an_element_in_one_piece_and_byte_by_byte_is_the_same(text: str, place: int) -> None:
    data, reader, slow = b"[" + text.encode(), JSONArrayDecoder(), JSONArrayDecoder()
    elements = reader.feed(data[:place]) + reader.feed(data[place:]) + reader.end()
    assert elements == [element for byte in data for element in slow.feed(bytes((byte,)))] + slow.end()


def test_an_element_that_is_too_large() -> None:
    for pieces in ([b'[{"a": "' + b"x" * 50], [b'[{"a": "', b"x" * 25, b"x" * 25], [b"[" + b"1" * 50]):
        reader = JSONArrayDecoder(max_bytes=40)
        with pytest.raises(FrameTooLarge):
            _ = [reader.feed(piece) for piece in pieces]
