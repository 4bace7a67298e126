"""What one who was let in may do, as data.

* A policy is stored with its key as JSON, whole. A field that this version does not know is a rule it cannot keep, so
  such a policy admits nobody.
* None is "no limit" everywhere. A limit is never kept by a silent cut: what goes beyond it is refused with a sentence,
  or ends as incomplete where the protocol has a word for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ...view import View, Viewer
from .errors import forbidden

Limit = Annotated[int, Meta(ge=1, le=2**53)]


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What may be done. The default is everything."""

    models: list[str] | None = None
    """Public names, as globs (`qwen*`). None: all; an empty list: none."""
    view: View = "raw"
    """The most that may be seen of the reasoning."""
    counts: bool = True
    """Whether reasoning tokens are told."""
    reasoning_events: Literal["openresponses", "openai"] | None = None
    """Whose event names are used unless a request says otherwise. None: the server's default."""
    store: bool = True
    """Whether anything may be kept."""
    retention_seconds: Annotated[float, Meta(gt=0)] | None = None
    """How long what is kept is kept. None: as long as the server says."""
    tools: list[str] | None = None
    """The server's tools that may be used, as globs. None: all."""
    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    """Input and output together."""
    reasoning_tokens_per_minute: Limit | None = None
    streams: Limit | None = None
    """Responses that may be under way at once."""
    max_body_bytes: Limit | None = None
    max_output_tokens: Limit | None = None

    @property
    def viewer(self) -> Viewer:
        """The most that may be seen; a request asks it for less (`Reader.for_request`)."""
        return Viewer(self.view, self.counts)

    def allows_model(self, name: str) -> bool:
        return _matches_any(name, self.models)

    def allows_tool(self, name: str) -> bool:
        return _matches_any(name, self.tools)

    def check_model(self, name: str) -> None:
        """Raises `AccessError` (forbidden). To be asked before the model is looked up: nobody learns what there is."""
        if not self.allows_model(name):
            allowed = ", ".join(self.models or []) or "no model at all"
            raise forbidden(f"model: you may not use {name!r}; you may use: {allowed}", "model_not_allowed", "model")

    def check_tool(self, name: str) -> None:
        """Raises `AccessError` (forbidden)."""
        if not self.allows_tool(name):
            allowed = ", ".join(self.tools or []) or "none of the server's tools"
            raise forbidden(f"tools: you may not use {name!r}; you may use: {allowed}", "tool_not_allowed", "tools")

    def may_store(self, requested: bool | None) -> bool:
        """Whether to keep the response, of which the request says `asked`. Raises `AccessError` (forbidden)."""
        if requested and not self.store:
            raise forbidden("store: you may not have responses kept; send store: false", "store_not_allowed", "store")
        return self.store if requested is None else requested

    def output_token_limit(self, requested: int | None) -> int | None:
        """How many tokens the model may write. Raises `AccessError` (forbidden) when more are asked for."""
        limit = self.max_output_tokens
        if limit is not None and requested is not None and requested > limit:
            raise forbidden(
                f"max_output_tokens: you may ask for at most {limit}, not {requested}",
                "max_output_tokens_not_allowed",
                "max_output_tokens",
            )
        return limit if requested is None else requested

    def body_limit(self, server_limit: int) -> int:
        """The largest body taken, where the server's own limit is `limit`."""
        return server_limit if self.max_body_bytes is None else min(server_limit, self.max_body_bytes)


class Principal(msgspec.Struct, frozen=True):
    """Who is asking. `owner` is the tenant whose responses, conversations and seals these are."""

    owner: str
    key_id: str | None = None
    name: str = ""
    policy: Policy = Policy()

    @property
    def bucket(self) -> str:
        """What the limits are counted on: the key, or else the owner."""
        return f"key:{self.key_id}" if self.key_id is not None else f"owner:{self.owner}"


def visible_models(principal: Principal, names: Iterable[str]) -> list[str]:
    """The models of a list that this reader may know of."""
    return [name for name in names if principal.policy.allows_model(name)]


def write_policy(policy: Policy) -> bytes:
    return msgspec.json.encode(policy)


_policy_decoder = msgspec.json.Decoder(Policy)


def read_policy(data: bytes) -> Policy:
    """Raises `msgspec.DecodeError` (or its `ValidationError`) for what this version cannot keep to."""
    return _policy_decoder.decode(data)


def _matches_any(name: str, globs: list[str] | None) -> bool:
    return globs is None or any(fnmatchcase(name, glob) for glob in globs)
