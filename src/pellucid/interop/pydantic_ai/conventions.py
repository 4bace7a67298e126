"""What Pydantic AI calls the providers, and where its models store the data of each wire.

Both libraries have fields of the same names, but not always the same content in them:

* `PROVIDERS` has Pydantic AI's names of providers, where they are not ours. Its `openai` is two of our profiles, one
  for each API, so the API is recognised by the ids of the response and its parts.
* `CONVENTIONS` has, for each wire, how its parts are *read* from Pydantic AI's parts and *written* to them, as far as
  this differs from copying the fields. Each entry is what the model class of Pydantic AI for that wire does.

Pydantic AI does not record the name of the model in the request. So an origin that is read from its messages has no
model, and opaque data goes to every model of the provider, as with Pydantic AI's own models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace
from pydantic_ai import messages as theirs

from ... import parts as ours
from ...providers.profile import Profile
from ...providers.profiles import builtin_profiles
from ...server_tool_blocks import NATIVE_NAME_KEY

CHAT, RESPONSES = "openai_chat", "openai_responses"


# --- names of providers --------------------------------------------------------------------------------------------


class ProviderRow(NamedTuple):
    """Our profiles for a provider of Pydantic AI."""

    profile: str
    """The profile for what Pydantic AI's own model class for it uses."""
    responses: str | None = None
    """The profile for the Responses API, if it is another one."""
    prefers_responses: bool = False
    """Whether a response without any trace of its API is taken to be of the Responses API."""


PROVIDERS: dict[str, ProviderRow] = {
    "alibaba": ProviderRow("qwen"),
    "azure": ProviderRow("azure", "azure-responses", prefers_responses=True),
    "bedrock-mantle": ProviderRow("bedrock-mantle-chat", "bedrock-mantle", prefers_responses=True),
    "deepseek": ProviderRow("deepseek", "deepseek-responses"),
    "github-copilot": ProviderRow("copilot", "copilot-responses"),
    "google-cloud": ProviderRow("google-vertex"),
    "moonshotai": ProviderRow("kimi"),
    "openai": ProviderRow("openai", "openai-responses", prefers_responses=True),
    "openrouter": ProviderRow("openrouter", "openrouter-responses"),
    "vllm": ProviderRow("vllm", "vllm-responses"),
    "xai": ProviderRow("xai", "xai-responses", prefers_responses=True),
    **{
        name: ProviderRow(name)
        for name in (
            "anthropic", "bedrock", "cerebras", "cohere", "crusoe", "fireworks", "google", "groq", "huggingface",
            "mistral", "ollama", "snowflake", "together", "zai",
        )
    },
}  # fmt: skip
"""Pydantic AI's providers whose responses we have a profile for."""

_FORMER_NAMES = {"google-gla": "google", "google-vertex": "google-cloud", "grok": "xai", "openai-codex": "openai"}
"""Other names of these providers in stored histories."""

_THEIR_NAMES = {
    **{row.profile: name for name, row in PROVIDERS.items()},
    **{row.responses: name for name, row in PROVIDERS.items() if row.responses},
    # Vertex AI is a client of their Anthropic provider, and verifies the same signatures.
    "anthropic-vertex": "anthropic",
}


def their_provider(name: str | None) -> str | None:
    """Return Pydantic AI's name of a provider; our name if it has no other."""
    return None if name is None else _THEIR_NAMES.get(name, name)


def _our_provider(name: str | None, api: str | None) -> str | None:
    """Return our name of a provider of Pydantic AI for an API; its own name if it is not in the table."""
    row = PROVIDERS.get(_FORMER_NAMES.get(name, name)) if name is not None else None
    if row is None:
        return name
    return row.responses if api == RESPONSES and row.responses else row.profile


def origin_of(response: theirs.ModelResponse, provider_name: str | None) -> ours.Origin | None:
    """Return the origin of the parts of a response that have this provider; None if it is not in the table."""
    system = provider_name
    if provider_name == response.provider_name and provider_name != "bedrock" and response.canonical_system:
        # The provider's name alone does not say which service is behind it (Azure's client, Vertex AI's).
        system = response.canonical_system
    row = PROVIDERS.get(_FORMER_NAMES.get(system, system)) if system is not None else None
    if row is None:
        return None
    name = row.responses if row.responses and _is_of_responses(response, row) else row.profile
    return ours.Origin(name, builtin_profiles()[name].wire, "")


