"""Upstreams that refuse what the real ones refuse, with their words.

`openai_refusal` is as strict as the strictest reports: some of the rules may apply only to stored items, or only to
some models. The sources of each rule are the threads that `test_responses_refusals.py` names.
"""

from __future__ import annotations

from typing import Any

Item = dict[str, Any]

_FOUND_BY_ID = ("web_search_call", "code_interpreter_call", "image_generation_call", "mcp_approval_request")
_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


def openai_refusal(items: list[Item], outputs: list[list[Item]], *, is_stored: bool = False) -> str | None:
    """Return why OpenAI refuses an input; None if it accepts it.

    Args:
        items: The input.
        outputs: The outputs of the responses that it made before.
        is_stored: Whether the request asks to store the response, and thus may refer to stored items.
    """
    for index, item in enumerate(items):
        refusal = _field_refusal(item, f"input[{index}]") or _id_refusal(items, index, outputs, is_stored)
        if refusal is not None:
            return refusal
    return _pairing_refusal(items)


def _field_refusal(item: Item, path: str) -> str | None:
    type_ = item.get("type")
    unknown = ["created_by"] + (["status"] if type_ in ("reasoning", "compaction", "compaction_summary") else [])
    for name in unknown:
        if name in item:
            return f"Unknown parameter: '{path}.{name}'."
    if type_ == "reasoning":
        if "summary" not in item:
            return f"Missing required parameter: '{path}.summary'."
        if not isinstance(item["summary"], list):
            return f"Invalid type for '{path}.summary': expected an array of objects, but got null instead."
        if item.get("content"):
            return f"Invalid '{path}.content': array too long. Expected an array with maximum length 0."
    if type_ == "web_search_call":
        for name, value in (item.get("action") or {}).items():
            if name == "sources" or value is None:
                return f"Unknown parameter: '{path}.action.{name}'."
    if type_ == "message" and any("annotations" not in c for c in item["content"] if c["type"] == "output_text"):
        return f"Missing required parameter: '{path}.content[0].annotations'."
    for name in ("id", "call_id"):
        value = item.get(name)
        if value is not None and not 1 <= len(value) <= 64:
            return f"Invalid '{path}.{name}': string too long. Expected a string with maximum length 64."
    return None


def _id_refusal(items: list[Item], index: int, outputs: list[list[Item]], is_stored: bool) -> str | None:
    """Return why an item with an id is refused: it must be where it was in its response."""
    item = items[index]
    id, type_ = item.get("id"), item.get("type")
    if type_ == "reasoning" and id is None and not item.get("encrypted_content"):
        return "Missing required parameter: 'id'."
    if type_ == "image_generation_call" and not is_stored:
        return f"Item with id '{id}' not found. Items are not persisted when `store` is set to false."
    output = next((o for o in outputs if any(i["id"] == id for i in o)), None)
    if output is None:
        return f"Missing required parameter: 'input[{index}].id'." if type_ in _FOUND_BY_ID else None
    if sum(other.get("id") == id for other in items) > 1:
        return f"Duplicate item found with id {id}."
    place = next(n for n, i in enumerate(output) if i["id"] == id)
    if type_ == "reasoning":
        if not is_stored and not item.get("encrypted_content"):
            return f"Item with id '{id}' not found. Items are not persisted when `store` is set to false."
        follower = next((i for i in output[place + 1 :] if not _is_empty_message(i)), None)
        following = items[index + 1] if index + 1 < len(items) else {}
        is_same = follower is not None and (
            following.get("id") == follower["id"]
            or (not is_stored and "id" not in following and following.get("type", "message") == follower["type"])
        )
        if not is_same:
            return f"Item '{id}' of type 'reasoning' was provided without its required following item."
        return None
    before = [n for n, i in enumerate(output[:place]) if i["type"] == "reasoning"]
    if not before:
        return None
    required = output[before[-1]]["id"]
    at = index - 1
    while at >= 0 and items[at].get("type") not in ("reasoning", None) and items[at].get("role") != "user":
        at -= 1
    if at < 0 or items[at].get("id") != required:
        return f"Item '{id}' of type '{type_}' was provided without its required 'reasoning' item: '{required}'."
    return None


def _is_empty_message(item: Item) -> bool:
    return item["type"] == "message" and not any(entry.get("text") for entry in item["content"])


def _pairing_refusal(items: list[Item]) -> str | None:
    calls = [item["call_id"] for item in items if item.get("type") in _CALLS]
    results = [item["call_id"] for item in items if item.get("type") in _CALLS.values()]
    for call_id in calls:
        if call_id not in results:
            return f"No tool output found for function call {call_id}."
    for call_id in results:
        if call_id not in calls:
            return f"No tool call found for function call output with call_id {call_id}."
    return None


def deepseek_refusal(items: list[Item]) -> str | None:
    """Return why DeepSeek refuses an input: it takes a call's results only directly after the calls of its turn."""
    waiting: list[str] = []
    are_complete = True
    for item in items:
        type_ = item.get("type")
        if type_ in _CALLS:
            if waiting and not are_complete:
                return f"No tool output found for tool call {waiting[0]}"
            waiting.append(item["call_id"])
        elif type_ in _CALLS.values():
            if item["call_id"] not in waiting:
                return f"No tool call found for tool output with call_id {item['call_id']}"
            waiting.remove(item["call_id"])
            are_complete = not waiting
        elif waiting:
            return f"No tool output found for tool call {waiting[0]}"
    return f"No tool output found for tool call {waiting[0]}" if waiting else None
