"""Print functions, methods, properties and classes of `src` that only tests use: they are dead code.

    python tools/unused.py

A name of the public interface, or one that a library calls, is a row of `CALLED_FROM_OUTSIDE`. The exit status is 1 if
another name is unused, or if a name in `CALLED_FROM_OUTSIDE` is used or gone.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vulture import Vulture  # type: ignore[import-untyped]

HERE = Path(__file__).parents[1]

CALLED_FROM_OUTSIDE = {
    "the library's interface: `Agent`, its runs and results": (
        *("all_messages_json", "get_output", "is_call_tools_node", "is_end_node", "is_model_request_node"),
        *("is_user_prompt_node", "new_messages_json", "output_validator", "run_stream", "run_sync"),
        *("stream_output", "stream_text"),
    ),
    "the library's interface: tools and toolsets": (
        *("approval_required", "from_schema", "last_attempt", "prefixed", "renamed", "tool_def"),
    ),
    "the library's interface: models for tests": ("FunctionModel",),
    "the library's interface: `ModelMessagesTypeAdapter`": ("dump_json",),
    "the library's interface: a participant of a space": ("fulfil", "listening", "observation"),
    "the library's interface: agents of other frameworks in a space": ("langgraph_agent", "pydantic_ai_agent"),
    "the library's interface: settings of each provider's models": (
        *("AnthropicModelSettings", "BedrockModelSettings", "CohereModelSettings", "GoogleModelSettings"),
        *("GroqModelSettings", "HuggingFaceModelSettings", "MistralModelSettings", "OllamaModelSettings"),
        *("OpenAIResponsesModelSettings",),
    ),
    "the library's interface: a finished response as a stream of events": ("response_events",),
    "what a pool's owner may watch": ("idle_connections",),
    "Python (PEP 562)": ("__getattr__",),
    "click, asyncio, httptools, httpx, uvicorn, joserfc": (
        *("capture_signals", "eof_received", "format_commands", "get_alg", "get_command", "handle_async_request"),
        *("list_commands", "on_header", "on_status", "send_400_response"),
    ),
    "Pydantic AI": ("_get_event_iterator", "_provider_model_profile", "close_stream", "provider_url"),
}
DECORATORS = ["@*.command", "@*.group", "@click.command", "@click.group", "@compiles"]
KINDS = ("class", "function", "method", "property")


def main() -> int:
    finder = Vulture(ignore_decorators=DECORATORS)
    finder.scavenge([str(HERE / "src")], exclude=["*/migrations/*"])
    unused_names = [item for item in finder.get_unused_code(min_confidence=60) if item.typ in KINDS]
    allowed = {name for names in CALLED_FROM_OUTSIDE.values() for name in names}
    unused = [item for item in unused_names if item.name not in allowed]
    for item in unused:
        print(f"{item.filename}:{item.first_lineno}: nothing in src uses the {item.typ} {item.name}")
    needless = sorted(allowed - {item.name for item in unused_names})
    for name in needless:
        print(f"{name} is used, or is gone: take it out of CALLED_FROM_OUTSIDE")
    return 1 if unused or needless else 0


if __name__ == "__main__":
    sys.exit(main())
