"""Agents of three frameworks and a person in one space:  python session.py

There are a gateway with the space `release`, an agent of Pellucid (`database`), a graph of LangGraph (`plan`), an agent
of Pydantic AI (`tests`), all with scripted models, and a person (here scripted, too) who asks, who answers what the
graph asks, and who then asks one of them alone: the answer, and the reasoning for it, are for the two.
"""

import asyncio
import contextlib
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

import langgraph_agent
import own_agent
import pydantic_ai_agent
import uvicorn

from pellucid.cli.transcript import Transcript
from pellucid.envelopes import Envelope
from pellucid.server import create_app
from pellucid.server.config import check_config
from pellucid.spaces import AgentInSpace, FunctionInSpace, Participant
from pellucid.spaces.adapters.langgraph import langgraph_agent as graph_function
from pellucid.spaces.adapters.pydantic_ai import pydantic_ai_agent as agent_function

AGENTS = ("database", "plan", "tests")
TALKS = ["chat", "mcp/*", "reasoning/*"]


async def session(url: str, tokens: dict[str, str], show: Callable[[Envelope], None]) -> dict[str, Envelope]:
    """Have all agents answer a question, and one of them another; return their last answers.

    Args:
        url: The URL of the space.
        tokens: The tokens of the participants.
        show: Gets each envelope.
    """
    async with contextlib.AsyncExitStack() as here:

        async def join(name: str) -> Participant:
            return await here.enter_async_context(Participant(url, token=tokens[name], history=0))

        agents = [
            AgentInSpace(own_agent.agent, await join("database"), answers=["person"], tools=False),
            FunctionInSpace(graph_function(langgraph_agent.graph), await join("plan"), answers=["person"]),
            FunctionInSpace(agent_function(pydantic_ai_agent.agent), await join("tests"), answers=["person"]),
        ]
        for agent in agents:
            await here.enter_async_context(agent)
        person = await join("person")
        question = await person.say("Can we release today?")
        answers: dict[str, Envelope] = {}
        async for envelope in person:
            show(envelope)
            if envelope.kind != "chat" or envelope.sender not in AGENTS:
                continue
            if envelope.correlation_id == (question.id,):  # it asks, while it thinks
                await person.say("Ada", answers=envelope)
                continue
            answers[envelope.sender] = envelope
            if question.to:
                return answers
            if len(answers) == len(AGENTS):
                question = await person.say("Could we restore the backup, if it fails?", to=["database"])
    raise RuntimeError("the space was closed before all had answered")


@contextlib.asynccontextmanager
async def a_gateway(folder: Path):
    """Run a gateway with the space; yield the URL of the space and the tokens of the participants."""
    tokens = {name: f"pst_{secrets.token_urlsafe(32)}" for name in (*AGENTS, "person")}
    participants = {}
    for name, token in tokens.items():
        (folder / name).write_text(token)
        participants[name] = {"token_file": str(folder / name), "capabilities": TALKS}
    space = {"participants": participants, "talk": {"turns": 20, "seconds": 300, "people": ["person"]}}
    config = check_config(
        {
            "local": {"enabled": False},
            "storage": {"url": f"sqlite:///{folder / 'release.db'}"},
            "spaces": {"release": space},
        },
        {},
    )
    server = uvicorn.Server(uvicorn.Config(create_app(config), host="127.0.0.1", port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        yield f"ws://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/spaces/release/ws", tokens
    finally:
        server.should_exit = True
        await serving


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with a_gateway(Path(folder)) as (url, tokens):
            await session(url, tokens, Transcript().show)


if __name__ == "__main__":
    asyncio.run(main())