FIELD_IDS = frozenset({"content", "reasoning", "reasoning_content", "reasoning_text"})
"""Ids of thoughts from Chat Completions: the name of the field that they came in; `content`, if from tags in it."""

_CHAT_IDS, _RESPONSE_IDS = ("chatcmpl", "gen-"), ("resp_", "resp-")


def _is_of_responses(response: theirs.ModelResponse, row: ProviderRow) -> bool:
    """Whether a response came over the Responses API: only its items have ids, but for thoughts of both."""
    id = response.provider_response_id or ""
    if id.startswith((*_CHAT_IDS, *_RESPONSE_IDS)):
        return id.startswith(_RESPONSE_IDS)
    for part in response.parts:
        if isinstance(part, theirs.ThinkingPart):
            details = part.provider_details or {}
            if part.id in FIELD_IDS or "type" in details:
                return False
        if getattr(part, "id", None):
            return True
    return row.prefers_responses


# --- conventions ---------------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """The origin of parts, and what is known of it."""

    origin: ours.Origin
    profile: Profile | None

    @property
    def form(self) -> ours.Form:
        return self.profile.form if self.profile is not None else "raw"


def source_of(origin: ours.Origin | None, model_name: str | None) -> Source | None:
    """Return the source for an origin; `model_name` is the model's name if the origin does not have it."""
    return None if origin is None else Source(origin, _profile_of(origin, model_name))


def _profile_of(origin: ours.Origin, model_name: str | None) -> Profile | None:
    return _cached_profile(origin.provider, origin.api, origin.model or model_name or "")


@lru_cache(maxsize=256)
def _cached_profile(provider: str, api: str, model: str) -> Profile | None:
    profile = builtin_profiles().get(provider)
    return profile.for_model(model) if profile is not None and profile.wire == api else None


Read = Callable[[Any, Any, Source], Any]
"""Completes our part, whose fields were copied from Pydantic AI's: `(their part, our part, source)`."""
Write = Callable[[Any, Any, Source], None]
"""Completes Pydantic AI's part, whose fields were copied from ours: `(our part, their part, source)`."""


class Convention(NamedTuple):
    """How the parts of one kind are stored."""

    read: Read
    write: Write = lambda part, their_part, source: None


def read_part(their_part: Any, part: Any, source: Source | None) -> Any:
    """Return our part, with the provider's name and the data of its wire.

    Args:
        their_part: Pydantic AI's part.
        part: Our part, whose fields are those of Pydantic AI's part.
        source: Where the part is from; None if that is not known.
    """
    if source is None:
        return part
    is_own = part.provider_name == their_provider(source.origin.provider)
    name = source.origin.provider if is_own else _our_provider(part.provider_name, source.origin.api)
    if name != part.provider_name:
        part = replace(part, provider_name=name)
    convention = CONVENTIONS.get(source.origin.api, {}).get(type(part))
    return part if convention is None else convention.read(their_part, part, source)


def write_part(part: Any, their_part: Any, source: Source | None) -> None:
    """Complete Pydantic AI's part, whose fields are those of ours. The arguments are those of `read_part`."""
    their_part.provider_name = their_provider(their_part.provider_name)
    convention = CONVENTIONS.get(source.origin.api, {}).get(type(part)) if source is not None else None
    if source is None or convention is None:
        return
    convention.write(part, their_part, source)
    has_data = their_part.provider_details or getattr(their_part, "id", None) or getattr(their_part, "signature", None)
    if has_data and their_part.provider_name is None:
        # Pydantic AI returns such data only to the provider that the part names.
        their_part.provider_name = their_provider(source.origin.provider)


def _add_details(their_part: Any, **details: Any) -> None:
    their_part.provider_details = {**(their_part.provider_details or {}), **details}


