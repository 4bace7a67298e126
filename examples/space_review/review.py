"""Three agents review a change in a space, with visible reasoning:  python review.py

There are a gateway with the space `review`, three agents on the embedded model, a participant with (scripted) tools,
and a user who sends the question. `security` and `performance` reason at the same time, each in its own context; when
both have answered, `release` decides. To use another model: python review.py anthropic:claude-sonnet-4-0
"""

import asyncio
import contextlib
import secrets
import sys
import tempfile
from pathlib import Path

import uvicorn

from pellucid import Agent, NativeOutput
from pellucid.cli.transcript import Transcript
from pellucid.envelopes import Envelope, text_of
from pellucid.models.infer import infer_model
from pellucid.server import create_app
from pellucid.server.config import check_config
from pellucid.spaces import AgentInSpace, Participant, ToolsInSpace
from tools import TOOLS

MODEL = "local:qwen2.5-coder-1.5b"
QUESTION = "Should we deploy this auth change?"
BRIEF = "Think in one or two sentences. Answer in one sentence."
ROLES = {
    "security": "You review changes for security alone. First call security_scan, then judge by what it says.",
    "performance": "You review changes for performance alone. First call load_test, then judge by what it says.",
    "release": "You decide whether a change is deployed, from what the reviewers said. A critical finding forbids it.",
}
DEPLOY, DO_NOT_DEPLOY = "We deploy.", "We do not deploy."
MAX_TOKENS = 200
LIMIT_SECONDS = 240
TALKS = ["chat", "mcp/*", "reasoning/*"]
PARTICIPANTS = {**dict.fromkeys([*ROLES, "tools"], TALKS), "user": [*TALKS, "space/observe"]}


def decide(reason: str, deploy: bool) -> str:
    """Decide whether the change is deployed.

    Args:
        reason: The reason, in one sentence.
        deploy: Whether it is deployed.
    """
    return f"{DEPLOY if deploy else DO_NOT_DEPLOY} {reason}"


class WhenAllHaveSpoken:
    """Selects the envelope that `release` answers: the last of the reviewers' answers."""

    def __init__(self, *reviewers: str) -> None:
        self.waiting = set(reviewers)

    def __call__(self, envelope: Envelope) -> bool:
        was_waiting = envelope.sender in self.waiting
        self.waiting.discard(envelope.sender)
        return was_waiting and not self.waiting


async def review(
    url: str, tokens: dict[str, str], model, show, question: str = QUESTION, limit_seconds: float = LIMIT_SECONDS
) -> Envelope:
    """Return the decision of `release`, or a message why there is none.

    Args:
        url: The URL of the space.
        tokens: The tokens of the participants.
        model: The model of all agents, or a model for each agent, by name.
        show: Gets each envelope.
        question: The user's question.
        limit_seconds: How long the user waits for the decision.
    """
    models = model if isinstance(model, dict) else dict.fromkeys(ROLES, model)

    def be(name: str) -> Participant:
        return Participant(url, token=tokens[name], history=0)

    async with contextlib.AsyncExitStack() as here:
        await here.enter_async_context(ToolsInSpace(await here.enter_async_context(be("tools")), TOOLS))
        for name, role in ROLES.items():
            # A small model decides in form if it has no choice: the provider forces the answer to fit `decide`.
            output = NativeOutput(decide) if name == "release" else str
            agent = Agent(
                models[name],
                name=name,
                instructions=f"{role} {BRIEF}",
                model_settings={"max_tokens": MAX_TOKENS},
                output_type=output,
            )
            me = await here.enter_async_context(be(name))
            answers = WhenAllHaveSpoken("security", "performance") if name == "release" else ["user"]
            await here.enter_async_context(AgentInSpace(agent, me, answers=answers, tools=name != "release"))
        user = await here.enter_async_context(be("user"))
        sent = await user.say(question)
        missing = dict.fromkeys(ROLES)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_seconds):
                async for envelope in user:
                    show(envelope)
                    if envelope.kind == "chat" and envelope.sender in missing:
                        del missing[envelope.sender]
                    if envelope.kind == "chat" and envelope.sender == "release":
                        return envelope
        # The agents stop when this block ends, and so does what they think.
        reason = f"No decision: {', '.join(missing)} did not answer within {limit_seconds:g} s."
        return await user.say(reason, answers=sent)


@contextlib.asynccontextmanager
async def a_gateway(folder: Path):
    """Run a gateway with the space; yield the URL of the space and the tokens of the participants."""
    tokens = {name: f"pst_{secrets.token_urlsafe(32)}" for name in PARTICIPANTS}
    participants = {}
    for name, may in PARTICIPANTS.items():
        (folder / name).write_text(tokens[name])
        participants[name] = {"token_file": str(folder / name), "capabilities": may}
    config = check_config(
        {
            "local": {"enabled": False},
            "storage": {"url": f"sqlite:///{folder / 'review.db'}"},
            "spaces": {"review": {"participants": participants}},
        },
        {},
    )
    server = uvicorn.Server(uvicorn.Config(create_app(config), host="127.0.0.1", port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        yield f"ws://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/spaces/review/ws", tokens
    finally:
        server.should_exit = True
        await serving


async def main(model: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with a_gateway(Path(folder)) as (url, tokens):
            decision = await review(url, tokens, infer_model(model), Transcript().show)
    is_decided = text_of(decision).startswith((DEPLOY, DO_NOT_DEPLOY))
    print(f"\n{'Decided' if is_decided else 'Ended'}: {text_of(decision)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or [MODEL]))
