"""Prices, and what the tokens of a turn cost.

* Costs are whole numbers: billionths of the currency (nanos). The cost of a turn is computed exactly, and rounded once;
  all sums are sums of these numbers, so no two places show different ones.
* A cost is exact only if the provider reported the numbers that it depends on. Otherwise it is an estimate from the
  text: it counts for budgets, and is not shown to clients.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..parts import Usage, estimated_tokens
from ..storage import UsageCounts

NANOS = 1_000_000_000
"""Billionths of the currency in one."""

MAX_PRICE = 1_000_000
MAX_DECIMALS = 6
"""Digits after the decimal point of a price: with them, the price of one token is a whole number of trillionths."""

_PICOS_PER_NANO = 1_000

MAX_TURN_NANOS = 10_000_000 * NANOS
"""Maximum of what one turn counts for. A provider that reports more is wrong, and must not spoil the sums."""

Price = Annotated[float, Meta(ge=0, le=MAX_PRICE)]
"""Price of a million tokens."""


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a million tokens of a model cost, in the currency of `[spend]`."""

    input: Price
    """Tokens that are read."""
    output: Price
    """Tokens that are written."""
    cached_input: Price | None = None
    """Tokens that the provider reads from its cache; by default as `input`."""
    cache_write: Price | None = None
    """Tokens that the provider writes to its cache; by default as `input`."""
    reasoning: Price | None = None
    """Tokens of reasoning; by default as `output`."""


def price_mistakes(prices: Prices) -> list[str]:
    """Return the mistakes that the types do not exclude, each with its key."""
    mistakes = []
    for name, price in msgspec.structs.asdict(prices).items():
        if price is not None and _picos(price) % 1:
            mistakes.append(f".{name}: {price!r} has more than {MAX_DECIMALS} digits after the point")
    return mistakes


class TokenPrices(NamedTuple):
    """Prices of one token, in trillionths of the currency."""

    input: int
    cached_input: int
    cache_write: int
    output: int
    reasoning: int


FREE = TokenPrices(0, 0, 0, 0, 0)


def token_prices_of(prices: Prices) -> TokenPrices:
    """Return the prices of one token."""

    def price_of(price: float | None, default: int) -> int:
        return default if price is None else round(_picos(price))

    input, output = round(_picos(prices.input)), round(_picos(prices.output))
    return TokenPrices(
        input,
        price_of(prices.cached_input, input),
        price_of(prices.cache_write, input),
        output,
        price_of(prices.reasoning, output),
    )


def _picos(price: float) -> Decimal:
    """Return the price of one token in trillionths, from the price of a million tokens, as it is written."""
    return Decimal(repr(price)).scaleb(MAX_DECIMALS)


@lru_cache(1024)
def nanos_of(amount: float) -> int:
    """Return an amount of the currency in billionths, as it is written."""
    return round(Decimal(repr(amount)) * NANOS)


def format_amount(nanos: int) -> str:
    """Return an amount as a decimal number, without zeros at its end."""
    whole, rest = divmod(abs(nanos), NANOS)
    digits = f"{rest:09}".rstrip("0")
    return f"{'-' if nanos < 0 else ''}{whole}{'.' if digits else ''}{digits}"


def cost_nanos(prices: TokenPrices, usage: Usage) -> int | None:
    """Return the cost of a turn; None if it depends on a number that is not known.

    A number of cached tokens that is not known is 0: providers without a cache report none.

    Args:
        prices: The prices of one token.
        usage: The numbers of tokens, which are plausible.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    if usage.output_reasoning_tokens is None and prices.reasoning != prices.output:
        return None
    counts = counted_tokens(usage)
    picos = (
        (counts.input_tokens - counts.cached_tokens - counts.cache_write_tokens) * prices.input
        + counts.cached_tokens * prices.cached_input
        + counts.cache_write_tokens * prices.cache_write
        + (counts.output_tokens - counts.reasoning_tokens) * prices.output
        + counts.reasoning_tokens * prices.reasoning
    )
    return min((picos + _PICOS_PER_NANO // 2) // _PICOS_PER_NANO, MAX_TURN_NANOS)


def reasoning_nanos(prices: TokenPrices, usage: Usage) -> int | None:
    """Return the part of a turn's cost that is for tokens of reasoning; None if their number is not known."""
    if usage.output_tokens is None or usage.output_reasoning_tokens is None:
        return None
    picos = counted_tokens(usage).reasoning_tokens * prices.reasoning
    return min((picos + _PICOS_PER_NANO // 2) // _PICOS_PER_NANO, MAX_TURN_NANOS)


def counted_tokens(usage: Usage) -> UsageCounts:
    """Return the tokens that a turn counts for, in costs and in sums: no part is larger than its whole.

    Args:
        usage: Numbers that are plausible. One that is not known is 0.
    """
    read, output = usage.input_tokens or 0, usage.output_tokens or 0
    cached = min(usage.cache_read_tokens or 0, read)
    written = min(usage.cache_write_tokens or 0, read - cached)
    return UsageCounts(
        input_tokens=read,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=output,
        reasoning_tokens=min(usage.output_reasoning_tokens or 0, output),
    )


def with_estimates(usage: Usage, input_characters: int, characters: int, reasoning_characters: int) -> Usage:
    """Return the usage with estimates in place of the numbers that the provider did not report.

    Args:
        usage: What the provider reported.
        input_characters: Characters that the model read.
        characters: Characters that it wrote in all.
        reasoning_characters: How many of these were reasoning.
    """
    reasoning = usage.output_reasoning_tokens
    if reasoning is not None and usage.input_tokens is not None and usage.output_tokens is not None:
        return usage
    if reasoning is None:
        reasoning = estimated_tokens(reasoning_characters)
        if usage.output_tokens is not None:
            reasoning = min(reasoning, usage.output_tokens)
    output, read = usage.output_tokens, usage.input_tokens
    return replace(
        usage,
        input_tokens=estimated_tokens(input_characters) if read is None else read,
        output_tokens=max(estimated_tokens(characters), reasoning) if output is None else output,
        output_reasoning_tokens=reasoning,
    )
