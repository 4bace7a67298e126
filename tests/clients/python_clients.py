"""The Python clients of the matrix, as applications use them; in an environment of their own (`requirements.txt`).

    python python_clients.py '{"url": …, "models": {CLIENT: {SCENARIO: MODEL}}}'

Prints a line of JSON for each scenario of each client: what the client showed, or how it reported a failure.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
import warnings
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

warnings.simplefilter("ignore")

WEATHER: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION, NEXT_QUESTION = "Why?", "And why that?"


class Answer(NamedTuple):
    """An answer of the model, as the client shows it."""

    thought: str
    text: str
    calls: list[tuple[str, str]] = []  # noqa: RUF012 (never changed)
    """The id and the city of each call."""
    history: list[Any] = []  # noqa: RUF012
    """What an application appends to its history."""


def calls_of(output: list[Any]) -> list[tuple[str, str]]:
    """Return the id and the city of each call in the output of a response."""
    return [(item.call_id, json.loads(item.arguments)["city"]) for item in output if item.type == "function_call"]


class Client:
    """One client. `ask` and `results` are enough for those that leave the loop over calls to the application."""

    packages: tuple[str, ...] = ()
    """The distributions whose versions are shown."""

    def __init__(self, url: str) -> None:
        self.url = url
        """The gateway's address, without a path."""

    def question(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def ask(self, model: str, history: list[Any], *, stream: bool = True, tools: bool = False) -> Answer:
        raise NotImplementedError

    def results(self, calls: list[tuple[str, str]]) -> list[Any]:
        """Return messages with the result of each call."""
        return [{"role": "tool", "tool_call_id": id, "content": weather(city)} for id, city in calls]

    # --- the scenarios ---------------------------------------------------------------------------------------------

    def streamed(self, model: str) -> Any:
        return shown(self.ask(model, [self.question(QUESTION)]))

    def whole(self, model: str) -> Any:
        return shown(self.ask(model, [self.question(QUESTION)], stream=False))

    def tools(self, model: str) -> Any:
        history = [self.question(QUESTION)]
        while (answer := self.ask(model, history, tools=True)).calls:
            history += [*answer.history, *self.results(answer.calls)]
        return answer.text

    def next_turn(self, model: str) -> Any:
        history = [self.question(QUESTION)]
        history += [*self.ask(model, history).history, self.question(NEXT_QUESTION)]
        return self.ask(model, history).text

    def error(self, model: str) -> Any:
        return failure_of(lambda: self.streamed(model))

    def cut(self, model: str) -> Any:
        return failure_of(lambda: self.streamed(model))


def weather(city: str) -> str:
    """Look up the weather."""
    return f"rain in {city}"


def shown(answer: Answer) -> dict[str, str]:
    return {"thought": answer.thought, "text": answer.text}


class Failed(Exception):
    """An answer that failed, without an exception of the client. The text says how the client shows that."""


def failure_of(run: Any) -> str:
    """Return how a failure is shown: the exception's name, or what the application gets in place of an exception."""
    try:
        run()
    except Failed as failed:
        return str(failed)
    except Exception as error:
        return type(error).__name__
    return "nothing"


def joined(texts: Iterable[str | None]) -> str:
    return "".join(text for text in texts if text)


# --- OpenAI -----------------------------------------------------------------------------------------------------------


class OpenAIResponses(Client):
    packages = ("openai",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client: Any = import_module("openai").OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)

    def ask(self, model: str, history: list[Any], *, stream: bool = True, tools: bool = False) -> Answer:
        functions = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}]
        request: Any = {"model": model, "input": history, "tools": functions if tools else []}
        if not stream:
            response = self.client.responses.create(**request)
            items = [item for item in response.output if item.type == "reasoning"]
            return self._answer(response, joined(text.text for item in items for text in item.summary))
        thought = ""
        with self.client.responses.stream(**request) as events:
            for event in events:
                if event.type in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
                    thought += event.delta
            response = events.get_final_response()
        return self._answer(response, thought)

    def _answer(self, response: Any, thought: str) -> Answer:
        if response.status != "completed":
            raise Failed(f"status {response.status}")
        return Answer(
            thought, response.output_text, calls_of(response.output), [item.to_dict() for item in response.output]
        )

    def results(self, calls: list[tuple[str, str]]) -> list[Any]:
        return [{"type": "function_call_output", "call_id": id, "output": weather(city)} for id, city in calls]


