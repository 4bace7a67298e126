"""What a provider said beside its text, in this protocol's form: log-probabilities, citations, usage."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from ...parts import Usage
from .. import beside
from . import types as t


def logprobs(raw: list[dict[str, Any]]) -> list[t.ChatLogProb]:
    return [
        t.ChatLogProb(
            token=one.token,
            logprob=one.logprob,
            bytes=one.bytes,
            top_logprobs=[t.ChatTopLogProb(top.token, top.logprob, top.bytes) for top in one.top],
        )
        for one in beside.tokens(raw)
    ]


def citations(raw: list[dict[str, Any]], before: int) -> list[t.ChatAnnotation]:
    """The URL citations among the annotations of a text that has `before` characters of the message before it."""
    return [
        t.ChatAnnotation(t.ChatUrlCitation(one.url, one.title, _moved(one.start, before), _moved(one.end, before)))
        for one in beside.citations(raw)
    ]


def _moved(index: int | None, before: int) -> int:
    """0 where the provider did not say."""
    return 0 if index is None else index + before


def usage(usage: Usage) -> t.ChatUsage | None:
    """None if nothing was counted."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    read, wrote = usage.input_tokens or 0, usage.output_tokens or 0
    prompt = t.ChatPromptTokensDetails(
        _known(usage.cache_read_tokens), _known(usage.cache_write_tokens), _known(usage.input_audio_tokens)
    )
    completion = t.ChatCompletionTokensDetails(_known(usage.output_reasoning_tokens), _known(usage.output_audio_tokens))
    return t.ChatUsage(
        prompt_tokens=read,
        completion_tokens=wrote,
        total_tokens=read + wrote,
        prompt_tokens_details=prompt if prompt != t.ChatPromptTokensDetails() else UNSET,
        completion_tokens_details=completion if completion != t.ChatCompletionTokensDetails() else UNSET,
    )


def _known(count: int | None) -> int | UnsetType:
    return UNSET if count is None else count
