"""What the product offers, as it says itself, and what of it the cases reach.

Operations come from the gateway's OpenAPI document, commands from the help texts of the command line. Each must be used
with success by some case, or stand in `EXEMPT` with the reason why not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

EXEMPT: dict[str, str] = {
    "GET /api/session/oidc": "signing in needs an OpenID provider over https; tests/access has one",
    "GET /api/session/oidc/callback": "as above",
    "GET /api/status": "it tells times; tests/server/test_status.py",
    "POST /api/status/runs/{id}/cancel": "as above",
    "status cancel": "as above; tests/cli/test_status_command.py",
    "GET /api/usage": "it tells days; tests/server/test_spend.py",
    "usage": "as above; tests/cli/test_usage_command.py",
    "GET /api/connections": "changes the models of the gateway; tests/server/test_connections.py",
    "PUT /api/connections/{name}": "as above",
    "DELETE /api/connections/{name}": "as above",
    "GET /api/providers": "as above",
    "POST /api/providers/test": "as above",
    "PUT /api/models/default": "as above",
    "POST /spaces/{name}/links": "its link is different each time; tests/spaces_server/test_spaces_links.py",
    "POST /spaces/{name}/invitation": "as above",
    "POST /spaces/{name}/join": "as above",
    "POST /api/spaces": "its token is different each time; tests/spaces_server/test_spaces_links.py",
    "POST /api/spaces/{name}/participants": "as above",
    "DELETE /api/spaces/{name}": "tests/spaces_server/test_spaces_links.py",
    "GET /api/spaces": "as above",
    "check": "reads streams of other servers; tests/cli/test_check.py",
    "WEBSOCKET /v1/responses": "the group `socket` opens it with a connection of its own",
    "GET /api/events": "it has no end; tests/chat_server/test_chat_feed.py",
    "GET /api/conversations/{id}/export": "the older version has none; tests/chat_server/test_chat_sharing.py",
    "POST /api/conversations/{id}/shares": "as above",
    "GET /api/conversations/{id}/shares": "as above",
    "DELETE /api/conversations/{id}/shares/{share_id}": "as above",
    "GET /api/shared/{token}": "as above",
    "GET /api/shared/{token}/attachments/{attachment_id}": "as above",
    "PUT /api/chat/{event_id}/feedback": "as above",
    "GET /api/feedback": "as above",
    "serve": "every gateway of the comparison is one; it has no end of its own",
    "models pull": "fetches a model's weights from the network",
}
"""Operations and commands that no case uses with success."""


class Surface:
    """The requests and commands of one capture."""

    def __init__(self) -> None:
        self.requests: set[tuple[str, str]] = set()
        """Method and path (without the query) of each request that succeeded."""
        self.commands: dict[tuple[str, ...], bool] = {}
        """The words of each command, and whether it is a group of commands."""
        self._used: set[tuple[str, ...]] = set()

    def add_request(self, method: str, path: str, status: int) -> None:
        if status < 400:
            self.requests.add((method, path.partition("?")[0]))

    def add_command(self, args: Iterable[str], status: int) -> None:
        """An invocation: what stands before its options, if it ended well."""
        words = tuple(args)
        if status == 0 and "--help" not in words:
            self._used |= {words[:n] for n in range(1, 3)}

    def missing_operations(self, document: dict[str, Any]) -> list[str]:
        """The operations of an OpenAPI document that no request reached, as "GET /path"."""
        missing = []
        for template, operations in document["paths"].items():
            path = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)))
            for name in operations:
                method = "WEBSOCKET" if name.startswith("x-") else name.upper()
                if method not in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "WEBSOCKET"):
                    continue
                if not any(method == one and path.fullmatch(other) for one, other in self.requests):
                    missing.append(f"{method} {template}")
        return missing

    def missing_commands(self) -> list[str]:
        return [" ".join(path) for path, group in self.commands.items() if not group and path not in self._used]


SURFACE = Surface()
"""Of this process, which makes one capture."""


def unexplained(missing: Iterable[str]) -> list[str]:
    return sorted(name for name in missing if name not in EXEMPT)
