"""Run sources and stages: they drive the `run` machine and deliver its events.

Everything that is served is a `RunSource`: a `LiveRun`, whose batches pass stages (`stages`, `summaries`,
`stored_run`), or a `LiveLog` or `FinishedLog` (`replay`) of a logged run. `detached_runs` drives runs that no request
waits for.
"""

from .live_run import LiveRun, ToolOutcomes, TurnHandler
from .source import Batch, BatchReceiver, DrivenRun, RunSource, TextSink, clock_ms
from .stages import Stage

__all__ = [
    "Batch",
    "BatchReceiver",
    "DrivenRun",
    "LiveRun",
    "RunSource",
    "Stage",
    "TextSink",
    "ToolOutcomes",
    "TurnHandler",
    "clock_ms",
]
