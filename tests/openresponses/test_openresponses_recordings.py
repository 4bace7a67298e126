"""Recorded answers of providers, encoded as OpenResponses: legal, valid in both schemas, with the same text."""

from pellucid.parts import ModelResponse, Origin, TextPart, ThinkingPart
from pellucid.protocols.openresponses.verify import verify
from pellucid.providers.wires import WIRES
from pellucid.run import Minter, Run
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.openresponses.openresponses_kit import check_events, encode, events_of
from tests.recordings import Recording, recordings


def test_a_recorded_answer_is_a_legal_response_with_all_its_text() -> None:
    with Cases() as case:
        for recording in recordings():
            with case(recording.name):
                check_recording(recording)


def check_recording(recording: Recording) -> None:
    row, body = recording.row, recording.body
    decoder = WIRES[row.wire].decoder(row, Origin(row.name, row.wire, "m"))
    run = Run(ModelCall("m", []), Minter(b"seed"))
    batches = [run.feed(decoder.feed(body[at : at + 500]))[0] for at in range(0, len(body), 500)]
    stream = encode([*batches, run.feed(decoder.end())[0], run.end()])
    assert verify(stream) == []
    events = events_of(stream)
    check_events(events)
    parts = [part for message in run.messages if isinstance(message, ModelResponse) for part in message.parts]
    for kind, event in ((ThinkingPart, "response.reasoning.delta"), (TextPart, "response.output_text.delta")):
        expected = "".join(
            part.content for part in parts if isinstance(part, kind) and getattr(part, "form", "raw") != "summary"
        )
        assert "".join(one["delta"] for one in events if one["type"] == event) == expected
