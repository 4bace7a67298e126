"""What is sent back is accepted: requests that upstreams refused, by their refusal and the threads that report it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ConfigError
from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    Origin,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.openai_responses.encode import encode
from pellucid.providers.profiles import builtin_profiles, load_profiles
from pellucid.settings import ModelCall
from tests.examples import many
from tests.providers_openai_responses.responses_kit import (
    OPENAI,
    ROWS,
    added,
    body,
    created,
    done,
    folded,
    message,
    origin,
    output_text,
    raw,
    response_of,
    sent,
    sse,
    stream,
    summary,
    thought,
    wire_event,
)
from tests.providers_openai_responses.strict_upstream import deepseek_refusal, openai_refusal

Item = dict[str, Any]

REASONING: Item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E1"}
OTHER_REASONING: Item = {**REASONING, "id": "rs_2", "encrypted_content": "E2"}
CALL: Item = {
    "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"
}  # fmt: skip
OTHER_CALL: Item = {**CALL, "id": "fc_2", "call_id": "c2"}
ANSWER = message(output_text("a"), id="msg_1")
SEARCH: Item = {
    "type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}
}  # fmt: skip
IMAGE: Item = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo="}
TOOL_SEARCH: Item = {
    "type": "tool_search_call", "id": "tsc_1", "call_id": None, "execution": "server", "status": "completed",
    "arguments": {"paths": ["x"]},
}  # fmt: skip
TOOLS_FOUND: Item = {
    "type": "tool_search_output", "id": "tso_1", "call_id": None, "execution": "server", "status": "completed",
    "tools": [],
}  # fmt: skip
COMPACTION: Item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "C", "status": "completed"}


def results(response: ModelResponse) -> ModelRequest:
    return ModelRequest([ToolReturnPart(call.tool_name, "r", call.tool_call_id) for call in response.tool_calls])


def turn(*output: Item, row: str = OPENAI, **usage: int) -> ModelResponse:
    """Return the response with this output."""
    counts = {"output_tokens": 99, "output_tokens_details": usage} if usage else None
    return response_of(body(*output, **({"usage": counts} if counts else {})), row)


def subset(response: ModelResponse, *indexes: int) -> ModelResponse:
    """Return the response with only some of its parts."""
    return msgspec.structs.replace(response, parts=[response.parts[index] for index in indexes])


def ids(items: list[Item]) -> list[str | None]:
    """Return the ids of the items of responses; None for those without one."""
    return [item.get("id") for item in items if not str(item.get("type")).endswith("call_output")]


# --- OpenAI: an item and its reasoning -------------------------------------------------------------------------------


def test_without_its_required_reasoning_item() -> None:
    """pydantic/pydantic-ai#3230, NousResearch/hermes-agent#97427, continuedev/continue#11466, mastra-ai/mastra#15509

    The reasoning is missing: a view hid it, the history was shortened or edited.
    """
    response = turn(REASONING, CALL, reasoning_tokens=5)
    items = sent(subset(response, 1), results(response))
    assert [item["type"] for item in items] == ["function_call", "function_call_output"]
    assert ids(items) == [None]
    refused = [CALL, {"type": "function_call_output", "call_id": "c1", "output": "r"}]
    expected = "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'."
    assert openai_refusal(refused, [[REASONING, CALL]]) == expected
    answered = sent(subset(turn(REASONING, ANSWER), 1))
    assert answered == [{"role": "assistant", "content": "a"}]


def test_counted_reasoning_without_an_item_is_not_missing() -> None:
    """The model reported tokens of reasoning, but made no reasoning item: nothing is required, nothing is dropped."""
    output = [TOOL_SEARCH, TOOLS_FOUND, SEARCH, CALL, ANSWER]
    response = turn(*output, reasoning_tokens=64)
    items = sent(response, results(response))
    assert ids(items) == ["tsc_1", "tso_1", "ws_1", "fc_1", "msg_1"]
    assert openai_refusal(items, [output]) is None


def test_the_second_of_two_reasoning_items_is_missing() -> None:
    """TanStack/ai#1345: each call is sent back directly after the reasoning that led to it, or without its id."""
    output = [REASONING, CALL, OTHER_REASONING, OTHER_CALL]
    response = turn(*output)
    items = sent(response, results(response))
    assert ids(items) == ["rs_1", "fc_1", "rs_2", "fc_2"]
    edited = sent(subset(response, 0, 1, 3), results(response))
    assert ids(edited) == ["rs_1", "fc_1", None]
    edited = sent(subset(response, 1, 2, 3), results(response))
    assert ids(edited) == [None, "rs_2", "fc_2"]
    grouped = sent(subset(response, 0, 2, 1, 3), results(response))
    assert openai_refusal(grouped, [output]) is None


