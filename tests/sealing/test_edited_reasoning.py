"""Reasoning that comes back with its seal: a changed text causes one warning, an unchanged one none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pellucid.events import Event, ItemEndEvent, ItemStartEvent, PartEndEvent, PartStartEvent, SummaryEvent
from pellucid.parts import ModelMessage, Origin, ThinkingPart, Usage
from pellucid.protocols.agui import parse_input
from pellucid.protocols.agui.metadata import item_id_of
from pellucid.protocols.chat_completions import parse_request as parse_completion_request
from pellucid.protocols.client_protocols import CLIENT_PROTOCOLS
from pellucid.protocols.messages import parse_request as parse_messages_request
from pellucid.protocols.openresponses import Encoder
from pellucid.protocols.openresponses.items import ReferenceContext
from pellucid.protocols.openresponses.request import parse_request as parse_responses
from pellucid.runs.seal_stage import SealStage
from pellucid.runs.source import Batch
from pellucid.sealing import AttachedHistory, Sealed, Sealer, attach
from pellucid.view import VIEWS, Redactor, View, Viewer
from tests.agui import agui_client, agui_kit
from tests.ai_sdk import ai_sdk_kit
from tests.chat_completions import chat_completions_kit
from tests.messages import messages_kit
from tests.openresponses import openresponses_kit
from tests.sealing.sealing_kit import KEYS

SEALER = Sealer(KEYS)
TARGET = Origin("p", "w", "m")
MARK = "¤ I think otherwise."
Batches = list[list[Event]]
Place = tuple[dict[str, Any], str]
"""An object of a client's history, and its field that has reasoning with a seal."""


class Protocol(NamedTuple):
    """What a client of a protocol has of an answer, and what its next request becomes."""

    answer: Callable[[Batches], Any]
    places: Callable[[Any], Iterator[Place]]
    parse: Callable[[Any], list[ModelMessage]]


# --- OpenResponses -----------------------------------------------------------------------------------------------


def responses(dialect: Any) -> Protocol:
    def answer(batches: Batches) -> Any:
        encoder = Encoder(openresponses_kit.request().response("resp_1", "m", 1), dialect, seals=True)
        encoder.start()
        for batch in batches:
            encoder.feed(batch, 1)
        return msgspec.to_builtins(encoder.response.output)

    return Protocol(answer, responses_places, parse_input_items)


def responses_places(output: Any) -> Iterator[Place]:
    for item in output:
        if item.get("encrypted_content") and item["type"] == "reasoning":
            texts = [*(item.get("content") or []), *item["summary"]]
            if not texts:
                item["summary"] = texts = [{"type": "summary_text", "text": ""}]
            yield from ((entry, "text") for entry in texts)


def parse_input_items(output: Any) -> list[ModelMessage]:
    body = {"model": "m", "input": [*output, {"type": "message", "role": "user", "content": "And?"}]}
    return parse_responses(json.dumps(body).encode()).messages(ReferenceContext(), [])


# --- Messages ----------------------------------------------------------------------------------------------------


def messages_places(message: Any) -> Iterator[Place]:
    return ((block, "thinking") for block in message["content"] if block.get("signature"))


def parse_messages(message: Any) -> list[ModelMessage]:
    assistant = {"role": "assistant", "content": message["content"]}
    body = {"model": "m", "messages": [messages_kit.USER, assistant, messages_kit.USER]}
    return parse_messages_request(json.dumps(body).encode()).messages


# --- Chat Completions --------------------------------------------------------------------------------------------


def streamed_completion(batches: Batches) -> Any:
    message: dict[str, Any] = {"role": "assistant"}
    for chunk in chat_completions_kit.chunks_of(chat_completions_kit.encode(batches)):
        for choice in chunk.get("choices", []):
            for name, value in choice["delta"].items():
                if name == "tool_calls":
                    message.setdefault(name, []).extend(call for call in value if call.get("id"))
                elif value and name != "role":
                    message[name] = message[name] + value if name in message else value
    return message


def completion_places(message: Any) -> Iterator[Place]:
    details = message.get("reasoning_details") or []
    if any(str(detail.get("id")).startswith("rs_") for detail in details):
        yield from ((detail, "text") for detail in details if "text" in detail)
        yield from ((detail, "summary") for detail in details if "summary" in detail)
        yield from ((message, name) for name in ("reasoning_content", "reasoning"))