class OpenAIChat(OpenAIResponses):
    def ask(self, model: str, history: list[Any], *, stream: bool = True, tools: bool = False) -> Answer:
        functions = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
        request = {"model": model, "messages": history, **({"tools": functions} if tools else {})}
        if not stream:
            message = self.client.chat.completions.create(**request).choices[0].message
            return self._message_answer(message, message.reasoning_content)
        thought = ""
        with self.client.chat.completions.stream(**request) as events:
            for event in events:
                if event.type == "chunk" and event.chunk.choices:
                    thought += getattr(event.chunk.choices[0].delta, "reasoning_content", None) or ""
            message = events.get_final_completion().choices[0].message
        return self._message_answer(message, thought)

    def _message_answer(self, message: Any, thought: str) -> Answer:
        calls = [(call.id, json.loads(call.function.arguments)["city"]) for call in message.tool_calls or []]
        echo = message.to_dict()
        echo.pop("parsed", None)
        for call in echo.get("tool_calls") or []:
            call["function"].pop("parsed_arguments", None)
        return Answer(thought, message.content or "", calls, [echo])

    results = Client.results


class OpenAIAgents(Client):
    packages = ("openai-agents",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        agents: Any = import_module("agents")
        agents.set_tracing_disabled(True)
        openai = import_module("openai").AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)
        self.runner = agents.Runner
        self.model: Any = lambda name: agents.OpenAIResponsesModel(model=name, openai_client=openai)
        self.make: Any = lambda name, tools: agents.Agent(name="a", model=self.model(name), tools=tools)
        self.get_weather = agents.function_tool(weather, name_override="get_weather")
        self.run: Any = asyncio.Runner().run  # in one loop, because the connections belong to it

    def streamed(self, model: str) -> Any:
        async def run() -> Answer:
            thought = ""
            result = self.runner.run_streamed(self.make(model, []), QUESTION)
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.reasoning_summary_text.delta":
                    thought += event.data.delta
            return Answer(thought, result.final_output)

        return shown(self.run(run()))

    def whole(self, model: str) -> Any:
        result = self.run(self.runner.run(self.make(model, []), QUESTION))
        items = [item.raw_item for item in result.new_items if item.type == "reasoning_item"]
        return shown(Answer(joined(text.text for item in items for text in item.summary), result.final_output))

    def tools(self, model: str) -> Any:
        return self.run(self.runner.run(self.make(model, [self.get_weather]), QUESTION)).final_output

    def next_turn(self, model: str) -> Any:
        async def run() -> Any:
            first = await self.runner.run(self.make(model, []), QUESTION)
            history = [*first.to_input_list(), self.question(NEXT_QUESTION)]
            return (await self.runner.run(self.make(model, []), history)).final_output

        return self.run(run())


# --- LangChain --------------------------------------------------------------------------------------------------------


class LangChain(Client):
    def chat(self, model: str) -> Any:
        raise NotImplementedError

    def ask(self, model: str, history: list[Any], *, stream: bool = True, tools: bool = False) -> Answer:
        chat = self.chat(model)
        if tools:
            chat = chat.bind_tools([import_module("langchain_core.tools").tool("get_weather")(weather)])
        if stream:
            thought, message = "", None
            for chunk in chat.stream(history):
                thought += self._thought(chunk)
                message = chunk if message is None else message + chunk
        else:
            message = chat.invoke(history)
            thought = self._thought(message)
        assert message is not None
        calls = [(call["id"], call["args"]["city"]) for call in message.tool_calls]
        return Answer(thought, message.text, calls, [message])

    @staticmethod
    def _thought(message: Any) -> str:
        return joined(block.get("reasoning") for block in message.content_blocks if block["type"] == "reasoning")


class LangChainResponses(LangChain):
    packages = ("langchain-openai", "openai")

    def chat(self, model: str) -> Any:
        return import_module("langchain_openai").ChatOpenAI(
            model=model, use_responses_api=True, base_url=f"{self.url}/v1", api_key="any", max_retries=0
        )


