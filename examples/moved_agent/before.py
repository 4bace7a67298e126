"""A support agent of Pydantic AI, which stores its conversations as JSON. `after.py` is the same agent in Pellucid."""

from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_ai import Agent, ModelMessagesTypeAdapter, ModelRetry, RunContext


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
    history = ModelMessagesTypeAdapter.validate_json(stored)
    result = await agent.run(question, model=model, deps=bank, message_history=history)
    return result.output, result.all_messages_json()