def test_parallel_calls_and_a_message_share_the_reasoning_before_them() -> None:
    output = [REASONING, ANSWER, CALL, OTHER_CALL]
    response = turn(*output)
    assert ids(sent(response, results(response))) == ["rs_1", "msg_1", "fc_1", "fc_2"]
    assert ids(sent(subset(response, 1, 2, 3), results(response))) == [None, None, None]


def test_a_stream_lost_the_reasoning_item() -> None:
    """The reasoning item was announced, and the stream was cut: what a later part needs is recorded all the same."""
    cut = sse(created(), thought(0, encrypted="E"), added(1, "function_call", **{k: CALL[k] for k in ("id", "name")}))
    response = folded(cut).response
    assert response is not None
    assert response.provider_details == {"required_reasoning": {"fc_1": "rs"}}


def test_an_unsent_reasoning_item_is_missing_without_a_record() -> None:
    """Histories from elsewhere have no record: what is required is the reasoning before it in the history."""
    part = ThinkingPart("", id="rs_1")
    response = ModelResponse([part, TextPart("a", id="msg_1")], origin=origin())
    assert sent(response) == [{"role": "assistant", "content": "a"}]
    assert ids(sent(response, openai_store=True)) == ["rs_1", "msg_1"]
    cut_off = msgspec.structs.replace(part, signature="E", complete=False)
    assert ids(sent(ModelResponse([cut_off, TextPart("a", id="msg_1")], origin=origin()))) == [None]


def test_a_part_that_a_client_sent_back_has_its_id_only_after_its_reasoning() -> None:
    """A message has a seal for its `phase`, so its id comes back even if the client drops the reasoning item."""
    text = TextPart("a", id="msg_1", provider_details={"phase": "final_answer"}, origin=origin())
    reasoning = ThinkingPart("", id="rs_1", signature="E1", origin=origin())
    assert sent(ModelResponse([text])) == [{"role": "assistant", "content": "a", "phase": "final_answer"}]
    assert ids(sent(ModelResponse([reasoning, text]))) == ["rs_1", "msg_1"]


def test_an_item_with_a_call_id_is_sent_without_its_id() -> None:
    """A search for tools carries its state: without its reasoning, or without ids, it is still sent."""
    response = turn(REASONING, TOOL_SEARCH, TOOLS_FOUND, ANSWER)
    expected = [None, None, None]
    assert ids(sent(subset(response, 1, 2, 3))) == expected
    without_ids = sent(response, openai_send_reasoning_ids=False)
    assert [item.get("type", item.get("role")) for item in without_ids] == [
        "reasoning", "tool_search_call", "tool_search_output", "assistant"
    ]  # fmt: skip
    assert ids(without_ids) == [None, *expected]
    assert ids(sent(subset(turn(REASONING, SEARCH, ANSWER), 1, 2, 3))) == [None], "a web search is found by its id"


# --- OpenAI: reasoning and the item after it -------------------------------------------------------------------------


def test_without_its_required_following_item() -> None:
    """continuedev/continue#8933, openai/openai-agents-python#1611, anomalyco/opencode#20698"""
    response = turn(REASONING, CALL)
    assert sent(subset(response, 0)) == []
    shortened = sent(subset(turn(REASONING, CALL, OTHER_CALL), 0, 2), ModelRequest([ToolReturnPart("f", "r", "c2")]))
    assert ids(shortened) == [None]
    refused = [REASONING, OTHER_CALL, {"type": "function_call_output", "call_id": "c2", "output": "r"}]
    expected = "Item 'rs_1' of type 'reasoning' was provided without its required following item."
    assert openai_refusal(refused, [[REASONING, CALL, OTHER_CALL]]) == expected