class LangChainChat(LangChain):
    packages = ("langchain-openai", "openai")

    def chat(self, model: str) -> Any:
        return import_module("langchain_openai").ChatOpenAI(
            model=model, base_url=f"{self.url}/v1", api_key="any", max_retries=0
        )


class LangChainAnthropic(LangChain):
    packages = ("langchain-anthropic", "anthropic")

    def chat(self, model: str) -> Any:
        return import_module("langchain_anthropic").ChatAnthropic(
            model=model, base_url=self.url, api_key="any", max_retries=0
        )


# --- litellm ----------------------------------------------------------------------------------------------------------


class LiteLLMCompletion(Client):
    """`completion` over Chat Completions; `prefix` chooses the provider, and so the protocol."""

    packages = ("litellm",)
    prefix = "openai/"
    path = "/v1"

    def ask(self, model: str, history: list[Any], *, stream: bool = True, tools: bool = False) -> Answer:
        litellm: Any = import_module("litellm")
        litellm.suppress_debug_info = True
        functions = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
        request = {
            "model": f"{self.prefix}{model}",
            "messages": history,
            "api_base": f"{self.url}{self.path}",
            "api_key": "any",
            "num_retries": 0,
            "max_retries": 0,
            **({"tools": functions} if tools else {}),
        }
        if stream:
            chunks = list(litellm.completion(stream=True, **request))
            thought = joined(getattr(chunk.choices[0].delta, "reasoning_content", None) for chunk in chunks)
            message = litellm.stream_chunk_builder(chunks, messages=history).choices[0].message
        else:
            message = litellm.completion(**request).choices[0].message
            thought = message.reasoning_content or ""
        calls = [(call.id, json.loads(call.function.arguments)["city"]) for call in message.tool_calls or []]
        return Answer(thought, message.content or "", calls, [message.model_dump()])


class LiteLLMMessages(LiteLLMCompletion):
    prefix = "anthropic/"
    path = ""


class LiteLLMBridge(LiteLLMCompletion):
    prefix = "openai/responses/"


class LiteLLMResponses(OpenAIResponses):
    packages = ("litellm",)

    def __init__(self, url: str) -> None:
        Client.__init__(self, url)

    def ask(self, model: str, history: list[Any], *, stream: bool = True, tools: bool = False) -> Answer:
        litellm: Any = import_module("litellm")
        functions = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}]
        request = {
            "model": f"openai/{model}",
            "input": history,
            "api_base": f"{self.url}/v1",
            "api_key": "any",
            "num_retries": 0,
            "max_retries": 0,
            **({"tools": functions} if tools else {}),
        }
        thought, response = "", None
        if stream:
            for event in litellm.responses(stream=True, **request):
                if event.type == "response.reasoning_summary_text.delta":
                    thought += event.delta
                elif event.type in ("response.completed", "response.failed", "response.incomplete"):
                    response = event.response
        else:
            response = litellm.responses(**request)
            thought = joined(
                text["text"] if isinstance(text, dict) else text.text
                for item in response.output
                if item.type == "reasoning"
                for text in item.summary
            )
        assert response is not None
        if response.status != "completed":
            raise Failed(f"status {response.status}")
        history = [item.model_dump(exclude_none=True) for item in response.output]
        return Answer(thought, response.output_text, calls_of(response.output), history)


# --- Anthropic --------------------------------------------------------------------------------------------------------


