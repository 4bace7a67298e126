"""AG-UI clients return sealed reasoning: the model gets the same history as from a stateful client.

The official clients carry it in `encryptedValue`, a client of the proposal in `encryptedContent`; none can read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pellucid.sealing import change_keys
from tests.agui import agui_client, agui_node
from tests.agui.agui_client import Converse
from tests.agui.agui_gateway_kit import ON, USER, WEATHER, error_of, path_of, post, run, run_input, streamed
from tests.agui.agui_seed_reader import read
from tests.cases import Cases
from tests.scripted import Reply, Upstream
from tests.scripted.gateway import Served
from tests.server.seal_kit import CANARIES, MORE, SECRET, Canary, configured, name_of, sent, serving

NAMES = ("stream", "whole", "fields", "reasoning", "details", "tags", "raw", "server tools")
WHOLE = [canary for canary in [*CANARIES, *MORE] if canary.name in NAMES]
BROKEN = [canary for canary in WHOLE if canary.row == "deepseek-anthropic"]
"""The stream breaks off after its content: the run fails, and the content that arrived counts."""
[CLAUDE] = [canary for canary in CANARIES if (canary.row, canary.name) == ("anthropic", "stream")]
[GEMINI] = [canary for canary in CANARIES if (canary.row, canary.name) == ("google", "stream")]

CLIENTS = [("1.0.0", "raw"), ("1.0.0", "summary"), ("1.0.0", "sealed"), ("0.0.58", "raw"), ("0.0.45", "raw")]
LAST = {"id": "u3", "role": "user", "content": "So?"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seals") / "keys.json"


@pytest.fixture(scope="module")
def gateway(upstream: Upstream, keys: Path) -> Iterator[Served]:
    with serving(configured(upstream, sealing={"keys_file": str(keys)})) as running:
        yield running


# --- three turns on every wire -----------------------------------------------------------------------------------

Bodies = list[dict[str, Any]]


def requests_received(upstream: Upstream, model: str, since: int = 0) -> Bodies:
    """Return the bodies that the model received; replace the ids of calls that the gateway generated.

    Scripts repeat the ids of calls, so the gateway generates new ones.
    """
    bodies_json = json.dumps(sent(upstream, model)[since:])
    bodies: Bodies = json.loads(re.sub(r"call_[0-9a-f]{32}", "call_fresh", bodies_json))
    return bodies


def in_process(gateway: Served, upstream: Upstream, canary: Canary) -> tuple[str, Bodies]:
    """Return the model, and the bodies of three turns whose history stayed in the gateway."""
    model = name_of(upstream, canary)
    tool = {"type": "function", "strict": None, **WEATHER}
    on: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    for message in (USER, ON, LAST):
        items = [*on, {"type": "message", "role": "user", "content": message["content"]}]
        reply = gateway.post({"model": model, "input": items, "tools": [tool], "reasoning": {"effort": "high"}, **more})
        assert reply.status == 200, reply.body
        calls = [item["call_id"] for item in reply.json["output"] if item["type"] == "function_call"]
        on = [{"type": "function_call_output", "call_id": id, "output": "rain"} for id in calls]
        more = {"previous_response_id": reply.json["id"]}
    bodies = requests_received(upstream, model)
    for body in bodies:
        for item in body.get("input", []):
            if item.get("type") == "function_call":
                item.pop("id", None)  # no provider asks for the id of a call's item: for it alone there is no carrier
    return model, bodies


Expected = dict[tuple[str, str], tuple[str, Bodies]]
"""By wire and canary: the model, and what it gets."""


@pytest.fixture(scope="module")
def expected(gateway: Served, upstream: Upstream) -> Expected:
    return {(canary.row, canary.name): in_process(gateway, upstream, canary) for canary in WHOLE}


@pytest.mark.parametrize(
    ("converse", "clients"),
    [
        pytest.param(agui_client.converse, CLIENTS[:3], id="python"),
        pytest.param(agui_node.converse, CLIENTS, id="packages", marks=pytest.mark.needs("node")),
    ],
)
def test_clients_return_the_history(
    gateway: Served, upstream: Upstream, expected: Expected, converse: Converse, clients: list[tuple[str, str]]
) -> None:
    which = [(canary, client, view) for canary in WHOLE for client, view in clients]
    conversations = []
    for number, (canary, client, view) in enumerate(which):
        model, _ = expected[canary.row, canary.name]
        url = gateway.url + path_of(model, effort="high", view=view)
        answers = {"tools": [WEATHER], "answers": {"weather": "rain"}}
        turns = [{"messages": [message], **answers} for message in (USER, ON, LAST)]
        conversations.append({"client": client, "url": url, "threadId": f"thread {number}", "turns": turns})
    places = {model: len(sent(upstream, model)) for model, _ in expected.values()}
    with Cases() as case:
        for (canary, client, view), turns in zip(which, converse(conversations), strict=True):
            model, bodies = expected[canary.row, canary.name]
            place = places[model]
            places[model] += 3
            with case(f"{canary.row}-{canary.name}, {client}, {view}"):
                assert requests_received(upstream, model, place)[:3] == bodies
                check_turns(canary, view, turns)


def check_turns(canary: Canary, view: str, turns: list[dict[str, Any]]) -> None:
    for turn in turns:
        assert (turn["error"], turn["warnings"]) == (None, [])
        assert bool(turn["failed"]) is (canary in BROKEN)
    if view != "raw":
        readable = [message["content"] for message in turns[-1]["messages"] if message["role"] == "reasoning"]
        assert SECRET not in json.dumps(turns)
        assert view == "summary" or not any(readable)


@pytest.mark.parametrize("view", ["raw", "sealed"])
def test_a_client_of_the_proposal_returns_the_history(
    gateway: Served, upstream: Upstream, expected: Expected, view: str
) -> None:
    with Cases() as case:
        for canary in [one for one in WHOLE if one not in BROKEN]:
            with case(f"{canary.row}-{canary.name}"):
                check_proposal(gateway, upstream, expected, canary, view)


def check_proposal(gateway: Served, upstream: Upstream, expected: Expected, canary: Canary, view: str) -> None:
    model, bodies = expected[canary.row, canary.name]
    before = len(sent(upstream, model))
    messages: list[dict[str, Any]] = []
    blobs: list[str] = []
    for message in (USER, ON, LAST):
        messages = [*answered(messages), message]
        body = run_input(*messages, thread=f"{view} {canary.row} {canary.name}", run=message["id"], tools=[WEATHER])
        reader = read(run(gateway, model, body, "proposal", effort="high", view=view), messages)
        messages = reader.messages
        blobs += reader.blobs
    assert requests_received(upstream, model, before) == bodies
    # The history has the encrypted contents of the spans, each once.
    encrypted_values = [entry["encryptedContent"] for entry in messages if "encryptedContent" in entry]
    assert sorted(blobs) == sorted(encrypted_values)
    assert len(set(encrypted_values)) == len(encrypted_values) > 0


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def claude(upstream: Upstream) -> str:
    return name_of(upstream, CLAUDE)


@pytest.fixture(scope="module")
def assistant_turn(gateway: Served, claude: str) -> list[dict[str, Any]]:
    """A turn of Claude's in the thread `t`: thought, redacted thought, text, a call."""
    return turn_of(gateway, claude)


