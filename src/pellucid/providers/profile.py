"""What a dialect is: a row of values and of names from closed sets of small strategies.

There is no `if provider ==` anywhere else: wires read the row. The rows are in `profiles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One dialect."""

    name: str = ""
    title: str = ""
    wire: str = "openai_chat"
    """The name of a row of `wires.WIRES`."""

    # Where it is, and who we are there.
    base_url: str = ""
    path: str = "/chat/completions"
    base_url_env: tuple[str, ...] = ()
    """The environment variables that usually name another address; only the library looks at them."""
    base_url_env_path: str = ""
    """What the provider's own clients add to an address from there."""
    api_key_env: tuple[str, ...] = ()
    auth: Literal["bearer", "api-key", "x-api-key", "x-goog-api-key", "aws", "optional", "none"] = "bearer"
    """`bearer`: `Authorization: Bearer KEY`; `optional`: the same, if there is a key; `aws`: the same, and without a
    key the request is signed; `…-key`: a header of that name."""
    path_whole: str = ""
    """The path for an answer in one piece, where it is not `path`. Both may hold `{model}` (see `path_of`)."""
    model_in: Literal["body", "path"] = "body"
    """What says which model is meant; with `path`, the body has the API's version and betas in the model's place."""
    stream_in: Literal["body", "path"] = "body"
    """What says whether to stream, on wires where it can be either."""
    api_version: str = ""
    betas: tuple[str, ...] = ()
    """Features that are asked for by name, on wires that have such names."""

    # Reading.
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_text")
    """Where reasoning text may stand beside the content; the first that holds text counts."""
    merge: Literal["incremental", "cumulative", "detect"] = "incremental"
    """Whether a streamed reasoning fragment is the next piece, or everything so far."""
    repeats: Literal["keep", "drop"] = "keep"
    """Whether a reasoning delta equal to the one before it is a second copy."""
    tags: str | tuple[str, str] | None = None
    """The family of markers (see `pellucid.tags`) that may stand in the content, or `harmony`, or a pair of markers
    (`["<reflect>", "</reflect>"]`); None: content is content."""
    implicit_start: Literal["never", "always", "auto"] | None = None
    """Whether an answer may begin inside reasoning, without the opening marker; None: as the family says."""
    reasoning_tokens: Literal["inside", "outside", "by_total"] = "inside"
    """Whether the completion count includes reasoning; `by_total`: whichever agrees with the reported total."""
    item_end: Literal["told", "next"] = "told"
    """When a reasoning item is over: when the wire tells its end, or, where that comes only after everything else,
    with the next item."""
    server_tools: tuple[str, ...] = ()
    """Types of calls that the provider answers itself, although they look like calls for us to answer."""
    form: Literal["raw", "summary"] = "raw"
    """What readable reasoning is, where the wire itself does not tell."""

    # Asking.
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: Literal[
        "effort", "thinking_type", "enable_thinking", "reasoning_object", "reasoning_switch", "template", "none"
    ] = "none"
    """How to say how much to think:
    `effort` `reasoning_effort: low`; `thinking_type` `thinking: {type: enabled}` and `reasoning_effort`;
    `enable_thinking` `enable_thinking: true`; `reasoning_object` `reasoning: {effort: low}`; `reasoning_switch`
    `reasoning: {enabled: true}` and `reasoning_effort`; `template` `chat_template_kwargs: {enable_thinking: true}`
    and `reasoning_effort`; `none`: it cannot be said."""
    effort_field: str = "reasoning_effort"
    """Where `effort` puts the level."""
    efforts: tuple[str, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    """The levels this provider knows. Others are rounded to the nearest; where there are none, none is sent."""
    effort_on: str = ""
    """The level that stands for the model's own amount, where a model that is asked for none does not think; empty:
    to ask for no level is enough."""
    thinking_on: str = "enabled"
    """What `thinking_type` calls it to think."""
    template_switches: tuple[str, ...] = ("enable_thinking",)
    """What chat templates call the switch; a template ignores the names that it does not know."""
    budget_field: str = ""
    """Where a budget of thinking tokens goes; empty: it cannot be said. (`reasoning_object` has its own place.)"""
    thinking_mode: Literal["none", "budget", "adaptive"] = "none"
    """How Claude is told to think: not at all; by a budget of tokens; as it sees fit, by `efforts`."""
    thinking_off: Literal["disabled", "between_tools", "least"] = "disabled"
    """How Claude is told not to think; `least`: it cannot be, and thinks as little as it can."""
    thinking_display: str = ""
    """What to ask for where reasoning is not shown unasked (`summarized`)."""
    budgets: dict[str, int] = {}
    """The tokens of thought that a level stands for; `on` is the model's own amount."""
    max_tokens_default: int = 0
    """What to send on wires that demand a limit, where none was asked for."""
    sampling: Literal["free", "without_thinking", "told_off", "never"] = "free"
    """When `temperature`, `top_p` and what else bends the choice of tokens are sent, where some models refuse them;
    `told_off`: to a model that thinks unasked, only when it is told not to."""
    forced_calls: Literal["free", "without_thinking", "never"] = "free"
    """When a model can be made to call a tool."""
    knows: tuple[str, ...] = ()
    """Which settings beyond the common ones it takes: `top_k`, `verbosity`, `service_tier`, `user`, `metadata`,
    `cache_key`. Many servers refuse a field that they do not know."""
    own: dict[str, str] = {}
    """Settings that only this provider has, and where in the body they go (`a.b`: inside an object). They are sent as
    they are, and win over the unified ones. Where there are none, a wire takes those of its own maker."""
    media: Literal["by_url", "inline"] = "by_url"
    """Whether it fetches images and files that a request names; `inline`: they must be in the request."""
    system_role: Literal["system", "developer"] = "system"
    stream_usage: bool = True
    """Whether `stream_options: {include_usage: true}` may be sent."""
    store: bool | None = None
    """Whether to ask that answers be kept at the provider; None: it is not said."""
    include: tuple[str, ...] = ()
    """What to ask for besides the answer (`reasoning.encrypted_content`)."""

    # What goes back (see `history`).
    replay: Literal["none", "field", "details", "carrier"] = "none"
    """How own reasoning goes back: not at all; as text in `replay_field`; as the structured whole it came as (merged
    `reasoning_details`, a Responses item), or in the field where there is none; or as the carrier it came in: the
    merged details, else tags in the content."""
    replay_on: Literal["always", "thinking"] = "always"
    """`thinking`: not to a model that is told not to think."""
    replay_unsigned: bool = True
    """Whether reasoning without a signature may go back."""
    replay_field: str = "reasoning_content"
    replay_also: tuple[str, ...] = ()
    """Further fields that get the same text, for servers of which one does not know the version."""
    replay_signature: str = ""
    """The field for the signature beside the text; empty: there is none."""
    foreign: Literal["drop", "field"] = "drop"
    """What becomes of another model's readable reasoning."""
    lost: Literal["omit", "empty", "space", "sentinel"] = "omit"
    """What to send where the reasoning of an own message did not come back; `sentinel`: the text of that name."""
    sentinel: str = ""
    lost_on: Literal["all", "tool_calls"] = "tool_calls"
    lost_stops_thinking: bool = False
    """Whether a call whose reasoning did not come back can only be followed by an answer without thinking."""

    models: tuple[dict[str, Any], ...] = ()
    """What differs for the models whose name fits the pattern `match` (`*` and `?`; capitals make no difference)."""

    def for_model(self, model: str) -> Profile:
        """This profile with what differs for `model`; of several rows that fit, the first."""
        for row in self.models:
            if fnmatchcase(model.lower(), row["match"].lower()):
                return self.derive({name: value for name, value in row.items() if name != "match"} | {"models": ()})
        return self

    def credentials(self, api_key: str | None) -> dict[str, str]:
        """The header that authenticates a request, as `auth` says; none without a key."""
        if api_key is None or self.auth == "none":
            return {}
        return {self.auth: api_key} if self.auth.endswith("-key") else {"Authorization": f"Bearer {api_key}"}

    def path_of(self, quoted_model: str, *, stream: bool) -> str:
        """The path of a request below the base URL, with the model in its place, where the path holds it."""
        pattern = self.path if stream or not self.path_whole else self.path_whole
        return pattern.replace("{model}", quoted_model)

    def derive(self, changes: Mapping[str, Any]) -> Profile:
        """This profile with other values, which were checked."""
        return msgspec.convert({**msgspec.to_builtins(self), **changes}, Profile)
