"""A profile: the row of a dialect, with values and with names from closed sets of small strategies.

The code has no `if provider ==`: it reads the profile. The builtin rows are in `profiles.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import unquote

import msgspec

from ..errors import RequestError
from ..settings import EFFORTS


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The profile of one dialect."""

    # Names.
    name: str = ""
    title: str = ""
    aliases: tuple[str, ...] = ()
    """Other names, which precede the names of rows (see `profiles.named_profiles`). Only of a builtin row."""
    model_families: tuple[str, ...] = ()
    """First words of the names of its maker's models, for hints in error messages. Only of a builtin row."""
    telemetry_name: str = ""
    """The name in OpenTelemetry's conventions (`gen_ai.provider.name`); empty: `name`. Only of a builtin row."""
    wire: str = "openai_chat"
    """The name of a row of `wires.WIRES`."""

    # Address and credentials.
    base_url: str = ""
    path: str = "/chat/completions"
    base_url_env: tuple[str, ...] = ()
    """The environment variables that usually name another address. The library reads those of any row, the gateway only
    those of an operator's row."""
    base_url_env_path: str = ""
    """The path that the provider's own clients append to an address from the environment."""
    api_key_env: tuple[str, ...] = ()
    auth: Literal["bearer", "api-key", "x-api-key", "x-goog-api-key", "aws", "optional", "none"] = "bearer"
    """`bearer`: `Authorization: Bearer KEY`; `optional`: the same if there is a key; `aws`: the same, but without a key
    the request is signed; `…-key`: a header of that name."""
    path_whole: str = ""
    """The path for a response in one piece, if it is not `path`. Both may contain `{model}` (see `path_of`)."""
    model_in: Literal["body", "path"] = "body"
    """Where the model is named. With `path`, the body has the API's version and betas in the model's place."""
    stream_in: Literal["body", "path"] = "body"
    """Where streaming is requested, on wires that have both ways."""
    api_version: str = ""
    betas: tuple[str, ...] = ()
    """Beta features that are requested by name, on wires that have such names."""

    # Decoding of responses.
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_text")
    """Fields next to the content that may hold reasoning text; the first one with text counts."""
    merge: Literal["incremental", "cumulative", "detect"] = "incremental"
    """Whether a streamed reasoning fragment is the next piece, or the whole text so far."""
    repeats: Literal["keep", "drop"] = "keep"
    """Whether a reasoning delta that equals the one before it is kept, or dropped as a second copy."""
    tags: str | tuple[str, str] | None = None
    """The family of markers (see `pellucid.tags`) in the content, or `harmony`, or a pair of markers
    (`["<reflect>", "</reflect>"]`); None: the content has no markers."""
    implicit_start: Literal["never", "always", "auto"] | None = None
    """Whether a response may begin inside reasoning, without the opening marker; None: the family's value."""
    reasoning_tokens: Literal["inside", "outside", "by_total"] = "inside"
    """Whether the completion count includes reasoning; `by_total`: whichever matches the reported total."""
    item_end: Literal["reported", "next"] = "reported"
    """When a reasoning item ends: when the wire reports its end, or, if the wire reports it only after everything else
    (`next`), with the next item."""
    server_tools: tuple[str, ...] = ()
    """Types of calls that the provider answers itself, although they look like calls of the caller's functions."""
    form: Literal["raw", "summary"] = "raw"
    """The form of readable reasoning, if the wire does not report it."""

    # Lists of models, and counts of tokens.
    models_path: str = "/models"
    """The path of the provider's list of models; empty: it has none."""
    count_path: str = ""
    """The path at which the provider counts the tokens of a request; empty: it has none."""

    # Encoding of requests.
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: Literal[
        "effort", "thinking_type", "enable_thinking", "reasoning_object", "reasoning_switch", "template", "none"
    ] = "none"
    """How a request asks for an amount of thinking:
    `effort` `reasoning_effort: low`; `thinking_type` `thinking: {type: enabled}` and `reasoning_effort`;
    `enable_thinking` `enable_thinking: true` and `reasoning_effort`, if there is no budget; `reasoning_object`
    `reasoning: {effort: low}`; `reasoning_switch`
    `reasoning: {enabled: true}` and `reasoning_effort`; `template` `chat_template_kwargs: {enable_thinking: true}`
    and `reasoning_effort`; `none`: it cannot."""
    effort_field: str = "reasoning_effort"
    """The field in which `effort` puts the level, on the wires `openai_chat`, `mistral` and `bedrock`."""
    efforts: tuple[str, ...] = EFFORTS
    """The levels that the provider knows. Others are rounded to the nearest one; if the list is empty, none is sent."""
    effort_on: str = ""
    """The level that requests the model's default amount, for models that do not think without a level; empty: no level
    is needed."""
    thinking_on: str = "enabled"
    """The value with which `thinking_type` switches thinking on."""
    template_switches: tuple[str, ...] = ("enable_thinking",)
    """Names of the switch in chat templates. A template ignores names that it does not know."""
    budget_field: str = ""
    """The field for a budget of thinking tokens; empty: there is none. (`reasoning_object` has its own field.)"""
    thinking_mode: Literal["none", "budget", "adaptive", "effort"] = "none"
    """How thinking is requested from Claude: not at all; by a budget of tokens; adaptively, by `efforts`. Other models
    behind Claude's API have `effort`: it is enabled without a budget, and `efforts` say how much."""
    thinking_off: Literal["disabled", "between_tools", "least"] = "disabled"
    """How thinking is switched off: on Claude, `disabled` or `between_tools`; on other models, as `thinking` says.
    `least`: it cannot be, so the first of `efforts` is requested."""
    thinking_display: str = ""
    """The display to request from models that show reasoning only on request (`summarized`)."""
    budgets: dict[str, int] = {}
    """The budget of each level, in tokens; `on` is the model's default amount."""
    max_tokens_default: int = 0
    """The limit to send on wires that require one, if the request has none."""
    sampling: Literal["free", "without_thinking", "thinking_switched_off", "never"] = "free"
    """When `temperature`, `top_p` and other sampling settings are sent, because some models reject them.
    `thinking_switched_off` is for models that think by default: they get them only if a request switches it off."""
    forced_calls: Literal["free", "without_thinking", "thinking_switched_off", "never"] = "free"
    """When a request can force a model to call a tool (`tool_choice`). `thinking_switched_off` is for models that think
    by default: only if a request switches it off."""
    knows: tuple[Literal["top_k", "verbosity", "service_tier", "user", "metadata", "cache_key"], ...] = ()
    """The settings that it takes in addition to the common ones. Many servers reject a field that they do not know."""
    own: dict[str, str] = {}
    """Settings that only this provider has, each with its path in the body (`a.b`: inside an object). They are sent as
    they are, and win over the unified ones. If there are none, the wire uses the settings of its own maker."""
    default_fields: dict[str, bool | str | int] = {}
    """Fields of every request, each by its path in the body. A setting that writes the same field wins."""
    thinking_fields: dict[str, bool | str | int] = {}
    """On the wire `openai_chat`: fields of every request that asks for thinking in an object `reasoning`, each by its
    path in the body. They replace settings that write the same fields."""
    functions_stop_thinking: bool = False
    """On the wire `openai_chat`: whether a request with functions must switch thinking off (`reasoning_effort: none`).
    """
    media: Literal["by_url", "inline"] = "by_url"
    """Whether it fetches images and files by URL; `inline`: their data must be in the request."""
    accepts: tuple[Literal["image", "pdf"], ...] | None = None
    """What its models take in addition to text, which the chat tells its page, and by which it refuses attachments;
    None: it is not known, and the provider decides."""
    system_role: Literal["system", "developer"] = "system"
    stream_usage: bool = True
    """Whether `stream_options: {include_usage: true}` may be sent."""
    store: bool | None = None
    """Whether the provider is asked to store responses; None: the field is not sent."""
    include: tuple[str, ...] = ()
    """Additional output to request (`reasoning.encrypted_content`)."""

    native_forms: bool = True
    """Whether tools, items and fields that a client sent in the form of this wire are sent as they are.

    False where servers of many makers share a wire: they know only what is common.
    """

    # History (see `history`).
    replay: Literal["none", "field", "details", "carrier"] = "none"
    """How reasoning of the same origin is sent back: not at all; as text in `replay_field`; in its structured form
    (merged `reasoning_details`, a Responses item), or in the field if it has none; or in the carrier in which it came:
    the merged details, else tags in the content."""
    replay_on: Literal["always", "thinking"] = "always"
    """`thinking`: not if the request switches thinking off."""
    replay_unsigned: bool = True
    """Whether reasoning without a signature may be sent back."""
    replay_field: str = "reasoning_content"
    replay_also: tuple[str, ...] = ()
    """Further fields that get the same text, for servers of unknown version."""
    replay_signature: str = ""
    """The field for the signature of the text; empty: there is none."""
    foreign: Literal["drop", "field"] = "drop"
    """Whether readable reasoning of another model is dropped, or sent in the field."""
    lost: Literal["omit", "empty", "space", "sentinel"] = "omit"
    """What to send for the lost reasoning of a message; `sentinel`: the text in the field `sentinel`."""
    sentinel: str = ""
    lost_on: Literal["all", "tool_calls"] = "tool_calls"
    interleaved_calls: bool = True
    """On the wire `openai_responses`: whether an input may hold other items between the calls of one turn, and between
    calls and their results. False: the calls are sent after the other items of their turn, directly before their
    results."""
    results_alone: bool = False
    """On the wire `bedrock`: whether the results of functions must be alone in their message. The next message of the
    user is then separated from them by one of the model's."""
    result_status: bool = True
    """On the wire `bedrock`: whether the result of a function may have a status."""
    lost_stops_thinking: bool = False
    """Whether the response to a call whose reasoning was lost must be requested without thinking."""

    models: tuple[dict[str, Any], ...] = ()
    """Changed values for models whose name matches the pattern `match` (`*` and `?`; case is ignored)."""

    @property
    def native_wire(self) -> str | None:
        """The wire whose own forms may be sent; None if only what is common may be."""
        return self.wire if self.native_forms else None

    def for_model(self, model: str) -> Profile:
        """Return this profile with the values for `model`, from the first row that matches.

        Args:
            model: The model's name.
        """
        for row in self.models:
            if fnmatchcase(model.lower(), row["match"].lower()):
                return self.derive({name: value for name, value in row.items() if name != "match"} | {"models": ()})
        return self

    def for_functions(self) -> Profile:
        """Return this profile with the values for a request with functions."""
        if not self.functions_stop_thinking or self.wire != "openai_chat":
            return self
        return self.derive({"thinking": "none", "default_fields": {**self.default_fields, self.effort_field: "none"}})

    def credentials(self, api_key: str | None) -> dict[str, str]:
        """Return the header that authenticates a request, in the form that `auth` names; none without a key.

        Args:
            api_key: The key; None for none.
        """
        if api_key is None or self.auth == "none":
            return {}
        return {self.auth: api_key} if self.auth.endswith("-key") else {"Authorization": f"Bearer {api_key}"}

    def path_of(self, quoted_model: str, *, stream: bool) -> str:
        """Return the path of a request below the base URL, with the model's name in place of `{model}`.

        Args:
            quoted_model: The model's name, quoted for a URL.
            stream: Whether the response is streamed.

        Raises:
            RequestError: The name has a segment `.` or `..`, which would lead to another path.
        """
        pattern = self.path if stream or not self.path_whole else self.path_whole
        if "{model}" in pattern and not {".", ".."}.isdisjoint(unquote(quoted_model).split("/")):
            raise RequestError(
                "model: a name has no segment . or ..", kind="not_found", code="model_not_found", param="model"
            )
        return pattern.replace("{model}", quoted_model)

    def derive(self, changes: Mapping[str, Any]) -> Profile:
        """Return this profile with other values, which must have been checked.

        Args:
            changes: The new values, by field.
        """
        return msgspec.convert({**msgspec.to_builtins(self), **changes}, Profile)
