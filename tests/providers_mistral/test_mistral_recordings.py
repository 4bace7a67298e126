"""Recorded responses of Mistral, compared with the result of another decoder.

There are no differences. (The other decoder merges all thoughts of a response into one part, and all texts into one;
here each block keeps its position. None of these responses has a thought after text.)
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.cases import Cases
from tests.recordings import larger_set
from tests.small_wires import assistant, response_of

pytestmark = pytest.mark.needs("recordings")


def normalised(part: dict[str, Any]) -> dict[str, Any]:
    compared_fields = ("part_kind", "content", "signature", "id", "tool_name", "args", "provider_details")
    return {name: part[name] for name in compared_fields if part.get(name) is not None}


def test_the_response_is_as_expected() -> None:
    with Cases() as case:
        for recording in larger_set("mistral"):
            with case(recording.case):
                theirs = recording.expected
                ours = response_of("mistral", recording.body, model=theirs["model_name"])
                assert [normalised(msgspec.to_builtins(part)) for part in ours.parts] == [
                    normalised(part) for part in theirs["parts"]
                ]
                assert ours.finish_reason == theirs["finish_reason"]
                assert ours.native_finish_reason == theirs["provider_details"]["finish_reason"]
                assert ours.model_name == theirs["response_model_name"]
                assert ours.provider_response_id == theirs["provider_response_id"]
                usage = theirs["usage"]
                assert (ours.usage.input_tokens, ours.usage.output_tokens) == (
                    usage["input_tokens"],
                    usage["output_tokens"],
                )
                assert (ours.usage.output_reasoning_tokens, ours.usage.details) == (None, usage["details"])


def test_a_response_is_sent_back_unchanged() -> None:
    with Cases() as case:
        for recording in larger_set("mistral"):
            with case(recording.case):
                theirs = recording.expected
                model = theirs["model_name"]
                ours = response_of("mistral", recording.body, model=model)
                if "roundtrip_request" in theirs:
                    (answer,) = (m for m in theirs["roundtrip_request"]["messages"] if m["role"] == "assistant")
                    assert assistant("mistral", ours, model=model) == {"content": answer["content"]}