def turn_of(gateway: Served, model: str, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    body = run_input(tools=[WEATHER], forwardedProps={"pellucid": {"dialect": "1.0", "snapshot": True}})
    reply = post(gateway, model, body, headers)
    messages: list[dict[str, Any]] = streamed(reply, "1.0")[-2]["messages"]
    return answered(messages)


def answered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with a result for every call."""
    known = {message.get("toolCallId") for message in messages}
    calls = [call["id"] for message in messages for call in message.get("toolCalls") or []]
    results = [{"role": "tool", "toolCallId": id, "content": "rain"} for id in calls if id not in known]
    return messages + [{"id": f"result-{len(messages)}-{at}", **one} for at, one in enumerate(results)]


def values(messages: list[dict[str, Any]]) -> list[int]:
    return [at for at, message in enumerate(messages) if message.get("encryptedValue")]


def changed(messages: list[dict[str, Any]], at: int, **fields: Any) -> list[dict[str, Any]]:
    return [{**message, **fields} if place == at else message for place, message in enumerate(messages)]


def answer(
    gateway: Served,
    model: str,
    messages: list[dict[str, Any]],
    thread: str = "t",
    headers: dict[str, str] | None = None,
) -> Reply:
    return post(gateway, model, run_input(*messages, ON, thread=thread, run="r2", tools=[WEATHER]), headers)


def test_unchanged_values_are_accepted(gateway: Served, claude: str, assistant_turn: list[dict[str, Any]]) -> None:
    assert len(values(assistant_turn)) >= 2
    reply = answer(gateway, claude, assistant_turn)
    assert reply.status == 200, reply.body
    assert "pellucid-warning" not in reply.headers


@pytest.mark.parametrize("where", [0.01, 0.3, 0.6, 0.99])
def test_a_changed_value_is_refused(
    gateway: Served, claude: str, assistant_turn: list[dict[str, Any]], where: float
) -> None:
    for at in values(assistant_turn):
        value = assistant_turn[at]["encryptedValue"]
        place = int(where * len(value))
        other = value[:place] + ("A" if value[place] != "A" else "B") + value[place + 1 :]
        code, param, words = error_of(answer(gateway, claude, changed(assistant_turn, at, encryptedValue=other)))
        assert code in ("seal_broken", "seal_key_unknown", "seal_foreign")
        assert param == f"messages[{at}].encryptedValue"
        assert words.startswith(f"{param}: ")
        assert SECRET not in words


def test_a_value_of_another_thread_is_refused(
    gateway: Served, claude: str, assistant_turn: list[dict[str, Any]]
) -> None:
    code, param, words = error_of(answer(gateway, claude, assistant_turn, thread="another"))
    assert (code, param) == ("seal_foreign", f"messages[{values(assistant_turn)[0]}].encryptedValue")
    assert "thread" in words


def test_a_value_that_was_moved_to_another_message_is_refused(
    gateway: Served, claude: str, assistant_turn: list[dict[str, Any]]
) -> None:
    one, other, *_ = values(assistant_turn)
    swapped = changed(
        changed(assistant_turn, one, encryptedValue=assistant_turn[other]["encryptedValue"]), other, encryptedValue=None
    )
    code, param, words = error_of(answer(gateway, claude, swapped))
    assert (code, param) == ("seal_foreign", f"messages[{one}].encryptedValue")
    assert "sealed for another message or call" in words
    copied = changed(assistant_turn, other, encryptedValue=assistant_turn[one]["encryptedValue"])
    assert error_of(answer(gateway, claude, copied))[:2] == ("seal_foreign", f"messages[{other}].encryptedValue")


def test_an_invalid_value_is_refused_even_if_no_model_would_get_it(
    gateway: Served, claude: str, assistant_turn: list[dict[str, Any]]
) -> None:
    """Reasoning of an incomplete turn goes to no model; its sealed values are verified all the same."""
    [thought] = [assistant_turn[at] for at in values(assistant_turn)[:1]]
    assert answer(gateway, claude, [USER, thought]).status == 200
    wrong = {**thought, "encryptedValue": thought["encryptedValue"][:-4] + "AAAA"}
    assert error_of(answer(gateway, claude, [USER, wrong]))[:2] == ("seal_broken", "messages[1].encryptedValue")
    assert error_of(answer(gateway, claude, [USER, thought], thread="x"))[0] == "seal_foreign"
    assert error_of(answer(gateway, claude, [USER, {**thought, "id": "rs_other"}]))[0] == "seal_foreign"


def test_a_repeated_message_is_refused(gateway: Served, claude: str, assistant_turn: list[dict[str, Any]]) -> None:
    for at in values(assistant_turn):
        repeated = [*assistant_turn[: at + 1], *assistant_turn[at:]]
        code, param, message = error_of(answer(gateway, claude, repeated))
        assert (code, param) == ("invalid_value", f"messages[{at + 1}].id")
        assert f"is messages[{at}].id already" in message


def test_signed_calls_and_texts_have_their_own_values(gateway: Served, upstream: Upstream) -> None:
    """Gemini's signatures are sealed on the call and on the text, and are valid on these alone."""
    model = name_of(upstream, GEMINI)
    messages = turn_of(gateway, model)
    [holder] = [message for message in messages if message.get("toolCalls")]
    [call] = holder["toolCalls"]
    assert call["encryptedValue"]
    assert answer(gateway, model, messages).status == 200
    moved = [
        {**one, "toolCalls": [{**call, "id": "other"}]} if one is holder else one
        for one in messages
        if one["role"] != "tool"
    ]
    at = messages.index(holder)
    code, param, _ = error_of(answer(gateway, model, moved))
    assert (code, param) == ("seal_foreign", f"messages[{at}].toolCalls[0].encryptedValue")


def test_another_model_gets_readable_reasoning_and_the_reply_has_a_warning(
    gateway: Served, upstream: Upstream, assistant_turn: list[dict[str, Any]]
) -> None:
    other = name_of(upstream, CLAUDE)
    reply = answer(gateway, other, assistant_turn)
    assert reply.status == 200
    assert "another model" in reply.headers["pellucid-warning"]
    [body] = sent(upstream, other)
    assert not any(word in json.dumps(body) for word in ("signature", "redacted_thinking", "encrypted"))


def test_a_value_of_another_tenant_is_refused(upstream: Upstream, claude: str, tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = []
    for owner in ("acme", "other"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("THE_KEY", "k" * 32)
            access = {"key_env": "THE_KEY", "key_owner": owner}
            config = configured(upstream, sealing={"keys_file": str(tmp_path / "keys.json")}, access=access)
            with serving(config) as running:
                mine = {"Authorization": "Bearer " + "k" * 32}
                if messages:
                    code, param, words = error_of(answer(running, claude, messages, headers=mine))
                    assert (code, param) == ("seal_foreign", f"messages[{values(messages)[0]}].encryptedValue")
                    assert "acme" not in words
                messages = turn_of(running, claude, mine)


def test_values_of_a_rotated_key_are_accepted_and_of_a_retired_key_refused(
    gateway: Served, claude: str, keys: Path, tmp_path: Path, upstream: Upstream
) -> None:
    messages = turn_of(gateway, claude)
    with serving(configured(upstream, sealing={"keys_file": str(tmp_path / "others.json")})) as other:
        assert error_of(answer(other, claude, messages))[0] == "seal_key_unknown"
    change_keys(keys, lambda now: now.rotate(datetime.now(UTC)))
    assert answer(gateway, claude, messages).status == 200
    change_keys(keys, lambda now: now.retire(now.keys[1].kid, datetime.now(UTC)))
    code, param, _ = error_of(answer(gateway, claude, messages))
    assert (code, param) == ("seal_key_retired", f"messages[{values(messages)[0]}].encryptedValue")
