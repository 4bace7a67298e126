"""Policies: what an admitted principal may do, as data.

* A policy is stored as JSON with its key. A field that this version does not know is a rule that it cannot apply, so
  such a policy admits no request.
* None means "no limit". A limit is never applied by silently cutting: what exceeds it is refused with a message, or
  ends as incomplete where the protocol has that status.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256
from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import RequestError
from ...protocols.openresponses import Dialect
from ...view import View, Viewer
from .errors import forbidden

Limit = Annotated[int, Meta(ge=1, le=2**53)]
Amount = Annotated[float, Meta(gt=0, le=1_000_000_000)]
"""An amount of the currency."""


COUNTERS = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "reasoning_tokens": "reasoning_tokens_per_minute",
}
"""The counters of the relay, and the fields of `Policy` that limit them."""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """What a principal may do. The default is everything but `operator`."""

    models: list[str] | None = None
    """Globs of public model names (`qwen*`). None: all; an empty list: none."""
    view: View = "raw"
    """The fullest view of reasoning that is allowed."""
    counts: bool = True
    """Whether numbers of reasoning tokens are shown."""
    reasoning_events: Dialect | None = None
    """Whose event names are used unless the request chooses. None: the server's default."""
    store: bool = True
    """Whether data may be stored."""
    retention_seconds: Annotated[float, Meta(gt=0)] | None = None
    """How long data is stored. None: as long as the server's configuration allows."""
    tools: list[str] | None = None
    """Globs of the server's tools that may be used. None: all."""
    requests_per_minute: Limit | None = None
    """Requests of each key. None: no limit, here and below."""
    tokens_per_minute: Limit | None = None
    """Input and output tokens together."""
    reasoning_tokens_per_minute: Limit | None = None
    """Output tokens that are reasoning."""
    streams: Limit | None = None
    """Maximum of concurrent responses."""
    max_body_bytes: Limit | None = None
    """Maximum size of a request's body, below the server's."""
    max_output_tokens: Limit | None = None
    """Maximum of the output tokens that a request may ask for."""
    retry_thoughts: bool | None = None
    """Whether another deployment is called if one fails after thoughts alone. None: as the model is configured."""
    cost_per_day: Amount | None = None
    """In the currency of `[spend]`. Days and months are those of UTC."""
    cost_per_month: Amount | None = None
    """The same for a month."""
    share: bool = True
    """Whether chats may be shared by links, where the gateway allows it."""
    operator: bool = False
    """Whether what concerns the whole gateway, such as its metrics, may be read, and any run be cancelled."""

    @property
    def viewer(self) -> Viewer:
        """The viewer with everything that the policy allows; a request can ask for less (`Viewer.for_request`)."""
        return Viewer(self.view, self.counts)

    @cached_property
    def rate_limits(self) -> dict[str, float]:
        """The limits for a minute, by counter."""
        values = {counter: getattr(self, field) for counter, field in COUNTERS.items()}
        return {counter: float(value) for counter, value in values.items() if value is not None}

    @cached_property
    def token_limits(self) -> dict[str, float]:
        """Those that count tokens."""
        return {counter: limit for counter, limit in self.rate_limits.items() if counter != "requests"}

    @property
    def has_limits(self) -> bool:
        """Whether runs are limited in any way that the relay counts."""
        return self.streams is not None or bool(self.rate_limits)

    @property
    def has_budget(self) -> bool:
        """Whether it limits costs."""
        return self.cost_per_day is not None or self.cost_per_month is not None

    def allows_model(self, name: str) -> bool:
        return _matches_any(name, self.models)

    def allows_tool(self, name: str) -> bool:
        return _matches_any(name, self.tools)

    def check_model(self, name: str) -> None:
        """Check that the model may be used.

        It is called before the model is looked up, so that the error does not reveal which models exist.

        Raises:
            AccessError: Forbidden.
        """
        if not self.allows_model(name):
            allowed = ", ".join(self.models or []) or "no model at all"
            raise forbidden(f"model: you may not use {name!r}; you may use: {allowed}", "model_not_allowed", "model")

    def check_tool(self, name: str) -> None:
        """Check that a tool of the server may be used. Raises `AccessError` (forbidden)."""
        if not self.allows_tool(name):
            allowed = ", ".join(self.tools or []) or "none of the server's tools"
            raise forbidden(f"tools: you may not use {name!r}; you may use: {allowed}", "tool_not_allowed", "tools")

    def check_operator(self) -> None:
        """Check that the routes for operators may be used. Raises `AccessError` (forbidden)."""
        if not self.operator:
            raise forbidden(
                "this route is for operators of the gateway, and your key is not an operator's; an operator can make "
                "one with `pellucid keys create --operator`, or set operator = true in the policy",
                "operator_only",
            )

    def may_store(self, requested: bool | None) -> bool:
        """Return whether to store the response. `requested` is the request's `store`, None if it has none.

        Raises:
            AccessError: Forbidden if it must be stored and may not.
        """
        if requested and not self.store:
            raise forbidden(
                "store: your key does not allow stored responses; send store: false", "store_not_allowed", "store"
            )
        return self.store if requested is None else requested

    def output_token_limit(self, requested: int | None) -> int | None:
        """Return the maximum of tokens that the model may write. `requested` is the request's own limit.

        Raises:
            AccessError: Forbidden if the request asks for more than is allowed.
        """
        limit = self.max_output_tokens
        if limit is not None and requested is not None and requested > limit:
            raise forbidden(
                f"max_output_tokens: you may ask for at most {limit}, not {requested}",
                "max_output_tokens_not_allowed",
                "max_output_tokens",
            )
        return limit if requested is None else requested

    def body_limit(self, server_limit: int) -> int:
        """Return the maximum size of a request's body in bytes. `server_limit` is the server's own."""
        return server_limit if self.max_body_bytes is None else min(server_limit, self.max_body_bytes)