class Anthropic(Client):
    packages = ("anthropic",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.client: Any = import_module("anthropic").Anthropic(base_url=url, api_key="any", max_retries=0)

    def ask(self, model: str, history: list[Any], *, stream: bool = True, tools: bool = False) -> Answer:
        functions = [{"name": "get_weather", "input_schema": WEATHER}]
        request = {"model": model, "max_tokens": 999, "messages": history, **({"tools": functions} if tools else {})}
        if stream:
            with self.client.messages.stream(**request) as events:
                thought = joined(event.thinking for event in events if event.type == "thinking")
                message = events.get_final_message()
        else:
            message = self.client.messages.create(**request)
            thought = joined(block.thinking for block in message.content if block.type == "thinking")
        text = joined(block.text for block in message.content if block.type == "text")
        calls = [(block.id, block.input["city"]) for block in message.content if block.type == "tool_use"]
        return Answer(thought, text, calls, [message.to_param()])

    def results(self, calls: list[tuple[str, str]]) -> list[Any]:
        results = [{"type": "tool_result", "tool_use_id": id, "content": weather(city)} for id, city in calls]
        return [{"role": "user", "content": results}]


# --- Pydantic AI ------------------------------------------------------------------------------------------------------


class PydanticAI(Client):
    packages = ("pydantic-ai-slim",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.run: Any = asyncio.Runner().run

    def agent(self, model: str, tools: Any = ()) -> Any:
        provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(
            openai_client=import_module("openai").AsyncOpenAI(base_url=f"{self.url}/v1", api_key="any", max_retries=0)
        )
        openai: Any = import_module("pydantic_ai.models.openai")
        return import_module("pydantic_ai").Agent(self.model(openai, model, provider), tools=tools)

    def model(self, openai: Any, model: str, provider: Any) -> Any:
        return openai.OpenAIResponsesModel(model, provider=provider)

    def streamed(self, model: str) -> Any:
        async def run() -> Answer:
            thought = text = ""
            async with self.agent(model).run_stream_events(QUESTION) as events:
                async for event in events:
                    if event.event_kind == "part_start" and event.part.part_kind == "thinking":
                        thought += event.part.content
                    elif event.event_kind == "part_start" and event.part.part_kind == "text":
                        text += event.part.content
                    elif event.event_kind == "part_delta" and event.delta.part_delta_kind == "thinking":
                        thought += event.delta.content_delta or ""
                    elif event.event_kind == "part_delta" and event.delta.part_delta_kind == "text":
                        text += event.delta.content_delta
            return Answer(thought, text)

        return shown(self.run(run()))

    def whole(self, model: str) -> Any:
        result = self.run(self.agent(model).run(QUESTION))
        parts = result.all_messages()[-1].parts
        return shown(Answer(joined(part.content for part in parts if part.part_kind == "thinking"), result.output))

    def tools(self, model: str) -> Any:
        tool = import_module("pydantic_ai").Tool(weather, name="get_weather")
        return self.run(self.agent(model, [tool]).run(QUESTION)).output

    def next_turn(self, model: str) -> Any:
        async def run() -> Any:
            agent = self.agent(model)
            first = await agent.run(QUESTION)
            return (await agent.run(NEXT_QUESTION, message_history=first.all_messages())).output

        return self.run(run())


class PydanticAIChat(PydanticAI):
    def model(self, openai: Any, model: str, provider: Any) -> Any:
        return openai.OpenAIChatModel(model, provider=provider)


class PydanticAIAnthropic(PydanticAI):
    def agent(self, model: str, tools: Any = ()) -> Any:
        client = import_module("anthropic").AsyncAnthropic(base_url=self.url, api_key="any", max_retries=0)
        provider = import_module("pydantic_ai.providers.anthropic").AnthropicProvider(anthropic_client=client)
        model_type = import_module("pydantic_ai.models.anthropic").AnthropicModel
        return import_module("pydantic_ai").Agent(model_type(model, provider=provider), tools=tools)


CLIENTS: dict[str, type[Client]] = {
    "openai-python": OpenAIResponses,
    "openai-python-chat": OpenAIChat,
    "openai-agents-python": OpenAIAgents,
    "langchain-responses": LangChainResponses,
    "langchain-chat": LangChainChat,
    "langchain-anthropic": LangChainAnthropic,
    "litellm-responses": LiteLLMResponses,
    "litellm-bridge": LiteLLMBridge,
    "litellm-chat": LiteLLMCompletion,
    "litellm-messages": LiteLLMMessages,
    "anthropic-python": Anthropic,
    "pydantic-ai-responses": PydanticAI,
    "pydantic-ai-chat": PydanticAIChat,
    "pydantic-ai-messages": PydanticAIAnthropic,
}


def report(**message: Any) -> None:
    sys.stdout.write(f"{json.dumps(message)}\n")
    sys.stdout.flush()


def main(url: str, models: dict[str, dict[str, str]]) -> None:
    for name, scenarios in models.items():
        client = CLIENTS[name](url)
        report(client=name, versions={package: version(package) for package in client.packages})
        for scenario, model in scenarios.items():
            try:
                value = getattr(client, scenario)(model)
            except Exception:
                value = f"broken: {traceback.format_exc(limit=-3)}"
            report(client=name, scenario=scenario, value=value)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
