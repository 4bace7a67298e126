"""The agent of `before.py`, moved from Pydantic AI to Pellucid: other imports, and the conversations that are stored.

Those that Pydantic AI's agent stored are converted. The model gets its own signed reasoning back from them.
"""

from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_ai import ModelMessagesTypeAdapter

from pellucid import Agent, ModelRetry, RunContext, messages_from_json, messages_to_json
from pellucid.interop.pydantic_ai import from_pydantic


@dataclass
class Bank:
    customer: str
    balances: dict[str, float]


class Answer(BaseModel):
    advice: str
    risk: int


agent = Agent(deps_type=Bank, output_type=Answer, instructions="You are a support agent of a bank.")


@agent.instructions
def greet(ctx: RunContext[Bank]) -> str:
    return f"The customer's name is {ctx.deps.customer}."


@agent.tool
async def balance(ctx: RunContext[Bank], account: str) -> float:
    """Return the balance of an account.

    Args:
        account: Its name.
    """
    if account not in ctx.deps.balances:
        raise ModelRetry(f"There is no account {account}; there are: {', '.join(ctx.deps.balances)}")
    return ctx.deps.balances[account]


async def answer(model, question: str, bank: Bank, stored: bytes = b"[]") -> tuple[Answer, bytes]:
    """Answer a question, and return the conversation to store."""
    history = messages_from_json(stored)
    result = await agent.run(question, model=model, deps=bank, message_history=history)
    return result.output, messages_to_json(result.all_messages())


def converted(stored: bytes) -> bytes:
    """Convert a conversation that Pydantic AI's agent stored. This is done once for each."""
    return messages_to_json(from_pydantic(ModelMessagesTypeAdapter.validate_json(stored)))
