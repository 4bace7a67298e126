"""The arithmetic of costs, by property; and the prices that the configuration accepts."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ConfigError
from pellucid.parts import MAX_TURN_TOKENS, Origin, Usage
from pellucid.server.access.policy import Principal
from pellucid.server.config import check_config
from pellucid.server.metering import CostRecorder
from pellucid.server.spend import (
    MAX_PRICE,
    MAX_TURN_NANOS,
    NANOS,
    Prices,
    cost_nanos,
    format_amount,
    nanos_of,
    reasoning_nanos,
    token_prices_of,
    with_estimates,
)
from pellucid.server.usage_writer import UsageWriter
from pellucid.storage import UsageCounts

TOKENS = st.integers(0, 10_000_000)
PRICE = st.decimals(0, 1000, places=6, allow_nan=False).map(float)
EVERY_PRICE = st.builds(Prices, PRICE, PRICE, st.none() | PRICE, st.none() | PRICE, st.none() | PRICE)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    read, written = draw(TOKENS), draw(TOKENS)
    cached = draw(st.integers(0, read))
    return Usage(
        input_tokens=read,
        output_tokens=written,
        output_reasoning_tokens=draw(st.integers(0, written)),
        cache_read_tokens=cached,
        cache_write_tokens=draw(st.integers(0, read - cached)),
    )


def exact_cost(prices: Prices, usage: Usage) -> Decimal:
    """The cost by decimal arithmetic, from the prices as they are written."""

    def price(value: float | None, default: float) -> Decimal:
        return Decimal(str(default if value is None else value)) / 1_000_000

    read, written, reasoning = usage.input_tokens or 0, usage.output_tokens or 0, usage.output_reasoning_tokens or 0
    cached, stored = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return (
        (read - cached - stored) * price(None, prices.input)
        + cached * price(prices.cached_input, prices.input)
        + stored * price(prices.cache_write, prices.input)
        + (written - reasoning) * price(None, prices.output)
        + reasoning * price(prices.reasoning, prices.output)
    )


@given(EVERY_PRICE, usages())
def test_a_cost_is_the_exact_one_rounded_once(prices: Prices, usage: Usage) -> None:
    expected = exact_cost(prices, usage).quantize(Decimal("1e-9"), ROUND_HALF_UP)
    assert cost_nanos(token_prices_of(prices), usage) == min(int(expected * NANOS), MAX_TURN_NANOS)


@given(EVERY_PRICE, usages())
def test_the_cost_of_reasoning_is_the_part_of_its_tokens(prices: Prices, usage: Usage) -> None:
    token_prices = token_prices_of(prices)
    alone = Usage(0, usage.output_reasoning_tokens, output_reasoning_tokens=usage.output_reasoning_tokens)
    assert reasoning_nanos(token_prices, usage) == cost_nanos(token_prices, alone)
    assert reasoning_nanos(token_prices, Usage(1, 2)) is None


@given(PRICE, PRICE, usages())
def test_defaults_are_input_and_output(read: float, written: float, usage: Usage) -> None:
    every_price = Prices(read, written, cached_input=read, cache_write=read, reasoning=written)
    assert cost_nanos(token_prices_of(Prices(read, written)), usage) == cost_nanos(token_prices_of(every_price), usage)


@given(EVERY_PRICE, usages(), st.sampled_from(["input_tokens", "output_tokens"]))
def test_a_number_that_is_not_known_makes_the_cost_unknown(prices: Prices, usage: Usage, field: str) -> None:
    values = {name: getattr(usage, name) for name in usage.__struct_fields__}
    assert cost_nanos(token_prices_of(prices), Usage(**{**values, field: None})) is None


def test_reasoning_must_be_known_where_it_has_a_price_of_its_own() -> None:
    usage = Usage(input_tokens=10, output_tokens=10)
    assert cost_nanos(token_prices_of(Prices(1, 2)), usage) == 30_000
    assert cost_nanos(token_prices_of(Prices(1, 2, reasoning=3)), usage) is None


class Recorded:
    """A cost recorder, and the row that it adds for one turn."""

    def __init__(self, prices: Prices | None, usage: Usage, **written: Any) -> None:
        self.row = UsageCounts()
        token_prices = None if prices is None else token_prices_of(prices)
        self.recorder = CostRecorder(
            cast("UsageWriter", self), lambda name, origin: token_prices, Principal("ann"), "m"
        )
        self.shown = self.recorder.add(Origin("p", "openai_chat", "x"), usage, input_characters=lambda: 4, **written)

    def add(
        self, owner: str, key_id: str | None, model: str, deployment: str, counts: UsageCounts, *, has_prices: bool
    ) -> None:
        self.row = counts


@given(
    st.none() | EVERY_PRICE,
    st.builds(Usage, *[st.none() | st.integers(-(2**63), 2**63)] * 5),
    st.booleans(),
)
def test_no_report_of_a_provider_is_out_of_bounds(prices: Prices | None, usage: Usage, has_failed: bool) -> None:
    recorded = Recorded(prices, usage, characters=8, reasoning_characters=4, has_failed=has_failed)
    counts = msgspec.structs.asdict(recorded.row)
    assert 0 <= counts.pop("cost_nanos") <= MAX_TURN_NANOS
    assert all(0 <= count <= MAX_TURN_TOKENS for count in counts.values())


@pytest.mark.parametrize("prices", [None, Prices(1, 2), Prices(1, 2, reasoning=3)])
def test_the_row_and_the_limits_have_the_same_tokens(prices: Prices | None) -> None:
    """Also where the cost does not depend on the tokens of reasoning, which are estimated."""
    recorded = Recorded(prices, Usage(10, 50), characters=160, reasoning_characters=120)
    row, tokens = recorded.row, recorded.recorder.tokens
    assert (row.input_tokens, row.output_tokens, row.reasoning_tokens, row.estimated) == (10, 50, 30, 1)
    assert (tokens.input_tokens, tokens.output_tokens, tokens.output_reasoning_tokens) == (10, 50, 30)
    assert row.cost_nanos == (0 if prices is None else 140_000 if prices.reasoning else 110_000)
    # It is exact if tokens of reasoning cost as much as others.
    assert recorded.shown == (110_000 if prices == Prices(1, 2) else None)


@pytest.mark.parametrize("prices", [None, Prices(1, 2), Prices(1, 2, reasoning=3)])
def test_without_reasoning_nothing_is_estimated(prices: Prices | None) -> None:
    assert Recorded(prices, Usage(10, 50), characters=160).row.estimated == 0


@given(usages(), st.integers(0, 10_000), st.integers(0, 10_000))
def test_estimates_replace_only_what_is_not_known(usage: Usage, read: int, written: int) -> None:
    assert with_estimates(usage, read, written, written // 2) == usage
    estimated = with_estimates(Usage(), read, written, written // 2)
    assert (estimated.input_tokens, estimated.output_tokens) == (-(-read // 4), -(-written // 4))
    assert cost_nanos(token_prices_of(Prices(1, 1, reasoning=2)), estimated) is not None


@given(st.integers(0, 10**18))
def test_amounts_are_written_without_loss(nanos: int) -> None:
    assert Decimal(format_amount(nanos)) * NANOS == nanos


@pytest.mark.parametrize(("amount", "nanos"), [(0.1, NANOS // 10), (0.1 + 0.2, 300_000_000), (5, 5 * NANOS), (1e-9, 1)])
def test_an_amount_is_what_is_written(amount: float, nanos: int) -> None:
    assert nanos_of(amount) == nanos


PRICED: dict[str, Any] = {"input": 1, "output": 2}
WRONG = {
    "negative": ("input", -1),
    "huge": ("output", MAX_PRICE + 1),
    "infinite": ("cached_input", float("inf")),
    "no number": ("cache_write", float("nan")),
    "a text": ("reasoning", "3"),
    "a boolean": ("input", True),
    "too many digits": ("output", 0.0000001),
}
PLACES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "models.m.prices": lambda prices: {"models": {"m": {"provider": "vllm", "prices": prices}}},
    "models.m.deployments[0].prices": lambda prices: {
        "models": {"m": {"deployments": [{"provider": "vllm", "prices": prices}]}}
    },
    "providers.vllm.prices.x*": lambda prices: {
        "providers": {"vllm": {"base_url": "http://u/v1", "prices": {"x*": prices}}}
    },
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_price_is_named_with_its_key(place: str, case: str) -> None:
    key, value = WRONG[case]
    assert mistakes_of(PLACES[place]({**PRICED, key: value})) == [f"{place}.{key}"]
    assert mistakes_of(PLACES[place]({"output": 1})) == [f"{place}.input"]
    assert mistakes_of(PLACES[place]({**PRICED, "thinking": 1})) == [f"{place}.thinking"]
    assert mistakes_of(PLACES[place](PRICED)) == []


def mistakes_of(table: dict[str, Any]) -> list[str]:
    """The keys of the mistakes in a configuration."""
    try:
        check_config({"providers": {"vllm": {"base_url": "http://u/v1"}}, **table}, {})
    except ConfigError as error:
        return [mistake.partition(": ")[0] for mistake in error.mistakes]
    return []


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "5", 2e9])
@pytest.mark.parametrize("key", ["cost_per_day", "cost_per_month"])
def test_a_wrong_budget_is_named_with_its_key(key: str, value: Any) -> None:
    access = {"policies": {"p": {key: value}}}
    assert mistakes_of({"access": access}) == [f"access.policies.p.{key}"]
    assert mistakes_of({"spend": {"owners": {"ann": {key: value}}}}) == [f"spend.owners.ann.{key}"]


@pytest.mark.parametrize("currency", ["", "US$", "EUR EUR", "=EUR", 5, "a" * 9])
def test_a_currency_is_letters(currency: Any) -> None:
    assert mistakes_of({"spend": {"currency": currency}}) == ["spend.currency"]


def test_a_budget_without_prices_is_a_warning() -> None:
    table: dict[str, Any] = {
        "providers": {"vllm": {"base_url": "http://u/v1"}},
        "access": {"policies": {"p": {"cost_per_day": 1}, "q": {}}},
    }
    [warning] = check_config(table, {}).warnings
    assert warning.startswith("access.policies.p: ")
    priced = {**table, **PLACES["models.m.prices"](PRICED)}
    [warning] = check_config(priced, {}).warnings
    assert warning.startswith("providers.vllm: a request may name any of its models")
    for models, unpriced in (([], None), (["m"], None), (["m", "n"], "'n'"), (["*"], "'*'")):
        priced["providers"] = {"vllm": {"base_url": "http://u/v1", "models": models}}
        warnings = check_config(priced, {}).warnings
        assert not warnings if unpriced is None else unpriced in warnings[0], models
    priced["models"] = {**priced["models"], "free": {"provider": "vllm", "model": "n"}}
    priced["providers"]["vllm"]["models"] = []
    assert "models.free: 'n'" in check_config(priced, {}).warnings[0]
    priced["providers"]["vllm"]["prices"] = {"*": PRICED}
    assert not check_config(priced, {}).warnings
