"""Scenarios: loads, and the routes over which each is measured.

A scenario is a row. Its `references` are measured first, again after every few routes, and last, so that each route has
samples of them just before and just after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import report
from report import Column
from routes import (
    AG_UI,
    ATTACHED,
    CHAT_COMPLETIONS,
    CHAT_PAGE,
    DETACHED,
    DETACHED_REDIS,
    DIRECT,
    GUARDED,
    LITELLM,
    LITELLM_RESPONSES,
    NGINX,
    OPERATED,
    PASS_THROUGH,
    PYDANTIC_AI,
    ROUTES,
    STORED,
    TENSORZERO,
    TRANSLATION,
    TWO_WORKERS,
    Route,
)

BETWEEN_REFERENCES = 3
QUICK_BETWEEN_REFERENCES = 4


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    streams: int
    pace_us: int
    """Between two deltas of a stream; 0 for as fast as they go."""
    warm: float
    """Seconds from the first request until the load generator counts."""
    seconds: float
    quick_seconds: float
    references: tuple[str, ...]
    routes: tuple[str, ...]
    columns: tuple[Column, ...]
    reasoning: int = 200
    content: int = 100
    peers: bool = False
    """Measured with `--peers` alone."""
    quick: bool = True
    """Measured with `--quick`, too."""

    @property
    def deltas_per_s(self) -> float:
        """What a paced upstream sends: a stream begins half a pace after its request, on average."""
        deltas = self.reasoning + self.content
        return self.streams * 1e6 / self.pace_us * deltas / (deltas + 0.5) if self.pace_us else 0.0

    def order(
        self, number: int, *, base: bool, only: frozenset[str] = frozenset(), between: int = BETWEEN_REFERENCES
    ) -> Iterator[Route]:
        """The routes in the order of round `number`; in every other round it is reversed.

        Args:
            base: Each route of the gateway is followed by itself over the base.
            only: Measure these alone, and the references; empty: all.
            between: How many routes come between two turns of the references.
        """
        names = [name for name in self.routes if not only or name in only]
        references = [ROUTES[name] for name in self.references]
        order = [ROUTES[DIRECT]]
        for at in range(0, len(names), between):
            order += references
            order += (ROUTES[name] for name in names[at : at + between])
        order += references
        if number % 2 == 0:
            order.reverse()
        for route in order:
            yield route
            if base and route.gateway:
                yield route.of_base()


def _paced(*ratios: Column, memory: bool = False) -> tuple[Column, ...]:
    return (
        *(report.DELTAS, report.DELIVERED, report.READS_PER_DELTA, report.BUSY, report.CPU_PER_DELTA, *ratios),
        *(report.REDIS_PER_DELTA, report.ADDED_P50, report.ADDED_P99, *((report.MEMORY,) if memory else ())),
        *(report.FAULTS, report.ROUNDS),
    )


def _unpaced(*ratios: Column) -> tuple[Column, ...]:
    return (
        *(report.DELTAS, report.DELTAS_PER_READ, report.BUSY, report.CPU_PER_DELTA, *ratios),
        *(report.FAULTS, report.ROUNDS),
    )


_X_NGINX = report.delta_ratio(NGINX)
_X_ATTACHED = report.delta_ratio(ATTACHED)
_REQUESTS = (
    *(report.REQUESTS, report.BUSY, report.CPU_PER_REQUEST, report.request_ratio(PASS_THROUGH)),
    *(report.ADDED_FIRST, report.FAULTS, report.ROUNDS),
)

PACED = Scenario(
    name="paced",
    title="100 streams x 50 deltas/s",
    streams=100,
    pace_us=20_000,
    warm=1.5,
    seconds=4.0,
    quick_seconds=1.5,
    references=(NGINX, ATTACHED),
    routes=(OPERATED, STORED, CHAT_PAGE, DETACHED, DETACHED_REDIS, TWO_WORKERS, GUARDED, TRANSLATION, PASS_THROUGH),
    columns=_paced(_X_NGINX, _X_ATTACHED),
)
SIXTEEN = Scenario(
    name="sixteen",
    title="16 streams x 50 deltas/s",
    streams=16,
    pace_us=20_000,
    warm=1.0,
    seconds=4.0,
    quick_seconds=2.0,
    references=(NGINX,),
    routes=(ATTACHED, STORED),
    columns=_paced(_X_NGINX),
)
UNPACED = Scenario(
    name="unpaced",
    title="16 streams, as fast as they go",
    streams=16,
    pace_us=0,
    warm=0.5,
    seconds=3.0,
    quick_seconds=1.5,
    references=(NGINX,),
    routes=(ATTACHED, TRANSLATION, PASS_THROUGH),
    columns=_unpaced(_X_NGINX),
)
THOUSAND = Scenario(
    name="thousand",
    title="1,000 streams x 10 deltas/s",
    streams=1000,
    pace_us=100_000,
    warm=6.0,
    seconds=4.0,
    quick_seconds=2.0,
    references=(NGINX,),
    routes=(ATTACHED, STORED),
    columns=_paced(_X_NGINX, memory=True),
)
THREE_THOUSAND = Scenario(
    name="three-thousand",
    title="3,000 streams x 2 deltas/s",
    streams=3000,
    pace_us=500_000,
    warm=14.0,
    seconds=4.0,
    quick_seconds=2.0,
    references=(NGINX,),
    routes=(ATTACHED,),
    quick=False,
    columns=_paced(_X_NGINX, memory=True),
)
REQUESTS = Scenario(
    name="requests",
    title="requests of 2 deltas, 4 at a time",
    streams=4,
    pace_us=0,
    warm=0.5,
    seconds=2.5,
    quick_seconds=1.5,
    references=(PASS_THROUGH,),
    routes=(NGINX, ATTACHED, OPERATED, STORED, CHAT_COMPLETIONS, AG_UI),
    columns=_REQUESTS,
    reasoning=1,
    content=1,
)

_PEERS = (CHAT_COMPLETIONS, AG_UI, TENSORZERO, LITELLM, LITELLM_RESPONSES, PYDANTIC_AI)
PEERS_PACED = Scenario(
    name="peers-paced",
    title="peers: 16 streams x 50 deltas/s",
    streams=16,
    pace_us=20_000,
    warm=2.5,
    seconds=4.0,
    quick_seconds=2.0,
    references=(NGINX, ATTACHED),
    routes=_PEERS,
    columns=_paced(_X_NGINX, _X_ATTACHED),
    peers=True,
)
PEERS_UNPACED = Scenario(
    name="peers-unpaced",
    title="peers: 16 streams, as fast as they go",
    streams=16,
    pace_us=0,
    warm=1.5,
    seconds=3.0,
    quick_seconds=2.0,
    references=(NGINX, ATTACHED),
    routes=_PEERS,
    columns=_unpaced(_X_NGINX, _X_ATTACHED),
    peers=True,
)
PEERS_REQUESTS = Scenario(
    name="peers-requests",
    title="peers: requests of 2 deltas, 4 at a time",
    streams=4,
    pace_us=0,
    warm=1.0,
    seconds=2.5,
    quick_seconds=1.5,
    references=(PASS_THROUGH,),
    routes=(ATTACHED, *_PEERS),
    columns=_REQUESTS,
    reasoning=1,
    content=1,
    peers=True,
)

SCENARIOS = (
    *(PACED, SIXTEEN, UNPACED, THOUSAND, THREE_THOUSAND, REQUESTS),
    *(PEERS_PACED, PEERS_UNPACED, PEERS_REQUESTS),
)
