"""A pass-through made of uvicorn and aiohttp: the minimum that a gateway in Python does for a request.

    .venv/bin/python bench/passthrough.py --port 9200 --upstream http://127.0.0.1:9100

One ASGI application and one aiohttp session: it reads the body, forwards it, and passes each piece of the answer to its
client when it arrives. It parses, checks, logs and stores nothing. uvicorn has the gateway's own loop and parser.
"""

from __future__ import annotations

import argparse
from typing import Any

import aiohttp
import uvicorn


class PassThrough:
    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if self._session is None:  # made here, as a session belongs to the loop that is running
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(self._upstream, connector=connector, auto_decompress=False)
        headers = {"Content-Type": "application/json"}
        async with self._session.post(scope["path"], data=bytes(body), headers=headers) as answer:
            kind = answer.headers["Content-Type"].encode()
            await send({"type": "http.response.start", "status": answer.status, "headers": [(b"content-type", kind)]})
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    options = parser.parse_args()
    uvicorn.run(
        PassThrough(options.upstream),
        host="127.0.0.1", port=options.port, backlog=4096,
        loop="uvloop", http="httptools", lifespan="off", log_level="warning", access_log=False,
    )  # fmt: skip
