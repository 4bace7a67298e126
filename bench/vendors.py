"""Other decoders of the same bytes: each vendor's SDK, and Pydantic AI on top of it.

The bytes come from memory, through the HTTP client that the SDK uses, one chunk a read. The clock starts when the
response is there (for Pydantic AI: with its first event), so that what a request costs is not in it, and stops after
the last event. Everything that an SDK needs is imported here and nowhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, NamedTuple

MODEL, QUESTION, KEY = "some-model", "Count the sheep.", "not-a-key"
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]


class Run(NamedTuple):
    """What one answer cost to read, and what came of it."""

    seconds: float
    """CPU time of this thread."""
    events: int


Reads = list[bytes]
Candidate = Callable[[Reads, str], Run]
"""Reads an answer of this content type."""


def _http(package: str, reads: Reads, content_type: str) -> tuple[Any, Any]:
    """A client and an asynchronous one, of `httpx` or its successor, which get this answer whatever they ask."""
    http: Any = __import__(package)

    class Chunks(http.SyncByteStream, http.AsyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            yield from reads

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for read in reads:
                yield read

    class Memory(http.BaseTransport, http.AsyncBaseTransport):  # type: ignore[misc]
        def handle_request(self, request: Any) -> Any:
            return http.Response(200, headers={"content-type": content_type}, stream=Chunks())

        async def handle_async_request(self, request: Any) -> Any:
            return self.handle_request(request)

    return http.Client(transport=Memory()), http.AsyncClient(transport=Memory())


def _drain(stream: Iterable[Any]) -> Run:
    started = time.thread_time()
    events = sum(1 for _ in stream)
    return Run(time.thread_time() - started, events)


# --- the vendors' own ---------------------------------------------------------------------------------------------


def openai(reads: Reads, content_type: str) -> Run:
    from openai import OpenAI

    client = OpenAI(api_key=KEY, http_client=_http("httpx2", reads, content_type)[0])
    return _drain(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))


def openai_responses(reads: Reads, content_type: str) -> Run:
    from openai import OpenAI

    client = OpenAI(api_key=KEY, http_client=_http("httpx2", reads, content_type)[0])
    return _drain(client.responses.create(model=MODEL, input=QUESTION, stream=True))


def groq(reads: Reads, content_type: str) -> Run:
    from groq import Groq

    client = Groq(api_key=KEY, http_client=_http("httpx", reads, content_type)[0])
    return _drain(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))


def anthropic(reads: Reads, content_type: str) -> Run:
    from anthropic import Anthropic

    client = Anthropic(api_key=KEY, http_client=_http("httpx2", reads, content_type)[0])
    return _drain(client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=9999, stream=True))


def google(reads: Reads, content_type: str) -> Run:
    from google.genai import Client
    from google.genai.types import HttpOptions

    options = HttpOptions(httpx_client=_http("httpx", reads, content_type)[0])
    stream = Client(api_key=KEY, http_options=options).models.generate_content_stream(model=MODEL, contents=QUESTION)
    # The request is only sent when the first chunk is requested.
    next(iter(stream))
    return _drain(stream)


def mistral(reads: Reads, content_type: str) -> Run:
    from mistralai.client import Mistral

    client = Mistral(api_key=KEY, client=_http("httpx", reads, content_type)[0])
    return _drain(client.chat.stream(model=MODEL, messages=MESSAGES))


def cohere(reads: Reads, content_type: str) -> Run:
    from cohere import ClientV2

    client = ClientV2(api_key=KEY, httpx_client=_http("httpx", reads, content_type)[0])
    stream = client.chat_stream(model=MODEL, messages=MESSAGES)
    next(iter(stream))
    return _drain(stream)


def ollama(reads: Reads, content_type: str) -> Run:
    from ollama import Client

    client = Client(transport=_http("httpx", reads, content_type)[0]._transport)
    stream = client.chat(model=MODEL, messages=MESSAGES, stream=True)
    next(iter(stream))
    return _drain(stream)


SDKS: dict[str, Candidate] = {
    "openai_chat": openai,
    "groq": groq,
    "openai_responses": openai_responses,
    "anthropic": anthropic,
    "google": google,
    "mistral": mistral,
    "cohere": cohere,
    "ollama": ollama,
}
"""By the answer's name. There is none for what is missing: botocore reads Bedrock's answers through sockets of its own,
and no SDK of Google's asks for the array."""


# --- Pydantic AI --------------------------------------------------------------------------------------------------


def _openai_model(reads: Reads, content_type: str) -> Any:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(api_key=KEY, http_client=_http("httpx2", reads, content_type)[1])
    return OpenAIChatModel(MODEL, provider=provider)


def _responses_model(reads: Reads, content_type: str) -> Any:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(api_key=KEY, http_client=_http("httpx2", reads, content_type)[1])
    return OpenAIResponsesModel(MODEL, provider=provider)


def _groq_model(reads: Reads, content_type: str) -> Any:
    from pydantic_ai.models.groq import GroqModel
    from pydantic_ai.providers.groq import GroqProvider

    return GroqModel(MODEL, provider=GroqProvider(api_key=KEY, http_client=_http("httpx", reads, content_type)[1]))


def _anthropic_model(reads: Reads, content_type: str) -> Any:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(api_key=KEY, http_client=_http("httpx2", reads, content_type)[1])
    return AnthropicModel(MODEL, provider=provider)


def _google_model(reads: Reads, content_type: str) -> Any:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel(MODEL, provider=GoogleProvider(api_key=KEY, http_client=_http("httpx2", reads, content_type)[1]))


def _mistral_model(reads: Reads, content_type: str) -> Any:
    from pydantic_ai.models.mistral import MistralModel
    from pydantic_ai.providers.mistral import MistralProvider

    provider = MistralProvider(api_key=KEY, http_client=_http("httpx2", reads, content_type)[1])
    return MistralModel(MODEL, provider=provider)


_MODELS: dict[str, Callable[[Reads, str], Any]] = {
    "openai_chat": _openai_model,
    "groq": _groq_model,
    "openai_responses": _responses_model,
    "anthropic": _anthropic_model,
    "google": _google_model,
    "mistral": _mistral_model,
}
"""Its Cohere model does not stream; Ollama's own wire it does not speak."""


def _pydantic_ai(make: Callable[[Reads, str], Any]) -> Candidate:
    async def run(reads: Reads, content_type: str) -> Run:
        from pydantic_ai import Agent

        events, started = 0, 0.0
        async with Agent(make(reads, content_type)).run_stream_events(QUESTION) as stream:
            async for _ in stream:
                if not events:
                    started = time.thread_time()
                events += 1
            return Run(time.thread_time() - started, events)

    loop = asyncio.new_event_loop()
    return lambda reads, content_type: loop.run_until_complete(run(reads, content_type))


PYDANTIC_AI: dict[str, Candidate] = {name: _pydantic_ai(make) for name, make in _MODELS.items()}