def _only(details: Mapping[str, Any] | None, *names: str) -> dict[str, Any] | None:
    """Return these of the details: the others are not for the wire."""
    return {name: details[name] for name in names if details.get(name) is not None} or None if details else None


# --- Anthropic and Bedrock: redacted thoughts have an id, and the blob is the signature ------------------------------

REDACTED_IDS = frozenset({"redacted_thinking", "redacted_content"})
"""Ids of redacted thoughts, of Anthropic and of Bedrock."""


def _read_claude_thinking(their_part: theirs.ThinkingPart, part: ours.ThinkingPart, source: Source) -> Any:
    return replace(part, form="redacted" if part.id in REDACTED_IDS else source.form)


def _write_claude_thinking(id: str) -> Write:
    def write(part: ours.ThinkingPart, their_part: theirs.ThinkingPart, source: Source) -> None:
        if part.form == "redacted" and part.id not in REDACTED_IDS:
            their_part.id = id

    return write


_THEIR_CALLER, _OUR_CALLER = "anthropic_caller", "caller"


def _renamed(details: Mapping[str, Any] | None, old: str, new: str) -> dict[str, Any] | None:
    return {new if name == old else name: value for name, value in details.items()} if details else None


def _read_anthropic_tool(their_part: Any, part: Any, source: Source) -> Any:
    part = replace(part, provider_details=_renamed(part.provider_details, _THEIR_CALLER, _OUR_CALLER))
    return _read_search(their_part, part) if part.tool_name == _SEARCH else part


def _write_anthropic_tool(part: Any, their_part: Any, source: Source) -> None:
    their_part.provider_details = _renamed(their_part.provider_details, _OUR_CALLER, _THEIR_CALLER)
    if part.tool_name == _SEARCH:
        _write_search(part, their_part)


_SEARCH = "tool_search"
_SEARCH_RESULT, _SEARCH_ERROR = "tool_search_tool_search_result", "tool_search_tool_result_error"
_SEARCH_INPUTS = {"regex": "pattern", "bm25": "query"}
"""The strategies of Anthropic's search for tools, and the field of the input of each."""


def _read_search(their_part: Any, part: Any) -> Any:
    """Return a search, or its result, in Anthropic's form: Pydantic AI has one form for all providers."""
    details = dict(part.provider_details or {})
    if NATIVE_NAME_KEY in details:
        return part
    if isinstance(part, ours.BuiltinToolCallPart):
        strategy = str(details.pop("strategy", None) or "bm25")
        args = _args_of(their_part)
        if isinstance(queries := args.get("queries"), list):
            args = {
                _SEARCH_INPUTS.get(strategy, "query"): " ".join(query for query in queries if isinstance(query, str))
            }
        return replace(part, args=args, provider_details={NATIVE_NAME_KEY: f"tool_search_tool_{strategy}", **details})
    code = details.pop("error_code", None)
    details.pop("error_message", None)
    content = part.content
    if code is not None:
        content = {"type": _SEARCH_ERROR, "error_code": code}
    elif isinstance(content, dict) and isinstance(content.get("discovered_tools"), list):
        references = [{"type": "tool_reference", "tool_name": one.get("name")} for one in content["discovered_tools"]]
        content = {"type": _SEARCH_RESULT, "tool_references": references}
    return replace(part, content=content, provider_details=details or None)


def _write_search(part: Any, their_part: Any) -> None:
    """Complete Pydantic AI's part of a search, or of its result, from Anthropic's form."""
    details = dict(their_part.provider_details or {})
    native_name = str(details.pop(NATIVE_NAME_KEY, ""))
    if isinstance(part, ours.BuiltinToolCallPart):
        strategy = native_name.removeprefix("tool_search_tool_")
        query = _args_of(their_part).get(_SEARCH_INPUTS.get(strategy, ""))
        if isinstance(query, str):
            their_part.args = {"queries": [query]}
            details["strategy"] = strategy
    elif isinstance(part.content, dict):
        references = part.content.get("tool_references")
        if part.content.get("type") == _SEARCH_ERROR:
            details["error_code"] = part.content.get("error_code")
            their_part.content = {"discovered_tools": []}
        elif isinstance(references, list):
            their_part.content = {"discovered_tools": [{"name": one.get("tool_name")} for one in references]}
    their_part.provider_details = details or None


