"""`pellucid decode --from ollama`: both of Ollama's wires, distinguished by the bytes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pellucid.cli.decode import decode
from tests.cases import Cases
from tests.recordings import recordings
from tests.small_wires import lines, sse

NATIVE = lines({"message": {"thinking": "why"}, "done": False}, {"message": {"content": "so"}, "done": True})
CHOICE = {"index": 0, "finish_reason": "stop"}
MESSAGE = {"reasoning": "why", "content": "so"}


@pytest.mark.parametrize(
    "data",
    [
        NATIVE,
        NATIVE.rstrip(),
        json.dumps({"message": {"thinking": "why", "content": "so"}, "done": True}, indent=2).encode(),
        sse({"choices": [CHOICE | {"delta": MESSAGE}]}, "data: [DONE]"),
        json.dumps({"choices": [CHOICE | {"message": MESSAGE}]}).encode(),
    ],
    ids=["lines", "no last newline", "a whole answer", "compatible stream", "compatible answer"],
)
@pytest.mark.parametrize("provider", ["ollama"])
def test_both_wires_are_decoded(provider: str, data: bytes) -> None:
    result = CliRunner().invoke(decode, ["--from", provider], input=data)
    assert result.exit_code == 0, result.output
    parts = json.loads(result.stdout)["parts"]
    assert [(part["part_kind"], part["content"]) for part in parts] == [("thinking", "why"), ("text", "so")]


def test_the_content_type_decides() -> None:
    data = lines({"error": "no"})
    for options in ([], ["--content-type", "application/x-ndjson"]):
        result = CliRunner().invoke(decode, ["--from", "ollama", *options], input=data)
        assert json.loads(result.stdout)["error"]["said"] == "no"
        assert result.exit_code == 1
        assert json.loads(result.stdout)["provider_name"] == ("ollama-native" if options else "ollama")


def test_the_native_row_can_be_named() -> None:
    result = CliRunner().invoke(decode, ["--from", "ollama-native"], input=NATIVE)
    assert json.loads(result.stdout)["parts"][0]["content"] == "why"


def test_recordings_of_the_compatible_endpoint_use_its_wire() -> None:
    with Cases() as case:
        for recording in recordings("ollama"):
            with case(recording.name):
                result = CliRunner().invoke(decode, ["--from", "ollama"], input=recording.body)
                value = json.loads(result.stdout)
                assert value["provider_name"] == "ollama"
                assert value["parts"][0]["part_kind"] == "thinking"