def test_a_call_without_a_result_takes_its_reasoning_with_it() -> None:
    """The first of two parallel calls has no result, so neither it nor the reasoning that it follows is sent."""
    response = turn(REASONING, CALL, OTHER_CALL)
    items = sent(response, ModelRequest([ToolReturnPart("f", "r", "c2"), UserPromptPart("go on")]))
    assert [item.get("type", item.get("role")) for item in items] == ["function_call", "function_call_output", "user"]
    assert ids(items) == [None, None]


def test_an_empty_message_is_no_following_item() -> None:
    output = [REASONING, message(output_text(""), id="msg_0"), CALL]
    response = turn(*output)
    assert ids(sent(response, results(response))) == ["rs_1", "fc_1"]


def test_a_stored_reasoning_item_is_not_referred_to_before_a_message_that_was_cut_off() -> None:
    """OpenHands/software-agent-sdk#1754: the provider has another message there, under its own id."""
    cut = msgspec.structs.replace(TextPart("a", id="msg_1"), complete=False)
    reasoning = ThinkingPart("s", id="rs_1", signature="E", form="summary")
    items = sent(ModelResponse([reasoning, cut], origin=origin()), openai_store=True)
    assert ids(items) == [None, None]
    assert items[0]["encrypted_content"] == "E"
    unsealed = msgspec.structs.replace(reasoning, signature=None)
    assert ids(sent(ModelResponse([unsealed, cut], origin=origin()), openai_store=True)) == [None]


# --- OpenAI: fields --------------------------------------------------------------------------------------------------


def test_missing_required_parameter_summary() -> None:
    """openai/openai-openapi, lidge-jun/opencodex#4673, GizClaw/flowcraft#528: "Missing required parameter:
    'input[1].summary'"; null is no list of summaries either."""
    summaries: list[Item] = [{}, {"summary": None}, {"summary": []}]
    for given_summary in summaries:
        item = {name: value for name, value in REASONING.items() if name != "summary"} | given_summary
        assert sent(turn(item, ANSWER))[0]["summary"] == []


def test_a_null_in_a_reasoning_item_is_not_sent_back() -> None:
    """Wei-Shaw/sub2api#4237: xAI refuses `"content": null` of reasoning."""
    at: dict[str, Any] = {"output_index": 0, "item_id": "rs_1"}
    for fields, index in (
        ({"summary": summary("whole"), "content": None}, {"summary_index": 0}),
        ({"summary": None, "content": raw("whole")}, {"content_index": 0}),
    ):
        kind = "reasoning_summary_text" if "summary_index" in index else "reasoning_text"
        data = stream(
            added(0, "reasoning", id="rs_1", summary=[]),
            wire_event(f"{kind}.delta", delta="something else", **at, **index),
            done(0, "reasoning", id="rs_1", encrypted_content="E", **fields),
            [wire_event("output_item.done", 1, item=ANSWER)],
        )
        item = sent(response_of(data, "xai-responses"), row="xai-responses")[0]
        assert item == {
            "type": "reasoning", "id": "rs_1", "encrypted_content": "E",
            "summary": fields["summary"] or [], **({"content": fields["content"]} if fields["content"] else {}),
        }  # fmt: skip


def test_each_message_must_have_at_least_one_content_element() -> None:
    """vercel/ai#15334: xAI refuses a second reasoning item with the same id: several summaries are one item."""
    item = {**REASONING, "summary": summary("a", "b"), "content": raw("r")}
    items = sent(turn(item, ANSWER, row="xai-responses"), row="xai-responses")
    assert items[0] == item
    assert ids(items) == ["rs_1", "msg_1"]


