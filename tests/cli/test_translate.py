"""`pellucid translate`: every recorded answer is valid in every protocol and dialect, and violations are reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

import pytest
from click.testing import CliRunner, Result

from pellucid.cli.decode import profile_of_response
from pellucid.cli.main import main
from pellucid.cli.translate import decode_run, encode_run
from pellucid.events import ModelEvent
from pellucid.parts import Origin
from pellucid.protocols.client_protocols import CLIENT_PROTOCOLS
from pellucid.providers.wires import WIRES
from tests.cases import Cases
from tests.recordings import Recording, larger_set, own_recordings, recordings
from tests.scripted import delta, event

VARIANTS = [
    (name, dialect, chunks)
    for name, row in CLIENT_PROTOCOLS.items()
    for dialect, chunks in product(row.dialects or ("",), (False, True) if row.supports_chunks else (False,))
]
"""Every protocol, dialect and chunk mode."""

ANSWER = (
    event(delta(reasoning_content="Hm. "))
    + event(delta(reasoning_content="Yes."))
    + event(delta(content="42"))
    + event(delta("stop"))
    + event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
    + event(b"[DONE]")
)
FAILED_ANSWER = (
    event(delta(reasoning_content="Hm. ")) + event({"error": {"message": "out of memory"}}) + event(b"[DONE]")
)


def read_in_pieces(recording: Recording, *cuts: int) -> Iterator[list[ModelEvent]]:
    """Yield the events of a recorded answer that is read in pieces."""
    body = recording.body
    row = profile_of_response(recording.provider, None, body)
    decoder = WIRES[row.wire].decoder(row, Origin(row.name, row.wire, ""))
    for start, stop in zip((0, *cuts), (*cuts, len(body)), strict=True):
        yield decoder.feed(body[start:stop])
    yield decoder.end()


def violations(recording: Recording, *cuts: int) -> list[str]:
    found_violations = []
    for protocol, dialect, chunks in VARIANTS:
        row = CLIENT_PROTOCOLS[protocol]
        encoded = encode_run(row, decode_run(read_in_pieces(recording, *cuts)), dialect, chunks=chunks)
        found_violations += [f"{protocol} {dialect} {chunks}: {rule}" for rule in row.verify(encoded.stream, dialect)]
        assert (encoded.whole is not None) == (row.response_of is not None)
    return found_violations


def test_a_recorded_answer_is_valid_in_every_protocol_and_dialect() -> None:
    with Cases() as case:
        for recording in recordings():
            with case(recording.name):
                assert violations(recording) == []


def test_a_recorded_answer_is_valid_wherever_it_is_split() -> None:
    with Cases() as case:
        for recording in [*own_recordings()[::16], *larger_set()[::8]]:
            for at in range(1, len(recording.body), max(1, len(recording.body) // 12)):
                with case(f"{recording.name} at {at}"):
                    assert violations(recording, at) == []


def translate(*args: str, input: bytes = ANSWER) -> Result:
    return CliRunner().invoke(main, ["translate", "--from", "vllm", *args], input=input)


@pytest.mark.parametrize(("protocol", "dialect", "chunks"), VARIANTS)
def test_every_protocol_and_dialect_can_be_translated_and_checked(protocol: str, dialect: str, chunks: bool) -> None:
    args = ["--to", protocol, *(["--dialect", dialect] if dialect else []), *(["--chunks"] if chunks else [])]
    result = translate(*args, "--check")
    assert (result.exit_code, result.stderr) == (0, "legal\n")
    assert result.stdout.startswith(
        {"openresponses": "event: ", "messages": "event: ", "chat": "id: 0\nevent: "}.get(protocol, "data: ")
    )
    assert all(text in result.stdout for text in ("Hm. ", "Yes.", "42"))
    assert ("_CHUNK" in result.stdout) == chunks
    assert result.stdout_bytes == translate(*args).stdout_bytes
    failed = translate(*args, "--check", input=FAILED_ANSWER)
    assert (failed.exit_code, failed.stderr) == (1, "legal\nError: the provider reported an error: out of memory\n")


def test_the_first_dialect_is_the_default() -> None:
    for protocol, row in CLIENT_PROTOCOLS.items():
        if row.dialects:
            named = translate("--to", protocol, "--dialect", row.dialects[0])
            assert translate("--to", protocol).stdout == named.stdout
            others = {translate("--to", protocol, "--dialect", dialect).stdout for dialect in row.dialects}
            assert len(others) == len(row.dialects)


def test_whole_responses() -> None:
    completion = json.loads(translate("--to", "chat_completions", "--no-stream").stdout)
    assert completion["choices"][0]["message"]["reasoning_content"] == "Hm. Yes."
    error = json.loads(translate("--to", "chat_completions", "--no-stream", input=FAILED_ANSWER).stdout)
    assert "out of memory" in error["error"]["message"]
    response = json.loads(translate("--to", "openresponses", "--no-stream").stdout)
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    event = json.loads(translate("--to", "chat", "--no-stream").stdout)
    assert [segment["type"] for segment in event["segments"]] == ["reasoning", "text"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ["--to", "klingon"],
            "'klingon' is not one of 'agui', 'ai-sdk', 'chat', 'chat_completions', 'messages', 'openresponses'",
        ),
        (["--to", "agui", "--dialect", "2.0"], "no dialect '2.0'; there are: 1.0, 0.x, thinking, proposal"),
        (["--to", "chat_completions", "--dialect", "1.0"], "chat_completions has no dialects"),
        (["--to", "openresponses", "--chunks"], "--chunks: openresponses has no chunks"),
        (["--to", "agui", "--no-stream"], "--no-stream: agui has only streams"),
    ],
)
def test_an_unsupported_option_is_reported_with_the_supported_ones(args: list[str], says: str) -> None:
    result = translate(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.split())


@pytest.mark.parametrize(("protocol", "dialect", "chunks"), VARIANTS)
def test_the_check_names_the_violated_rule(protocol: str, dialect: str, chunks: bool) -> None:
    row = CLIENT_PROTOCOLS[protocol]
    stream = encode_run(row, decode_run([[], []]), dialect, chunks=chunks).stream
    first = stream.partition(b"\n\n")[0] + b"\n\n"
    expected = {"agui": "start", "chat": "frame"}.get(protocol, "life")
    assert any(expected in rule.split(" (")[0] for rule in row.verify(first + stream, dialect))
    assert row.verify(b"data: nonsense\n\n", dialect)
