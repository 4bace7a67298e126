"""Recorded responses of Cohere, compared with the result of another decoder.

`DEVIATIONS` lists the intended differences. (The other decoder omits the tool plan and reads no streams; these
recordings have neither.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.cases import Cases
from tests.recordings import larger_set
from tests.small_wires import assistant, response_of

pytestmark = pytest.mark.needs("recordings")

DEVIATIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    # Billed units are not tokens, so they are not reported as such.
    "usage details": lambda theirs: {f"billed_{name}": n for name, n in theirs["usage"]["details"].items()},
    # Cohere does not report the model of the response; the other decoder has the model of the request.
    "model name": lambda theirs: None,
}
"""The fields that differ in every recording: our value as a function of the other decoder's."""


def normalised(part: dict[str, Any]) -> dict[str, Any]:
    compared_fields = ("part_kind", "content", "signature", "id", "tool_name", "args", "provider_details")
    return {name: part[name] for name in compared_fields if part.get(name) is not None}


def test_the_response_is_as_expected() -> None:
    with Cases() as case:
        for recording in larger_set("cohere"):
            with case(recording.case):
                theirs = recording.expected
                ours = response_of("cohere", recording.body)
                assert [normalised(msgspec.to_builtins(part)) for part in ours.parts] == [
                    normalised(part) for part in theirs["parts"]
                ]
                assert ours.finish_reason == theirs["finish_reason"]
                assert ours.native_finish_reason == theirs["provider_details"]["finish_reason"]
                assert ours.model_name == DEVIATIONS["model name"](theirs)
                assert ours.provider_response_id == theirs["provider_response_id"]
                usage = theirs["usage"]
                assert (ours.usage.input_tokens, ours.usage.output_tokens) == (
                    usage["input_tokens"],
                    usage["output_tokens"],
                )
                assert ours.usage.output_reasoning_tokens is None
                assert ours.usage.details == DEVIATIONS["usage details"](theirs)


def test_a_response_is_sent_back_unchanged() -> None:
    with Cases() as case:
        for recording in larger_set("cohere"):
            with case(recording.case):
                theirs = recording.expected["roundtrip_request"]["messages"]
                ours = response_of("cohere", recording.body)
                (answer,) = (message for message in theirs if message["role"] == "assistant")
                assert assistant("cohere", ours) == {"content": answer["content"]}