def test_unknown_parameter_status_and_created_by() -> None:
    """BerriAI/litellm#13420, can1357/oh-my-pi#10415, openai/openai-agents-python#4308"""
    output = [
        {**REASONING, "status": "completed"}, CALL,
        {**TOOL_SEARCH, "created_by": "u"}, {**TOOLS_FOUND, "created_by": "u"},
        {**COMPACTION, "created_by": "u"}, ANSWER,
    ]  # fmt: skip
    response = turn(*output)
    items = sent(response, results(response))
    assert ids(items) == ["rs_1", "fc_1", "tsc_1", "tso_1", "cmp_1", "msg_1"]
    assert not any("created_by" in item for item in items)
    assert [item for item in items if "status" in item and item["type"] in ("reasoning", "compaction")] == []
    assert openai_refusal(items, [output]) is None


def test_array_too_long_reasoning_content() -> None:
    """musistudio/claude-code-router#1783, querymt/querymt#976: another model's reasoning is no reasoning item there."""
    for maker in (None, Origin("anthropic", "anthropic", "claude"), origin("openresponses")):
        made = ModelResponse([ThinkingPart("raw", id="rs_1"), TextPart("a", id="msg_1")], origin=maker)
        for row in (OPENAI, "azure-responses", "copilot-responses", "xai-responses"):
            assert sent(made, row=row) == [{"role": "assistant", "content": "a"}]


def test_string_too_long_call_id() -> None:
    """dyad-sh/dyad#4304, decolua/9router#393: another provider's call ids are longer than 64 characters, or empty."""
    for call_id in ("x" * 391, ""):
        made = ModelResponse([ToolCallPart("f", "{}", call_id)], origin=Origin("google", "google", "gemini"))
        call, output = sent(made, ModelRequest([ToolReturnPart("f", "r", call_id)]))
        assert call["call_id"] == output["call_id"]
        assert openai_refusal([call, output], []) is None
        call, output = sent(made, ModelRequest([ToolReturnPart("f", "r", call_id)]), row="openresponses")
        assert call["call_id"] == output["call_id"] == call_id
    assert sent(ModelResponse([ToolCallPart("f", "{}", "x" * 64)], origin=None))[0]["call_id"] == "x" * 64


def test_unknown_parameter_action_sources() -> None:
    """pydantic/pydantic-ai#3653 and its comment on sources: neither these nor nulls are taken back."""
    action = {"type": "search", "query": "q", "queries": None, "sources": [{"type": "url", "url": "u"}]}
    output = [REASONING, {**SEARCH, "action": action}, ANSWER]
    items = sent(turn(*output))
    assert items[1] == SEARCH
    assert openai_refusal(items, [output]) is None


def test_an_image_that_was_not_stored_was_not_found() -> None:
    """kittors/CliRelay#804; openai/openai-openapi#575: an image is found by its id, so only if it is stored."""
    output = [REASONING, IMAGE, ANSWER]
    response = turn(*output)
    items = sent(response)
    assert items == [{"role": "assistant", "content": "a"}]
    stored = sent(response, openai_store=True)
    assert stored[1] == {"type": "image_generation_call", "id": "ig_1"}
    assert ids(stored) == ["rs_1", "ig_1", "msg_1"]
    expected = "Item with id 'ig_1' not found. Items are not persisted when `store` is set to false."
    assert openai_refusal(stored, [output]) == expected


def test_output_texts_are_sent_back_with_annotations_and_phase() -> None:
    """langchain-ai/langchain#32557: vLLM requires `annotations`. OpenAI needs `phase` of commentary and answer."""
    cite = {"type": "url_citation", "url": "https://a", "title": "t", "start_index": 0, "end_index": 1}
    output = [
        REASONING,
        message(output_text("b"), id="msg_0", phase="commentary"),
        message(output_text("a", annotations=[cite]), {"type": "refusal", "refusal": "no"}, id="msg_1"),
    ]
    assert sent(turn(*output)) == [REASONING, *output[1:]]


def test_compaction_has_no_id_without_ids() -> None:
    items = sent(turn(COMPACTION, ANSWER), openai_send_reasoning_ids=False)
    assert items[0] == {"type": "compaction", "encrypted_content": "C"}


