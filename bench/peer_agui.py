"""Pydantic AI with its own AG-UI adapter, for comparison with the gateway's `/ag-ui`.

    bench/.venv/bin/python bench/peer_agui.py --port 9200 --upstream http://127.0.0.1:9100/v1

As its documentation has it: an agent without tools, `AGUIAdapter.dispatch_request` in a Starlette route, served by
uvicorn with what the gateway is served with (uvloop, httptools, no access log). It runs in the bench's own environment.
"""

from __future__ import annotations

import argparse

import uvicorn
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    options = parser.parse_args()
    model = OpenAIChatModel("mock-r1", provider=OpenAIProvider(base_url=options.upstream, api_key="not-a-key"))
    agent = Agent(model)

    async def run(request: Request) -> Response:
        return await AGUIAdapter.dispatch_request(request, agent=agent)

    app = Starlette(routes=[Route("/ag-ui", run, methods=["POST"])])
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=options.port,
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        backlog=4096,
    )


if __name__ == "__main__":
    main()
