"""Runs that happen: what drives the `run` machine, and what becomes of its events.

Everything that is served is a `RunSource`: a `LiveRun`, with the stages that its batches pass (`seal_stage`,
`summaries`, `stored_run`); a `LiveLog` or `FinishedLog` (`replay`) of a run that was logged. `detached` drives runs
that no request waits for.
"""

from .live_run import LiveRun, NullTurnHandler, ToolOutcomes, TurnHandler
from .source import Batch, BatchReceiver, RunSource, TextSink, clock_ms
from .stages import Stage

__all__ = [
    "Batch",
    "BatchReceiver",
    "LiveRun",
    "NullTurnHandler",
    "RunSource",
    "Stage",
    "TextSink",
    "ToolOutcomes",
    "TurnHandler",
    "clock_ms",
]