# --- OpenAI: any edit of a history -----------------------------------------------------------------------------------


def _numbered(outputs: list[list[Item]]) -> list[list[Item]]:
    """Give each item an id, and each call a call id, of its own."""
    count = 0
    for output in outputs:
        for item in output:
            count += 1
            item["id"] = f"{item['id']}_{count}"
            if item["type"] == "function_call":
                item["call_id"] = f"c{count}"
    return outputs


_ITEMS = st.sampled_from([
    REASONING, REASONING, REASONING, CALL, CALL, ANSWER, message(output_text(""), id="msg"), SEARCH, TOOL_SEARCH,
    TOOLS_FOUND, IMAGE, COMPACTION, {**SEARCH, "status": "incomplete"}, {**REASONING, "encrypted_content": None},
    {**CALL, "type": "function_call", "status": "incomplete"},
    {"type": "code_interpreter_call", "id": "ci", "status": "completed", "code": "1", "container_id": "cntr"},
    {"type": "mcp_approval_request", "id": "mcpr", "name": "n", "arguments": "{}", "server_label": "s"},
])  # fmt: skip


@many
@given(
    st.lists(st.lists(_ITEMS.map(dict), min_size=1, max_size=7), min_size=1, max_size=3).map(_numbered),
    st.data(),
    st.booleans(),
    st.booleans(),
)
def test_no_edit_of_a_history_is_refused(
    outputs: list[list[Item]], data: st.DataObject, stores: bool, with_ids: bool
) -> None:
    history: list[ModelMessage] = []
    is_edited = False
    for output in outputs:
        response = turn(*output, reasoning_tokens=5)
        keeps = data.draw(st.lists(st.booleans(), min_size=len(response.parts), max_size=len(response.parts)))
        parts = [part for part, keep in zip(response.parts, keeps, strict=True) if keep]
        edited = msgspec.structs.replace(response, parts=parts)
        is_edited = is_edited or len(parts) < len(response.parts)
        answered = [call for call in edited.tool_calls if data.draw(st.booleans())]
        is_edited = is_edited or len(answered) < len(edited.tool_calls)
        returns = [ToolReturnPart(call.tool_name, "r", call.tool_call_id) for call in answered]
        history += [edited, ModelRequest([*returns, UserPromptPart("go on")])]
    items = sent(*history, openai_store=stores, openai_send_reasoning_ids=with_ids)
    assert openai_refusal(items, outputs, is_stored=stores) is None
    is_cut_off = any(item.get("status") == "incomplete" for output in outputs for item in output)
    if not (is_edited or is_cut_off) and with_ids and stores:
        expected = [i["id"] for output in outputs for i in _returnable(output)]
        assert ids([item for item in items if item.get("role") != "user"]) == expected


def _returnable(output: list[Item]) -> list[Item]:
    """Return the items of a complete output that must come back if nothing was edited."""
    items = [item for item in output if item["type"] != "message" or item["content"][0]["text"]]
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items


# --- DeepSeek --------------------------------------------------------------------------------------------------------

DEEPSEEK = "deepseek-responses"


def _open(id: str, text: str) -> Item:
    return {"type": "reasoning", "id": id, "summary": [], "content": raw(text)}


def types(items: list[Item]) -> list[str]:
    return [str(item.get("type", item.get("role"))) for item in items]


def test_no_tool_output_found_for_tool_call() -> None:
    """pydantic/pydantic-ai#7430, deepseek-ai/awesome-deepseek-integration#740: reasoning, call, reasoning, call"""
    output = [_open("r1", "a"), CALL, _open("r2", "b"), message(output_text("t"), id="m"), OTHER_CALL]
    response = turn(*output, row=DEEPSEEK)
    items = sent(response, results(response), row=DEEPSEEK)
    assert types(items) == [
        "reasoning", "reasoning", "message", "function_call", "function_call",
        "function_call_output", "function_call_output",
    ]  # fmt: skip
    assert ids(items) == ["r1", "r2", "m", "fc_1", "fc_2"]
    assert deepseek_refusal(items) is None
    elsewhere = sent(response, results(response), row="openresponses", target=origin(DEEPSEEK))
    assert deepseek_refusal(elsewhere) == "No tool output found for tool call c1"
    assert ids(elsewhere) == ["r1", "fc_1", "r2", "m", "fc_2"]