# --- Google: signatures of all parts are details ----------------------------------------------------------------------

_GOOGLE_SIGNATURE = "thought_signature"
_THEIR_OWN_ID, _OUR_OWN_ID = "pyd_ai_", "metadata:"
"""Prefixes of ids that the libraries made for searches that Google reports in the metadata. They are not sent back."""


def _read_google(their_part: Any, part: Any, source: Source) -> Any:
    if isinstance(part, ours.ThinkingPart):
        part = replace(part, form=source.form)
    signature = (part.provider_details or {}).get(_GOOGLE_SIGNATURE)
    return replace(part, signature=signature) if isinstance(signature, str) else part


def _write_google(part: Any, their_part: Any, source: Source) -> None:
    if part.signature is not None:
        _add_details(their_part, **{_GOOGLE_SIGNATURE: part.signature})
    if isinstance(their_part, theirs.ThinkingPart):
        # A signature in this field is moved to the part after it.
        their_part.signature = None


def _read_google_tool(their_part: Any, part: Any, source: Source) -> Any:
    is_own = part.tool_call_id.startswith(_THEIR_OWN_ID) and part.tool_name != "code_execution"
    return replace(part, tool_call_id=_OUR_OWN_ID + part.tool_call_id) if is_own else part


def _write_google_tool(part: Any, their_part: Any, source: Source) -> None:
    if part.tool_call_id.startswith(_OUR_OWN_ID):
        their_part.tool_call_id = _THEIR_OWN_ID + part.tool_call_id.removeprefix(_OUR_OWN_ID).removeprefix(
            _THEIR_OWN_ID
        )


# --- Chat Completions: the id of a thought is its field, its details are an entry of `reasoning_details` --------------

_DETAIL_FORMS: dict[str, ours.Form] = {"reasoning.summary": "summary", "reasoning.encrypted": "redacted"}


def _read_chat_thinking(their_part: theirs.ThinkingPart, part: ours.ThinkingPart, source: Source) -> Any:
    details = {name: value for name, value in (part.provider_details or {}).items() if value is not None}
    return replace(
        part,
        id=None if part.id in FIELD_IDS else part.id,
        form=_DETAIL_FORMS.get(str(details.get("type")), "raw"),
        provider_details=details or None,
    )


def _write_chat_thinking(part: ours.ThinkingPart, their_part: theirs.ThinkingPart, source: Source) -> None:
    profile = source.profile
    # Providers with `reasoning_details` have ids of their own there.
    if part.id is None and profile is not None and profile.replay in ("field", "carrier"):
        their_part.id = "content" if profile.replay == "carrier" else profile.replay_field


def _read_chat_call(their_part: theirs.ToolCallPart, part: ours.ToolCallPart, source: Source) -> Any:
    extra = (part.provider_details or {}).get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    signature = google.get(_GOOGLE_SIGNATURE) if isinstance(google, dict) else None
    return replace(part, signature=signature) if isinstance(signature, str) else part


def _write_chat_call(part: ours.ToolCallPart, their_part: theirs.ToolCallPart, source: Source) -> None:
    if part.signature is not None:
        _add_details(their_part, extra_content={"google": {_GOOGLE_SIGNATURE: part.signature}})


# --- Responses: thoughts of one item have its id; its raw text and citations are details ------------------------------


def _read_item_thinking(their_part: theirs.ThinkingPart, part: ours.ThinkingPart, source: Source) -> Any:
    raw = (part.provider_details or {}).get("raw_content")
    texts = [text for text in raw if isinstance(text, str)] if isinstance(raw, list) else []
    id = None if part.id in FIELD_IDS and not (part.signature or texts) else part.id
    if not texts:
        return replace(part, id=id, form="summary", provider_details=None)
    if len(texts) == 1 and part.content in ("", *texts):
        return replace(part, id=id, content=texts[0], provider_details=None)
    # One part cannot hold a summary and raw text, or several raw texts, so they are fields of the item.
    native = {"native": {"content": [{"type": "reasoning_text", "text": text} for text in texts]}}
    is_raw = part.content in ("", "\n\n".join(texts))
    content, form = ("\n\n".join(texts), "raw") if is_raw else (part.content, "summary")
    return replace(part, id=id, content=content, form=form, provider_details=None if is_raw and not id else native)