ENV_KEY_ID = "env"
"""The id of the key in the environment. The ids of others begin with `key_`."""


class Principal(msgspec.Struct, frozen=True):
    """The authenticated caller. `owner` is the tenant that owns its responses, conversations and seals."""

    owner: str
    key_id: str | None = None
    name: str = ""
    policy: Policy = Policy()
    session_id: str | None = None
    """The browser session, if a cookie came instead of a key."""

    @property
    def bucket(self) -> str:
        """The name under which limits are counted: of the key, or else of the owner."""
        return f"key:{self.key_id}" if self.key_id is not None else f"owner:{self.owner}"

    @property
    def log_name(self) -> str:
        """The name in log lines about what an operator did: of the key, or else of the owner."""
        return self.key_id or self.owner or "an operator"

    @property
    def owner_mark(self) -> str:
        """A mark of the owner, by which a page does not mix what it shows and keeps of several owners."""
        return sha256(f"owner of drafts: {self.owner}".encode()).hexdigest()[:16]

    def check_owner_mark(self, mark: str | None) -> None:
        """Check that a page which shows the data of the owner with this mark is served by the same owner's session.

        All tabs of a browser have the same cookie, so a person who signs in in one of them also changes who sends the
        requests of the others.

        Raises:
            RequestError: It is the mark of another owner.
        """
        if mark is not None and mark != self.owner_mark:
            raise RequestError(
                "this page shows the chats of somebody else: another owner has signed in in this browser meanwhile; "
                "load the page again",
                kind="conflict",
                code="another_owner",
            )


def visible_models(principal: Principal, names: Iterable[str]) -> list[str]:
    """Return those of the names whose models the principal may use."""
    return [name for name in names if principal.policy.allows_model(name)]


def write_policy(policy: Policy) -> bytes:
    return msgspec.json.encode(policy)


_policy_decoder = msgspec.json.Decoder(Policy)


def read_policy(data: bytes) -> Policy:
    """Decode a policy. Raises `msgspec.DecodeError` (or `ValidationError`) for one that this version cannot apply."""
    return _policy_decoder.decode(data)


def _matches_any(name: str, globs: list[str] | None) -> bool:
    return globs is None or any(fnmatchcase(name, glob) for glob in globs)
