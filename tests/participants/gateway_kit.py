"""A gateway with the space `review`, whose participants are in `CAPABILITIES`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pellucid.server.config import check_config
from tests.scripted.gateway import Served, serve

TALK_CAPABILITIES = ["chat", "chat/*", "mcp/*", "reasoning/*", "capability/grant-ack"]
CAPABILITIES: dict[str, list[Any]] = {
    "ada": TALK_CAPABILITIES,
    "bob": TALK_CAPABILITIES,
    "cy": TALK_CAPABILITIES,
    "dan": TALK_CAPABILITIES,
    "boss": ["*"],
    "novice": ["chat", "reasoning/*", "mcp/proposal", {"kind": "mcp/request", "payload": {"method": "tools/list"}}],
}


def token(who: str) -> str:
    return f"the-token-of-{who}-in-review"


@contextmanager
def review_gateway(folder: Path, store: Path | None = None, **settings: Any) -> Iterator[Served]:
    participants = {}
    for who, may in CAPABILITIES.items():
        file = folder / f"{who}.token"
        file.write_text(token(who))
        participants[who] = {"token_file": str(file), "capabilities": may}
    table: dict[str, Any] = {
        "providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}},
        "spaces": {"review": {**settings, "participants": participants}},
    }
    if store is not None:
        table["storage"] = {"url": f"sqlite:///{store}"}
    with serve(check_config(table, {})) as gateway:
        yield gateway
