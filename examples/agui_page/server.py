"""An agent and its page, from one server.

    npm install && npm run build         # once: @ag-ui/client for the browser
    uvicorn server:app                   # http://127.0.0.1:8000

`MODEL` in the environment names another model (`anthropic:claude-sonnet-4-0`, `openai:gpt-5` …).
"""

import os
from datetime import datetime
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from pellucid import Agent, ApprovalRequired, RunContext, agui
from pellucid.protocols.agui import StepFinishedEvent, StepStartedEvent

HERE = Path(__file__).parent

agent = Agent(
    os.environ.get("MODEL", "local:qwen2.5-coder-1.5b"),
    instructions="Answer briefly. Use the tools only where they are needed.",
    model_settings={"thinking": True},
)


@agent.tool
def now(ctx: RunContext[None]) -> str:
    """Return the date and the time of day."""
    ctx.emit(StepStartedEvent(step_name="looking at the clock"))
    time = datetime.now().astimezone().isoformat(timespec="seconds")
    ctx.emit(StepFinishedEvent(step_name="looking at the clock"))
    return time


@agent.tool
def send_mail(ctx: RunContext[None], to: str, text: str) -> str:
    """Send a mail.

    Args:
        to: The address.
        text: Its text.
    """
    if not ctx.tool_call_approved:  # the page shows the question, and a second run continues here
        raise ApprovalRequired(message=f"Send this to {to}? “{text}”")
    return "It was sent."  # this is an example: nothing is sent


app = Starlette(routes=[Mount("/agent", agui(agent)), Mount("/", StaticFiles(directory=HERE, html=True))])