def test_a_message_between_a_call_and_its_output() -> None:
    """deepseek-ai/DeepSeek-V3#1588, fish2lab/DSCodex#9: a hook of Codex adds a message of the developer there."""
    response = turn(_open("r1", "a"), CALL, OTHER_CALL, row=DEEPSEEK)
    hook = SystemPromptPart("hook", "developer")
    first, second = (ToolReturnPart("f", "r", call_id) for call_id in ("c1", "c2"))
    for requests in (
        [ModelRequest([hook, first, UserPromptPart("u"), second])],
        [ModelRequest([hook]), ModelRequest([first]), ModelRequest([UserPromptPart("u")]), ModelRequest([second])],
    ):
        items = sent(response, *requests, row=DEEPSEEK)
        assert deepseek_refusal(items) is None
        assert types(items)[3:] == ["function_call_output", "function_call_output", "system", "user"]
        as_given = sent(response, *requests, row="openresponses", target=origin(DEEPSEEK))
        assert types(as_given)[3:] == ["system", "function_call_output", "user", "function_call_output"]


def test_calls_in_two_responses_of_one_turn() -> None:
    """A client's items without a message of the user between them are one turn."""
    first, second = turn(_open("r1", "a"), CALL, row=DEEPSEEK), turn(_open("r2", "b"), OTHER_CALL, row=DEEPSEEK)
    answered = ModelRequest([*results(first).parts, *results(second).parts])
    history = [first, second, answered]
    items = sent(*history, row=DEEPSEEK)
    assert deepseek_refusal(items) is None


@many
@given(st.lists(st.lists(st.sampled_from(["reasoning", "call", "message"]), max_size=5), max_size=3))
def test_a_tool_loop_is_never_refused(turns: list[list[str]]) -> None:
    history: list[ModelMessage] = []
    count = 0
    for kinds in turns:
        output: list[Item] = []
        for kind in kinds:
            count += 1
            made = {
                "reasoning": _open(f"r{count}", "t"),
                "call": {**CALL, "id": f"fc{count}", "call_id": f"c{count}"},
                "message": message(output_text("t"), id=f"m{count}"),
            }[kind]
            output.append(made)
        response = turn(*output, row=DEEPSEEK)
        history += [response, ModelRequest([UserPromptPart("u"), *results(response).parts])]
    items = sent(*history, row=DEEPSEEK)
    assert deepseek_refusal(items) is None
    assert types(items).count("function_call") == sum(kinds.count("call") for kinds in turns)


def test_an_operators_row_can_group_calls() -> None:
    row = {"extends": "openresponses", "interleaved_calls": False}
    profile = load_profiles({"lab": row}, builtin_profiles())["lab"]
    response = turn(_open("r1", "a"), CALL, _open("r2", "b"), OTHER_CALL, row="openresponses")
    call = ModelCall("m", [response, results(response)])
    assert deepseek_refusal(encode(call, profile, origin("openresponses"))["input"]) is None
    with pytest.raises(ConfigError, match=r"profiles\.lab\.interleaved_calls"):
        load_profiles({"lab": row | {"interleaved_calls": "no"}}, builtin_profiles())


@pytest.mark.parametrize("row", sorted(ROWS))
def test_a_complete_response_is_sent_back_whole_to_every_row(row: str) -> None:
    """Whatever the row, its own response comes back with every id."""
    reasoning = {**REASONING, "content": raw("r")} if ROWS[row].replay_field else REASONING
    response = turn(reasoning, ANSWER, CALL, row=row, reasoning_tokens=9)
    assert ids(sent(response, results(response), row=row)) == ["rs_1", "msg_1", "fc_1"]