def _write_item_thinking(part: ours.ThinkingPart, their_part: theirs.ThinkingPart, source: Source) -> None:
    native = (part.provider_details or {}).get("native")
    entries = native.get("content") if isinstance(native, dict) else None
    texts = [entry["text"] for entry in entries if "text" in entry] if isinstance(entries, list) else []
    if part.form == "raw" and part.content and part.signature is None:
        # Servers whose reasoning can be read take it back as it came.
        their_part.content, texts = "", texts or [part.content]
    if texts:
        _add_details(their_part, raw_content=texts)


def _read_item_text(their_part: theirs.TextPart, part: ours.TextPart, source: Source) -> Any:
    details = part.provider_details or {}
    citations = details.get("annotations") or details.get("citations")
    notes = [note for note in citations if isinstance(note, dict)] if isinstance(citations, list) else []
    return replace(part, annotations=notes or part.annotations, provider_details=_only(details, "phase"))


def _write_item_text(part: ours.TextPart, their_part: theirs.TextPart, source: Source) -> None:
    if part.annotations:
        _add_details(their_part, citations=part.annotations)


def _read_item_call(their_part: theirs.ToolCallPart, part: ours.ToolCallPart, source: Source) -> Any:
    _, item_id = split_call_id(their_part.tool_call_id)
    details = _only(part.provider_details, "namespace", "type")
    return replace(part, id=item_id or part.id, provider_details=details)


def _read_item_compaction(their_part: theirs.CompactionPart, part: ours.CompactionPart, source: Source) -> Any:
    blob = (part.provider_details or {}).get("encrypted_content")
    return replace(part, signature=blob, provider_details=None) if isinstance(blob, str) else part


def _write_item_compaction(part: ours.CompactionPart, their_part: theirs.CompactionPart, source: Source) -> None:
    if part.signature is not None:
        _add_details(their_part, encrypted_content=part.signature)


_MCP = "mcp_server:"


def _native_item(tool: str, id: str, args: dict[str, Any]) -> dict[str, Any] | None:
    """Return the item of a call of one of OpenAI's own tools; None if it cannot be sent back."""
    match tool:
        case "web_search" if args:
            action = {name: value for name, value in args.items() if value is not None}
            return {"type": "web_search_call", "id": id, "status": "completed", "action": action}
        case "file_search" if args:
            return {"type": "file_search_call", "id": id, "status": "completed", "queries": args.get("queries", [])}
        case "code_execution" if args.get("container_id"):
            code = {name: args.get(name) for name in ("code", "container_id")}
            return {"type": "code_interpreter_call", "id": id, "status": "completed", **code}
        case "image_generation":
            return {"type": "image_generation_call", "id": id, "status": "completed"}
    if tool.startswith(_MCP):
        label = tool.removeprefix(_MCP)
        if args.get("action") == "list_tools":
            return {"type": "mcp_list_tools", "id": id, "server_label": label, "tools": []}
        if args.get("action") == "call_tool" and args.get("tool_name"):
            arguments = args.get("tool_args", {})
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, separators=(",", ":"))
            call = {"name": args["tool_name"], "arguments": text, "error": None, "output": None}
            return {"type": "mcp_call", "id": id, "server_label": label, **call}
    return None


def _read_item_tool(their_part: theirs.NativeToolCallPart, part: ours.BuiltinToolCallPart, source: Source) -> Any:
    if isinstance((part.provider_details or {}).get("native"), dict):
        return part
    id = part.id or part.tool_call_id
    native = _native_item(part.tool_name, id, _args_of(their_part))
    return part if native is None else replace(part, id=id, provider_details={"native": native})


def _write_item_tool(part: ours.BuiltinToolCallPart, their_part: theirs.NativeToolCallPart, source: Source) -> None:
    their_part.tool_call_id = part.tool_call_id or part.id or ""
    args = _args_of(their_part)
    if isinstance(args.get("tool_args"), str):
        with suppress(ValueError):
            their_part.args = {**args, "tool_args": json.loads(args["tool_args"])}