def parse_completion(message: Any) -> list[ModelMessage]:
    body = {"messages": [{"role": "user", "content": "Why?"}, message]}
    return parse_completion_request(json.dumps(body).encode()).messages


# --- AG-UI -------------------------------------------------------------------------------------------------------


def agui(dialect: Any) -> Protocol:
    def answer(batches: Batches) -> Any:
        return list(agui_client.messages_from_events(agui_kit.streamed(batches, dialect)).values())

    return Protocol(answer, agui_places, parse_agui)


def agui_places(messages: Any) -> Iterator[Place]:
    reasoning = [message for message in messages if message["role"] == "reasoning"]
    sealed = {item_id_of(message["id"]) for message in reasoning if {"encryptedValue", "encryptedContent"} & {*message}}
    return ((message, "content") for message in reasoning if item_id_of(message["id"]) in sealed)


def parse_agui(messages: Any) -> list[ModelMessage]:
    asks = [{"id": id, "role": "user", "content": "Why?"} for id in ("u1", "u2")]
    body = {"threadId": "t", "runId": "r", "messages": [asks[0], *messages, asks[1]]}
    request = parse_input(json.dumps(body).encode())
    parsed = request.messages()
    return [*parsed, *request.unused_seals(parsed)]


# --- the AI SDK --------------------------------------------------------------------------------------------------


def page_message(batches: Batches) -> Any:
    return ai_sdk_kit.message_of(ai_sdk_kit.chunks_of(ai_sdk_kit.encoded(batches)))


def page_places(message: Any) -> Iterator[Place]:
    parts = [part for part in message["parts"] if part["type"] == "reasoning"]
    ours = [part["providerMetadata"]["pellucid"] for part in parts]
    sealed = {metadata["item"] for metadata in ours if "sealed" in metadata}
    return ((part, "text") for part, metadata in zip(parts, ours, strict=True) if metadata["item"] in sealed)


# -----------------------------------------------------------------------------------------------------------------

PROTOCOLS = {
    "openresponses": responses("openresponses"),
    "openresponses, OpenAI's names": responses("openai"),
    "openresponses, raw as summaries": responses("summary"),
    "messages": Protocol(messages_kit.message_of, messages_places, parse_messages),
    "messages, streamed": Protocol(
        lambda batches: messages_kit.accumulate(messages_kit.events_of(messages_kit.encode(batches))),
        messages_places,
        parse_messages,
    ),
    "chat_completions": Protocol(
        lambda batches: chat_completions_kit.completion_of(batches)["choices"][0]["message"],
        completion_places,
        parse_completion,
    ),
    "chat_completions, streamed": Protocol(streamed_completion, completion_places, parse_completion),
    "agui": agui("1.0"),
    "agui, before 1.0": agui("0.x"),
    "agui, proposal": agui("proposal"),
    "ai-sdk": Protocol(page_message, page_places, ai_sdk_kit.given_back),
}
NOT_SENT_BACK = {"chat"}
"""Protocols whose requests have no history."""


def test_the_table_has_every_protocol() -> None:
    assert {name.partition(", ")[0] for name in PROTOCOLS} | NOT_SENT_BACK == set(CLIENT_PROTOCOLS)


# --- runs --------------------------------------------------------------------------------------------------------

_STEPS = ["thinking", "thinking", "summary", "seal", "item", "text", "dict", "close", "builtin", "cite"]
_TEXTS = ["", "a", "ab", "Hm. ", " b\n\n", "%s", '"\\/', "\u2028\x85", "😀é", "\ud83d", "\n\n", "¤"]
turns = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(0, 2), st.sampled_from(_TEXTS)), max_size=12),
        st.sampled_from(["stop", "tool_call", "length"]),
        st.just(Usage()),
    ),
    min_size=1,
    max_size=3,
)
thinking_turns = turns.map(
    lambda script: [([("thinking", 0, "Hm."), *steps, ("text", 0, "So.")], *rest) for steps, *rest in script]
)
views = st.sampled_from([*(Viewer(view) for view in VIEWS), Viewer("raw", summaries=True)])
written = st.lists(st.sampled_from(["Gist.", "In short:\n\nab", "a"]), max_size=3)


