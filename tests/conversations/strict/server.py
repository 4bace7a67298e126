"""The upstreams behind one real HTTP server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from aiohttp import web

from .chat import (
    VLLM,
    Cerebras,
    CerebrasHarmony,
    Chat,
    Copilot,
    DeepSeek,
    Groq,
    Kimi,
    MiniMax,
    NoReasoning,
    OpenRouter,
    UnreturnedReasoning,
)
from .claude import Anthropic, Bedrock, BedrockUnsigned, DeepSeekMessages
from .core import Refusal, Upstream
from .google import Gemini, Gemini2
from .responses import OpenResponses, Responses
from .typed import Cohere, Mistral, Ollama

# side: (kind, row, model)
SIDES: dict[str, tuple[type[Upstream], str, str]] = {
    "openai": (Responses, "openai-responses", "gpt-5.6"),
    "openai-other": (Responses, "openai-responses", "gpt-5.6-mini"),
    "azure": (Responses, "azure-responses", "gpt-5.6"),
    "vllm-responses": (OpenResponses, "vllm-responses", "qwen3"),
    "claude-manual": (Anthropic, "anthropic", "claude-sonnet-4-5"),
    "claude": (Anthropic, "anthropic", "claude-opus-5"),
    "deepseek-messages": (DeepSeekMessages, "deepseek-anthropic", "deepseek-v4-pro"),
    "gemini": (Gemini, "google", "gemini-3-pro"),
    "gemini-2": (Gemini2, "google", "gemini-2.5-pro"),
    "vertex": (Gemini, "google-vertex", "gemini-3-pro"),
    "mistral": (Mistral, "mistral", "mistral-medium-latest"),
    "cohere": (Cohere, "cohere", "command-a-reasoning-08-2025"),
    "bedrock-manual": (Bedrock, "bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    "bedrock": (Bedrock, "bedrock", "us.anthropic.claude-opus-5-v1:0"),
    "bedrock-r": (BedrockUnsigned, "bedrock", "us.deepseek.r1-v1:0"),
    "ollama": (Ollama, "ollama-native", "qwen3"),
    "deepseek": (DeepSeek, "deepseek", "deepseek-v4-pro"),
    "openrouter": (OpenRouter, "openrouter", "anthropic/claude-opus-5"),
    "vllm": (VLLM, "vllm", "qwen3"),
    "groq": (Groq, "groq", "qwen/qwen3-32b"),
    "kimi": (Kimi, "kimi", "kimi-k2.6"),
    "minimax": (MiniMax, "minimax", "MiniMax-M3"),
    "cerebras": (Cerebras, "cerebras", "zai-glm-4.7"),
    "cerebras-harmony": (CerebrasHarmony, "cerebras", "gpt-oss-120b"),
    "copilot": (Copilot, "copilot", "gpt-5.6"),
    "glm": (Chat, "zai", "glm-5.2"),
    "qwen": (UnreturnedReasoning, "qwen", "qwen3-max"),
    "openai-chat": (NoReasoning, "openai", "gpt-5.6"),
}


class StrictServer:
    """Upstreams on one port, each under its own path.

    Args:
        sides: Kind, row and model of each.
    """

    def __init__(self, sides: Mapping[str, tuple[type[Upstream], str, str]] = SIDES) -> None:
        self._sides = sides
        self.upstreams: dict[str, Upstream] = {}
        self.reset()
        self.url = ""
        self._runner: web.AppRunner | None = None

    def reset(self) -> None:
        """Discard the state of all upstreams, for another conversation."""
        self.upstreams = {side: kind(side, row, model) for side, (kind, row, model) in self._sides.items()}

    async def start(self) -> None:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/{side}/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        upstream = self.upstreams[request.match_info["side"]]
        try:
            pieces, is_endless = upstream.handle_request(await request.read(), request.path)
        except Refusal as refusal:
            body = {"error": {"message": str(refusal), "type": "invalid_request_error"}}
            return web.Response(status=refusal.status, text=json.dumps(body), content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": upstream.content_type})
        await response.prepare(request)
        await response.write(b"".join(pieces))
        if is_endless:
            await asyncio.Event().wait()
        return response
