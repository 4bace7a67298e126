"""The provider's own tools: their items as a call and its result, with one row for each item type.

The item itself is stored with the call, so that it can be sent back. Images are removed from it, because they are large
and are parts of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...parts import BuiltinToolReturnPart, FilePart
from ..lenient_json import dict_of, objects_in, text_of
from ..media import split_data_url

Item = dict[str, Any]


class BuiltinTool(NamedTuple):
    """How to read one type of items of provider tools: functions of the item."""

    name: Callable[[Item], str]
    args: Callable[[Item], Any]
    result: Callable[[Item], dict[str, Any]]
    """The result, without the status."""
    streamed_field: str | None = None
    """The field for which deltas arrive before the item is done."""


def _constant(name: str) -> Callable[[Item], str]:
    return lambda item: name


def _pick(*names: str) -> Callable[[Item], dict[str, Any]]:
    """Return a function that picks these fields of an item, without nulls."""
    return lambda item: {name: item[name] for name in names if item.get(name) is not None}


def _action(item: Item) -> Any:
    action = item.get("action")
    return {name: value for name, value in action.items() if name != "sources"} if isinstance(action, dict) else action


def _sources(item: Item) -> dict[str, Any]:
    sources = dict_of(item, "action").get("sources")
    return {"sources": sources} if sources else {}


def _logs(item: Item) -> dict[str, Any]:
    if not isinstance(item.get("outputs"), list):
        return {}
    logs = [entry.get("logs") for entry in objects_in(item["outputs"]) if entry.get("type") == "logs"]
    return {"logs": [log for log in logs if log is not None]}


def _server(item: Item) -> str:
    return f"mcp_server:{item.get('server_label') or ''}"


def _mcp_call(item: Item) -> dict[str, Any]:
    return {"action": "call_tool", "tool_name": item.get("name"), "tool_args": item.get("arguments")}


TOOLS: dict[str, BuiltinTool] = {
    "web_search_call": BuiltinTool(_constant("web_search"), _action, _sources),
    "file_search_call": BuiltinTool(_constant("file_search"), _pick("queries"), _pick("results")),
    "code_interpreter_call": BuiltinTool(_constant("code_execution"), _pick("container_id", "code"), _logs, "code"),
    "image_generation_call": BuiltinTool(
        _constant("image_generation"),
        lambda item: None,
        _pick("background", "quality", "size", "output_format", "revised_prompt"),
    ),
    "mcp_call": BuiltinTool(_server, _mcp_call, _pick("output", "error"), "arguments"),
    "mcp_list_tools": BuiltinTool(_server, lambda item: {"action": "list_tools"}, _pick("tools", "error")),
    # xAI's tools, whose items look like calls of the caller's functions.
    "x_search_call": BuiltinTool(lambda item: str(item.get("name") or "x_search"), _pick("arguments"), _pick("output")),
}

CUSTOM = BuiltinTool(lambda item: str(item.get("name") or ""), lambda item: item.get("input"), _pick("output"), "input")
"""For the item types in a profile's `server_tools`, which the provider runs itself."""

_COMPACTIONS = ("compaction", "compaction_summary")


def input_item(native: Item) -> Item:
    """Return an item of an output as OpenAI accepts it in an input.

    It refuses some fields of its own items ("Unknown parameter: 'input[1].status'"), and nulls in actions.
    """
    type_ = native.get("type")
    if type_ == "image_generation_call":
        return {"type": type_, "id": native.get("id")}  # the provider has all else
    item = {name: value for name, value in native.items() if name != "created_by"}
    if type_ in _COMPACTIONS:
        item.pop("status", None)
    elif type_ == "code_interpreter_call":
        item.setdefault("outputs", None)
    elif type_ == "web_search_call" and isinstance(action := item.get("action"), dict):
        item["action"] = {name: value for name, value in action.items() if value is not None and name != "sources"}
    return item


def tool_return(tool: BuiltinTool, item: Item, provider: str) -> BuiltinToolReturnPart:
    """Return the tool's result as a part."""
    status = item.get("status")
    content = ({"status": status} if isinstance(status, str) else {}) | tool.result(item)
    return BuiltinToolReturnPart(tool.name(item), content, _id(item) or "", id=_id(item), provider_name=provider)


def image_files(item: Item, provider: str) -> list[FilePart]:
    """Return the images that a tool made."""
    images: list[tuple[str, str]] = []
    result = item.get("result")
    if item.get("type") == "image_generation_call" and isinstance(result, str) and result:
        output_format = item.get("output_format")
        images.append((f"image/{output_format if isinstance(output_format, str) else 'png'}", result))
    images += [url for entry in objects_in(item.get("outputs")) if (url := _image_url(entry)) is not None]
    return [FilePart(data, media_type, id=_id(item), provider_name=provider) for media_type, data in images]


def _image_url(entry: Item) -> tuple[str, str] | None:
    """Return the media type and the data of an output that is an image; otherwise None."""
    data_url = split_data_url(text_of(entry, "url"))
    return (data_url[0], data_url[2]) if data_url is not None and data_url[1] else None


def without_images(item: Item) -> Item:
    """Return the item as it is sent back, without images."""
    native = dict(item)
    if native.get("type") == "image_generation_call":
        native.pop("result", None)
    outputs = native.get("outputs")
    if isinstance(outputs, list):
        native["outputs"] = [entry for entry in outputs if not (isinstance(entry, dict) and _image_url(entry))]
    return native


def _id(item: Item) -> str | None:
    id = item.get("id")
    return id if isinstance(id, str) else None