def with_summaries(events: list[Event], texts: list[str]) -> list[Event]:
    """Add the gateway's summaries of raw reasoning, until the model begins a summary of its own."""
    out: list[Event] = []
    waiting: list[str] = []
    index, has_own, is_summed = 0, False, False
    for event in events:
        if isinstance(event, ItemStartEvent):
            index, waiting, is_summed = event.index, [], False
        elif isinstance(event, PartStartEvent) and isinstance(event.part, ThinkingPart):
            has_own = has_own or event.part.form == "summary"
            if has_own:
                waiting = []
            elif event.part.form == "raw" and not is_summed:
                waiting, is_summed = [*texts], True
        if isinstance(event, ItemEndEvent):
            out += [SummaryEvent(index, text) for text in waiting]
        elif isinstance(event, PartEndEvent) and waiting:
            out.append(SummaryEvent(index, waiting.pop(0)))
        out.append(event)
    return out


def answer_of(protocol: Protocol, script: list[Any], summaries: list[str], viewer: Viewer) -> Any:
    """Return what a client has of the run of a script."""
    batches, _ = chat_completions_kit.run_of(script, "eof")
    events = with_summaries([event for batch in batches for event in batch], summaries)
    sealed = SealStage(lambda item: SEALER.seal(item, tenant="a")).process(Batch(1, events)).events
    redactor = Redactor(viewer)
    return protocol.answer([redactor.feed([event]) for event in sealed])


def history(protocol: Protocol, answer: Any, viewer: Viewer) -> AttachedHistory:
    def open_part(part: Any) -> Sealed:
        return SEALER.open(part.token, tenant="a")

    return attach(protocol.parse(answer), open_part, lambda item: viewer.rule.forms)


def warnings(protocol: Protocol, answer: Any, viewer: Viewer) -> list[str]:
    return [text for text in history(protocol, answer, viewer).warnings(TARGET) if "changed" in text]


def text_at(where: dict[str, Any], name: str) -> str:
    return "".join(where.get(name) or [])


each = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)


@each
@given(turns, written, views)
def test_an_unchanged_text_causes_no_warning(
    protocol: Protocol, script: list[Any], summaries: list[str], viewer: Viewer
) -> None:
    answer = answer_of(protocol, script, summaries, viewer)
    assert warnings(protocol, answer, viewer) == []
    # A later request may ask for a lesser view.
    assert warnings(protocol, answer, Viewer("raw")) == []


@each
@given(thinking_turns, written, views, st.data())
def test_a_changed_text_causes_one_warning(
    protocol: Protocol, script: list[Any], summaries: list[str], viewer: Viewer, data: st.DataObject
) -> None:
    answer = answer_of(protocol, script, summaries, viewer)
    original = deepcopy(answer)
    places = list(protocol.places(answer))
    assume(places)
    chosen = data.draw(st.sets(st.sampled_from(range(len(places))), min_size=1), label="places")
    for number in chosen:
        where, name = places[number]
        text = text_at(where, name)
        at = data.draw(st.integers(0, len(text)), label="at")
        where[name] = text[:at] + MARK + text[at:]
    [warning] = warnings(protocol, answer, viewer)
    assert warning.endswith("of reasoning was changed: the sealed text is used")
    # The model gets the same as without the change.
    assert history(protocol, answer, viewer).messages == history(protocol, original, viewer).messages


@each
def test_a_text_that_a_reader_may_not_see_cannot_be_guessed(protocol: Protocol) -> None:
    script = [([("thinking", 0, "Yes."), ("text", 0, "So.")], "stop", Usage())]
    views: list[View] = ["sealed", "summary"]
    place_count = 0
    for view in views:
        answer = answer_of(protocol, script, ["It agrees."], Viewer(view))
        for guess in ("Yes.", "No."):
            changed = deepcopy(answer)
            places = [*protocol.places(changed)]
            for where, name in places:
                where[name] = guess
                assert len(warnings(protocol, changed, Viewer(view))) == 1
            place_count += len(places)
    assert place_count


@each
def test_white_space_is_not_compared(protocol: Protocol) -> None:
    script = [([("thinking", 0, "One. "), ("thinking", 0, "Two."), ("text", 0, "So.")], "stop", Usage())]
    answer = answer_of(protocol, script, [], Viewer("raw"))
    for where, name in protocol.places(answer):
        where[name] = f"{text_at(where, name)}\n".replace(". ", ".\n\n")
    assert warnings(protocol, answer, Viewer("raw")) == []