def _args_of(their_part: Any) -> dict[str, Any]:
    try:
        args: dict[str, Any] = their_part.args_as_dict()
        return args
    except (ValueError, AssertionError):
        return {}


# --- the table -----------------------------------------------------------------------------------------------------

_GOOGLE_PART = Convention(_read_google, _write_google)
_GOOGLE_TOOL = Convention(_read_google_tool, _write_google_tool)
_ANTHROPIC_TOOL = Convention(_read_anthropic_tool, _write_anthropic_tool)

CONVENTIONS: dict[str, dict[type, Convention]] = {
    "anthropic": {
        ours.ThinkingPart: Convention(_read_claude_thinking, _write_claude_thinking("redacted_thinking")),
        ours.BuiltinToolCallPart: _ANTHROPIC_TOOL,
        ours.BuiltinToolReturnPart: _ANTHROPIC_TOOL,
    },
    "bedrock": {ours.ThinkingPart: Convention(_read_claude_thinking, _write_claude_thinking("redacted_content"))},
    "google": {
        ours.ThinkingPart: _GOOGLE_PART,
        ours.TextPart: _GOOGLE_PART,
        ours.ToolCallPart: _GOOGLE_PART,
        ours.FilePart: _GOOGLE_PART,
        ours.BuiltinToolCallPart: _GOOGLE_TOOL,
        ours.BuiltinToolReturnPart: _GOOGLE_TOOL,
    },
    CHAT: {
        ours.ThinkingPart: Convention(_read_chat_thinking, _write_chat_thinking),
        ours.ToolCallPart: Convention(_read_chat_call, _write_chat_call),
    },
    RESPONSES: {
        ours.ThinkingPart: Convention(_read_item_thinking, _write_item_thinking),
        ours.TextPart: Convention(_read_item_text, _write_item_text),
        ours.ToolCallPart: Convention(_read_item_call),
        ours.BuiltinToolCallPart: Convention(_read_item_tool, _write_item_tool),
        ours.CompactionPart: Convention(_read_item_compaction, _write_item_compaction),
    },
}
"""The conventions of each wire (`Origin.api`), by our kind of part. What is not here is copied as it is."""


# --- what is not of one part alone ---------------------------------------------------------------------------------

_COMBINED_CALL_ID = re.compile(r"(call_[^|]+)\|(fc_.+)")


def split_call_id(id: str) -> tuple[str, str | None]:
    """Return the id of a call, and that of its item: before its parts had ids, Pydantic AI stored both in one text."""
    match = _COMBINED_CALL_ID.fullmatch(id)
    return (match[1], match[2]) if match else (id, None)


def move_thought_signatures(
    their_parts: Sequence[theirs.ModelResponsePart], parts: list[ours.ModelResponsePart | None]
) -> None:
    """Move Google's signatures from thoughts to the parts after them, which they are of.

    Older releases of Pydantic AI stored them in the thought's own field.
    """
    pending: str | None = None
    for index, (their_part, part) in enumerate(zip(their_parts, parts, strict=True)):
        if pending is not None and part is not None and getattr(part, "signature", "") is None:
            parts[index] = part = replace(part, signature=pending)
        pending = None
        if isinstance(their_part, theirs.ThinkingPart) and isinstance(part, ours.ThinkingPart):
            details = their_part.provider_details or {}
            if their_part.signature is not None and _GOOGLE_SIGNATURE not in details:
                pending = their_part.signature
                parts[index] = replace(part, signature=None)


def move_item_signatures(parts: Sequence[theirs.ModelResponsePart | None], origin: ours.Origin | None) -> None:
    """Move the signature of each item of the Responses API to its first thought, which is where it is read."""
    if origin is None or origin.api != RESPONSES:
        return
    first: dict[str, theirs.ThinkingPart] = {}
    for part in parts:
        if isinstance(part, theirs.ThinkingPart) and part.id is not None:
            head = first.setdefault(part.id, part)
            if head is not part and part.signature is not None:
                head.signature, part.signature = part.signature, None
