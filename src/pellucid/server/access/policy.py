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

from ...view import Reader, View
from .errors import forbidden

Most = Annotated[int, Meta(ge=1, le=2**53)]


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
    requests_per_minute: Most | None = None
    tokens_per_minute: Most | None = None
    """Input and output together."""
    reasoning_tokens_per_minute: Most | None = None
    streams: Most | None = None
    """Responses that may be under way at once."""
    max_body_bytes: Most | None = None
    max_output_tokens: Most | None = None

    @property
    def reader(self) -> Reader:
        """The most that may be seen; a request asks it for less (`Reader.asking`)."""
        return Reader(self.view, self.counts)

    def allows_model(self, name: str) -> bool:
        return _named(name, self.models)

    def allows_tool(self, name: str) -> bool:
        return _named(name, self.tools)

    def check_model(self, name: str) -> None:
        """Raises `AccessError` (forbidden). To be asked before the model is looked up: nobody learns what there is."""
        if not self.allows_model(name):
            may = ", ".join(self.models or []) or "no model at all"
            raise forbidden(f"model: you may not use {name!r}; you may use: {may}", "model_not_allowed", "model")

    def check_tool(self, name: str) -> None:
        """Raises `AccessError` (forbidden)."""
        if not self.allows_tool(name):
            may = ", ".join(self.tools or []) or "none of the server's tools"
            raise forbidden(f"tools: you may not use {name!r}; you may use: {may}", "tool_not_allowed", "tools")

    def may_store(self, asked: bool | None) -> bool:
        """Whether to keep the response, of which the request says `asked`. Raises `AccessError` (forbidden)."""
        if asked and not self.store:
            raise forbidden("store: you may not have responses kept; send store: false", "store_not_allowed", "store")
        return self.store if asked is None else asked

    def output_tokens(self, asked: int | None) -> int | None:
        """How many tokens the model may write. Raises `AccessError` (forbidden) when more are asked for."""
        most = self.max_output_tokens
        if most is not None and asked is not None and asked > most:
            raise forbidden(
                f"max_output_tokens: you may ask for at most {most}, not {asked}",
                "max_output_tokens_not_allowed",
                "max_output_tokens",
            )
        return most if asked is None else asked

    def body_bytes(self, limit: int) -> int:
        """The largest body taken, where the server's own limit is `limit`."""
        return limit if self.max_body_bytes is None else min(limit, self.max_body_bytes)


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


def visible(principal: Principal, names: Iterable[str]) -> list[str]:
    """The models of a list that this reader may know of."""
    return [name for name in names if principal.policy.allows_model(name)]


def write_policy(policy: Policy) -> bytes:
    return msgspec.json.encode(policy)


_decoder = msgspec.json.Decoder(Policy)


def read_policy(data: bytes) -> Policy:
    """Raises `msgspec.DecodeError` (or its `ValidationError`) for what this version cannot keep to."""
    return _decoder.decode(data)


def _named(name: str, globs: list[str] | None) -> bool:
    return globs is None or any(fnmatchcase(name, glob) for glob in globs)
