"""Find the settings of a call that have no effect on the request, and describe each in a sentence.

No list is consulted. The request is encoded with the setting and without it: if there is no difference, the setting has
no effect, and encoding it without another setting shows which one takes precedence. So the result always corresponds to
what the wires do.

A setting may also make no difference because it requests the default: then another value of it makes one.
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
"""Returns what is sent for a call. Raises `RequestError`."""

_THINKING = (True, False, *EFFORTS)


def trial_warnings(settings: ModelSettings, origin: Origin, row: Profile, send: Send) -> list[str]:
    """Return the sentences; none for a call that is refused as a whole, because sending it raises an error."""
    return Trial(origin, row, send).warnings(settings)


class Trial:
    """Encodes calls of one model without sending them, each once."""

    def __init__(self, origin: Origin, row: Profile, send: Send) -> None:
        self.model_title = origin.model or row.title
        self.row = row
        self._send = send
        self._sent: dict[str, Any] = {}
        self._calls = [
            ModelCall(origin.model, messages, tools=(_TOOL,)) for messages in (_FIRST_MESSAGES, _later_messages(origin))
        ]

    def warnings(self, settings: ModelSettings) -> list[str]:
        """Return the sentences for these settings, as `trial_warnings`."""
        call_settings = cast("Settings", settings)
        if isinstance(self.sent(call_settings), RequestError):
            return []
        warnings: list[str] = []
        for name, value in call_settings.items():
            check = (
                _reason_for_thinking
                if name == "thinking"
                else _reason_for_number
                if type(value) in (int, float)
                else _reason_for_any
            )
            reason = check(self, name, value, call_settings)
            if reason is not None:
                warnings.append(f"{name}: {reason}")
        return warnings

    def sent(self, settings: Settings) -> Any:
        """Return the requests at the start of a conversation and later in it, or the error."""
        key = repr(sorted(settings.items(), key=lambda item: item[0]))
        if key not in self._sent:
            self._sent[key] = self._send_both(settings)
        return self._sent[key]

    def _send_both(self, settings: Settings) -> Any:
        try:
            return [self._send(_with_settings(call, settings)) for call in self._calls]
        except RequestError as error:
            return error

    def sent_at_start(self, settings: Settings) -> Any:
        """Return the request at the start of a conversation, or the error."""
        requests = self.sent(settings)
        return requests if isinstance(requests, RequestError) else requests[0]

    def differ(self, some: Settings, others: Settings) -> bool:
        one, other = self.sent(some), self.sent(others)
        if isinstance(one, RequestError) or isinstance(other, RequestError):
            return str(one) != str(other)
        return bool(one != other)

    def is_sent_unchanged(self, settings: Settings, value: Any) -> bool:
        """Return whether the request contains all of a value; False for booleans, which cannot be identified."""
        sent = list(_leaves(self.sent(settings)))
        return all(not isinstance(leaf, bool) and _remove(sent, leaf) for leaf in _leaves(value))

    def added_values(self, settings: Settings, before_them: Settings) -> list[Any]:
        """Return the scalars that are sent with `settings` and not with `before_them`."""
        before = list(_leaves(self.sent_at_start(before_them)))
        return [leaf for leaf in _leaves(self.sent_at_start(settings)) if not _remove(before, leaf)]


def _with_settings(call: ModelCall, settings: Settings) -> ModelCall:
    return ModelCall(call.model, call.messages, cast("ModelSettings", dict(settings)), call.tools)


def _without_settings(settings: Settings, *names: str) -> Settings:
    return {name: value for name, value in settings.items() if name not in names}


# --- the sentence for one setting; None if it has an effect ---------------------------------------------------------


def _reason_for_any(trial: Trial, name: str, value: Any, settings: Settings) -> str | None:
    rest = _without_settings(settings, name)
    if trial.differ(settings, rest):
        return None
    if isinstance(value, bool) and trial.differ({**rest, name: not value}, rest):
        return None
    if value in ({}, [], None):
        return None
    if trial.differ({name: value}, {}) and trial.is_sent_unchanged(settings, value):
        return None  # another setting requests the same
    return _reason_without_effect(trial, name, settings)


def _reason_for_number(trial: Trial, name: str, value: float, settings: Settings) -> str | None:
    rest = _without_settings(settings, name)
    half = value // 2 if type(value) is int else value / 2
    tried = [{**rest, name: other} for other in (value + 1, half)]
    if not any(trial.differ(other, rest) for other in (settings, *tried)):
        return _reason_without_effect(trial, name, settings)
    if trial.is_sent_unchanged(settings, value):
        return None
    numbers = [
        leaf for other in (rest, *tried) for leaf in trial.added_values(settings, other) if type(leaf) in (int, float)
    ]
    if not numbers:
        return f"{trial.model_title} does not take the number {value}, only that there was one"
    return f"{value} is sent as {numbers[0]}, which is what {trial.model_title} takes"


def _reason_for_thinking(trial: Trial, name: str, value: Any, settings: Settings) -> str | None:
    rest = _without_settings(settings, name)
    sent = trial.sent_at_start(settings)
    has_effect = sent != trial.sent_at_start(rest)
    others = [other for other in _THINKING if trial.sent_at_start({**rest, name: other}) != trial.sent_at_start(rest)]
    if not has_effect and not others:
        sentence = f"the thinking of {trial.model_title} cannot be set"
        return _reason_without_effect(trial, name, settings, sentence)
    if value is True:
        return None
    added = trial.added_values(settings, rest)
    words = [leaf for leaf in added if leaf in EFFORTS and isinstance(leaf, str)]
    if value in (False, "none"):
        if not has_effect:
            sentence = f"the thinking of {trial.model_title} cannot be switched off"
            return _reason_without_effect(trial, name, settings, sentence)
        least = any(word != "none" for word in words) or any(type(leaf) is int and leaf > 0 for leaf in added)
        return (
            f"the thinking of {trial.model_title} cannot be switched off; the lowest level is requested"
            if least
            else None
        )
    same = [level for level in EFFORTS if level != value and trial.sent_at_start({**rest, name: level}) == sent]
    if not has_effect:
        # A level of its own may be the default, or what another setting requests.
        sentence = f"{trial.model_title} knows no level {value!r}; its default is used"
        return _reason_without_effect(trial, name, settings, sentence) if same else None
    if value in added or (value in trial.row.budgets and any(type(leaf) is int for leaf in added)):
        return None
    if value in trial.added_values({name: value}, {}):
        names = [
            other
            for other, other_value in rest.items()
            if value not in trial.added_values({other: other_value, name: value}, {other: other_value})
        ]
        if names:
            return f"it is not sent together with {' and '.join(names)}"
    if words:
        return f"{trial.model_title} knows no level {value!r}; the nearest, {words[0]!r}, is requested"
    if same or trial.sent_at_start({**rest, name: True}) == sent:
        return f"{trial.model_title} knows no level {value!r}; thinking is requested without a level"
    return None


def _reason_without_effect(trial: Trial, name: str, settings: Settings, sentence: str = "") -> str:
    """Return why a setting has no effect: because of another setting, or in any case."""
    alone = {name: settings[name]}
    if trial.differ(alone, {}):
        others = [{other: value} for other, value in settings.items() if other != name]
        silencing = [other for other in others if not trial.differ({**other, **alone}, other)]
        names = [next(iter(other)) for other in silencing]
        return f"it is not sent together with {' and '.join(names) or 'the other settings'}"
    maker = name.partition("_")[0]
    if sentence or name in ModelSettings.__annotations__:
        return sentence or f"{trial.model_title} takes no such setting"
    rows = builtin_profiles()
    if maker in rows and not trial.row.name.startswith(maker):
        return f"it is a setting of {rows[maker].title}, and {trial.model_title} is called over {trial.row.title}"
    near = get_close_matches(name, ModelSettings.__annotations__, 1)
    return f"{trial.model_title} takes no such setting" + (f"; did you mean {near[0]!r}?" if near else "")


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the scalars in a value, in order."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def _remove(values: list[Any], value: Any) -> bool:
    """Remove a value from the list, and return whether it was there; `True` does not equal 1."""
    for index, candidate in enumerate(values):
        if type(candidate) is type(value) and candidate == value:
            del values[index]
            return True
    return False


# --- a conversation in which every setting can have an effect -------------------------------------------------------

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
