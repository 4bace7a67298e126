"""What real providers answered, as OpenResponses: legal, fitting both schemas, and the same text."""

import os
from pathlib import Path

import pytest

from pellucid.parts import ModelResponse, Origin, TextPart, ThinkingPart
from pellucid.protocols.openresponses.verify import verify
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.run import Minter, Run
from pellucid.settings import ModelCall
from tests.openresponses.openresponses_kit import check_events, encoded, events_of

ROWS = builtin_profiles()
ROOT = Path(os.environ.get("PELLUCID_RECORDINGS") or Path(__file__).parents[3] / "shared" / "recordings")
NAMES = [
    f"{name}/{path.parent.name}" for name in sorted(ROWS) for path in sorted((ROOT / name).glob("*/response.body"))
]

pytestmark = pytest.mark.skipif(not NAMES, reason="no recordings here; PELLUCID_RECORDINGS says where they are")


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_answer_is_a_legal_response_with_all_its_text(name: str) -> None:
    provider = name.partition("/")[0]
    row = ROWS[provider]
    body = (ROOT / name / "response.body").read_bytes()
    decoder = WIRES[row.wire].decoder(row, Origin(provider, row.wire, "m"), "")
    run = Run(ModelCall("m", []), Minter(b"seed"))
    batches = [run.feed(decoder.feed(body[at : at + 500]))[0] for at in range(0, len(body), 500)]
    stream = encoded([*batches, run.feed(decoder.end())[0], run.end()])
    assert verify(stream) == []
    events = events_of(stream)
    check_events(events)
    parts = [part for message in run.messages if isinstance(message, ModelResponse) for part in message.parts]
    for kind, event in ((ThinkingPart, "response.reasoning.delta"), (TextPart, "response.output_text.delta")):
        said = "".join(
            part.content for part in parts if isinstance(part, kind) and getattr(part, "form", "raw") != "summary"
        )
        assert "".join(one["delta"] for one in events if one["type"] == event) == said
