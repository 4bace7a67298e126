"""What of a call's settings a model does not hear: one plain sentence for each.

Nobody keeps a list of that. The request is written with the setting and without it, as a dry run: a setting that
makes no difference is not heard, and trying again without another setting shows what stands in its way. So this can
never say anything else than what the wires do.

A setting may also make no difference because it asks for what happens anyway: then another value of it would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias, cast

from pellucid.errors import RequestError
from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    Origin,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.settings import EFFORTS, ModelCall, ModelSettings, ToolDefinition

Settings: TypeAlias = Mapping[str, Any]
Send: TypeAlias = Callable[[ModelCall], Any]
"""What is sent for a call. Raises `RequestError`."""

_THINKING = (True, False, *EFFORTS)


def unheard(settings: ModelSettings, origin: Origin, row: Profile, send: Send) -> list[str]:
    """The sentences. Empty, too, for a call that is refused as a whole: that is said when it is sent."""
    trial = _Trial(origin, row, send)
    call_settings = cast("Settings", settings)
    if isinstance(trial.sent(call_settings), RequestError):
        return []
    warnings: list[str] = []
    for name, value in call_settings.items():
        check = _reason_for_thinking if name == "thinking" else _reason_for_number if type(value) in (int, float) else _reason_for_any
        reason = check(trial, name, value, call_settings)
        if reason is not None:
            warnings.append(f"{name}: {reason}")
    return warnings


class _Trial:
    """Calls that are written and not sent."""

    def __init__(self, origin: Origin, row: Profile, send: Send) -> None:
        self.who = origin.model or row.title
        self.row = row
        self._send = send
        self._sent: dict[str, Any] = {}
        self._calls = [ModelCall(origin.model, messages, tools=(_TOOL,)) for messages in (_FIRST_MESSAGES, _later_messages(origin))]

    def sent(self, settings: Settings) -> Any:
        """What would be sent at the start of a conversation, and later; or why it would not be."""
        key = repr(sorted(settings.items(), key=lambda item: item[0]))
        if key not in self._sent:
            self._sent[key] = self._send_both(settings)
        return self._sent[key]

    def _send_both(self, settings: Settings) -> Any:
        try:
            return [self._send(_with_settings(call, settings)) for call in self._calls]
        except RequestError as error:
            return error

    def first(self, settings: Settings) -> Any:
        """The same at the start alone."""
        requests = self.sent(settings)
        return requests if isinstance(requests, RequestError) else requests[0]

    def differ(self, some: Settings, others: Settings) -> bool:
        one, other = self.sent(some), self.sent(others)
        if isinstance(one, RequestError) or isinstance(other, RequestError):
            return str(one) != str(other)
        return bool(one != other)

    def shows(self, settings: Settings, value: Any) -> bool:
        """Whether all of a value can be seen in what is sent; of a yes or no it cannot be said."""
        sent = list(_leaves(self.sent(settings)))
        return all(not isinstance(leaf, bool) and _remove(sent, leaf) for leaf in _leaves(value))

    def added(self, settings: Settings, before_them: Settings) -> list[Any]:
        """The plain values that are sent with the one settings, and not with the other."""
        before = list(_leaves(self.first(before_them)))
        return [leaf for leaf in _leaves(self.first(settings)) if not _remove(before, leaf)]


def _with_settings(call: ModelCall, settings: Settings) -> ModelCall:
    return ModelCall(call.model, call.messages, cast("ModelSettings", dict(settings)), call.tools)


def _without_settings(settings: Settings, *names: str) -> Settings:
    return {name: value for name, value in settings.items() if name not in names}


# --- judgements: what is to be said of one setting; None where it is heard ------------------------------------------


def _reason_for_any(trial: _Trial, name: str, value: Any, settings: Settings) -> str | None:
    rest = _without_settings(settings, name)
    if trial.differ(settings, rest):
        return None
    if isinstance(value, bool) and trial.differ({**rest, name: not value}, rest):
        return None
    if value in ({}, [], None):
        return None
    if trial.differ({name: value}, {}) and trial.shows(settings, value):
        return None  # another setting asks for the very same
    return _reason_without_effect(trial, name, settings)


def _reason_for_number(trial: _Trial, name: str, value: float, settings: Settings) -> str | None:
    rest = _without_settings(settings, name)
    half = value // 2 if type(value) is int else value / 2
    tried = [{**rest, name: other} for other in (value + 1, half)]
    if not any(trial.differ(other, rest) for other in (settings, *tried)):
        return _reason_without_effect(trial, name, settings)
    if trial.shows(settings, value):
        return None
    numbers = [leaf for other in (rest, *tried) for leaf in trial.added(settings, other) if type(leaf) in (int, float)]
    if not numbers:
        return f"{trial.who} does not take the number {value}, only that there was one"
    return f"{value} is sent as {numbers[0]}, which is what {trial.who} takes"


def _reason_for_thinking(trial: _Trial, name: str, value: Any, settings: Settings) -> str | None:
    rest = _without_settings(settings, name)
    sent = trial.first(settings)
    has_effect = sent != trial.first(rest)
    others = [other for other in _THINKING if trial.first({**rest, name: other}) != trial.first(rest)]
    if not has_effect and not others:
        return _reason_without_effect(trial, name, settings, "cannot be told how much to think")
    if value is True:
        return None
    added = trial.added(settings, rest)
    words = [leaf for leaf in added if leaf in EFFORTS and isinstance(leaf, str)]
    if value in (False, "none"):
        if not has_effect:
            return f"{trial.who} cannot be told not to think"
        least = any(word != "none" for word in words) or any(type(leaf) is int and leaf > 0 for leaf in added)
        return f"{trial.who} cannot be told not to think; it is told to think as little as it can" if least else None
    if not has_effect:
        return f"{trial.who} knows no level {value!r}; it thinks as much as it does unasked"
    if value in added or (value in trial.row.budgets and any(type(leaf) is int for leaf in added)):
        return None
    if words:
        return f"{trial.who} knows no level {value!r}; it is asked for {words[0]!r}, the nearest"
    same = [level for level in EFFORTS if level != value and trial.first({**rest, name: level}) == sent]
    if same or trial.first({**rest, name: True}) == sent:
        return f"{trial.who} knows no level {value!r}; it is asked to think, and not how much"
    return None


def _reason_without_effect(trial: _Trial, name: str, settings: Settings, what: str = "") -> str:
    """Something does not matter: because of another setting, or in any case."""
    alone = {name: settings[name]}
    if trial.differ(alone, {}):
        others = [{other: value} for other, value in settings.items() if other != name]
        silencing = [other for other in others if not trial.differ({**other, **alone}, other)]
        return f"it is not sent beside {' and '.join(next(iter(other)) for other in silencing) or 'the other settings'}"
    maker = name.partition("_")[0]
    if what or name in ModelSettings.__annotations__:
        return f"{trial.who} {what or 'takes no such setting'}"
    rows = builtin_profiles()
    if maker in rows and not trial.row.name.startswith(maker):
        return f"it is a setting of {rows[maker].title}, and {trial.who} is asked over {trial.row.title}"
    near = get_close_matches(name, ModelSettings.__annotations__, 1)
    return f"{trial.who} takes no such setting" + (f"; did you mean {near[0]!r}?" if near else "")


def _leaves(value: Any) -> Iterator[Any]:
    """The plain values in it, in order."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def _remove(values: list[Any], value: Any) -> bool:
    """Take one of these out, if it is there; `True` is not 1 here."""
    for index, candidate in enumerate(values):
        if type(candidate) is type(value) and candidate == value:
            del values[index]
            return True
    return False


# --- a conversation on which every setting can show -----------------------------------------------------------------

_TOOL = ToolDefinition("look", {"type": "object", "properties": {}})
_FIRST_MESSAGES: list[ModelMessage] = [ModelRequest([SystemPromptPart("Be brief."), UserPromptPart("Hello?")])]


def _later_messages(origin: Origin) -> list[ModelMessage]:
    answer = ModelResponse(
        [
            ThinkingPart("I look.", id="rs_1", signature="c2lnbmVk", provider_name=origin.provider),
            TextPart("Let me look.", id="msg_1"),
            ToolCallPart("look", "{}", "call_1", id="fc_1"),
        ],
        origin=origin,
        provider_response_id="resp_1",
    )
    return [*_FIRST_MESSAGES, answer, ModelRequest([ToolReturnPart("look", "nothing", "call_1")])]
