"""A gateway behind a gateway: our decoder reads our stream, and our parser reads what the decoder's wire sends back."""

import json

from pellucid.fold import fold
from pellucid.parts import (
    ModelRequest,
    ModelResponse,
    Origin,
    SealedPart,
    TextPart,
    ThinkingPart,
    Usage,
    UserPromptPart,
)
from pellucid.protocols.chat_completions import parse_request
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.chat_completions.chat_completions_kit import chunks_of, encode, reasoning_of, run_of

STEPS = [
    *[
        ("thinking", 0, "One,"),
        ("thinking", 0, " whole."),
        ("text", 0, "said"),
        ("summary", 1, "Two"),
        ("summary", 1, "."),
    ],
    *[("thinking", 2, "Three."), ("call", 1, ""), ("args", 1, '{"a":1}')],
]


def test_every_thought_is_decoded_once_and_in_order() -> None:
    with Cases() as case:
        for seals in [0, 1, 2]:
            for name in ["openrouter", "deepseek", "vllm", "llama.cpp"]:
                with case(f"{seals}, {name}"):
                    row = builtin_profiles()[name]
                    origin = Origin(name, row.wire, "m")
                    batches, run = run_of([(STEPS, "tool_call", Usage(9, 8, 7, 6))], "eof", seals)
                    stream = encode(batches, include_usage=True)
                    decoder = WIRES[row.wire].decoder(row, origin)
                    response = fold([*decoder.feed(stream), *decoder.end()]).response
                    assert response is not None
                    thoughts = [part for part in response.parts if isinstance(part, ThinkingPart) and part.content]
                    assert [(part.content.strip(), part.form) for part in thoughts] == [
                        *[("One, whole.", "raw"), ("Two.", "summary")],
                        ("Three.", "raw"),
                    ]
                    assert [part.content for part in response.parts if isinstance(part, TextPart)] == ["said"]
                    assert [call.args_as_json() for call in response.tool_calls] == ['{"a":1}']
                    assert response.usage == Usage(9, 8, 7, 6, details=response.usage.details)
                    assert reasoning_of(list(run.messages)) is not None
                    tokens = [detail["data"] for detail in encrypted_details(stream)]
                    assert [
                        part.signature for part in response.parts if isinstance(part, ThinkingPart) and part.signature
                    ] == tokens


def test_the_decoder_sends_back_the_same_tokens() -> None:
    row = builtin_profiles()["openrouter"]
    origin = Origin(row.name, row.wire, "m")
    stream = encode(run_of([(STEPS, "tool_call", Usage())], "eof", 1)[0])
    decoder = WIRES[row.wire].decoder(row, origin)
    response = fold([*decoder.feed(stream), *decoder.end()]).response
    assert response is not None
    hi = ModelRequest([UserPromptPart("Hi")])
    body = WIRES[row.wire].encode(ModelCall("m", [hi, response]), row, origin)
    message = parse_request(json.dumps(body).encode()).messages[1]
    assert isinstance(message, ModelResponse)
    assert [(part.token, part.item_id) for part in message.parts if isinstance(part, SealedPart)] == [
        (detail["data"], detail["id"]) for detail in encrypted_details(stream)
    ]
    assert not any(isinstance(part, ThinkingPart) for part in message.parts)


def encrypted_details(stream: bytes) -> list[dict[str, str]]:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(stream) if chunk["choices"]]
    details = [detail for delta in deltas for detail in delta.get("reasoning_details", [])]
    return [detail for detail in details if detail["type"] == "reasoning.encrypted"]
