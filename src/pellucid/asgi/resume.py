"""Whether each answer of a run's input has an interrupt, and each interrupt its answer.

Nothing is kept of the run before, so what waits is what the conversation ends with: calls without a result. Each takes
one answer: by its own id, or, unless its tool is the client's, by that of the interrupt which asks leave for it.
"""

from __future__ import annotations

from ..agent.interrupts import call_of
from ..agent.resuming import unanswered
from ..errors import RequestError
from ..protocols.agui import Request
from ..protocols.agui.history import history_of

_OWN = "; an agent with interrupts of its own takes their answers where `deps` is a function"


def check_resume(request: Request, *, understood: bool) -> None:
    """Raises `RequestError`, with the place.

    `understood`: whether the agent sees answers to interrupts of its own, which no call shows.
    """
    if not request.resume:
        return
    waiting = unanswered(history_of(request.input.messages))
    answered: dict[str, int] = {}
    for index, entry in enumerate(request.resume):
        at, id = f"resume[{index}].interruptId", entry.interrupt_id
        call = call_of(id)
        if call is None and id not in waiting and understood:
            continue
        if call not in waiting or waiting[call].tool_name in request.own_tools:
            call = id
        if call not in waiting:
            own = "" if understood else _OWN
            what = f"{at}: no call at the end of the conversation waits for an answer to {id!r}{own}"
            raise RequestError(what, code="no_such_interrupt", param=at)
        if call in answered:
            what = f"{at}: resume[{answered[call]}] is an answer to the same call; give one"
            raise RequestError(what, code="invalid_value", param=at)
        answered[call] = index
    for id, left in waiting.items():
        if id not in answered:
            what = (
                f"resume: the call {id!r} of {left.tool_name!r} waits as well; answer all that waits, with an "
                "entry for each interrupt, and a tool message for each call of a tool of yours"
            )
            raise RequestError(what, code="missing", param="resume")
