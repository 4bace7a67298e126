"""A small MCP server without the MCP package, which starts in milliseconds and has sessions (MCP of 2025).

As a process: `small_peer.py [late] [endless]`, over its standard streams. `late`: it begins to read after half a
second; `endless`: its listing has no last page. In a thread: `SmallHTTPPeer`, over streamable HTTP.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

NAMES = ["add", "die", "env", "pid", "slow", "under_way"]


class Tools:
    """The tools of the server."""

    def __init__(self, *, endless: bool = False) -> None:
        self._endless = endless
        self._slow_calls = 0

    def reply(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a message, or None if there is none (a notification, a slow call)."""
        if "id" not in message:
            return None
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        match message["method"]:
            case "initialize":
                version = message["params"]["protocolVersion"]
                info = {"name": "small", "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
                return {**answer, "result": result}
            case "tools/list" if self._endless:
                return {**answer, "result": {"tools": [], "nextCursor": "again"}}
            case "tools/list":
                return {**answer, "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in NAMES]}}
            case "tools/call":
                text = self._call(message["params"]["name"], message["params"].get("arguments") or {})
                content = [{"type": "text", "text": text}]
                return None if text is None else {**answer, "result": {"content": content}}
        return {**answer, "error": {"code": -32601, "message": "no such method"}}

    def _call(self, name: str, arguments: dict[str, Any]) -> str | None:
        match name:
            case "add":
                return str(arguments["a"] + arguments["b"])
            case "die":
                os._exit(1)
            case "env":
                return os.environ.get(arguments["name"], "none")
            case "pid":
                return str(os.getpid())
            case "under_way":
                return str(self._slow_calls)
        self._slow_calls += 1
        return None


class SmallHTTPPeer:
    """The server in a thread of this process."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        """The known sessions. If they are cleared, the server is as after a restart."""
        numbers, tools, sessions = count(1), Tools(), self.sessions

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                session = self.headers.get("mcp-session-id")
                if message.get("method") == "initialize":
                    session = f"session-{next(numbers)}"
                    sessions.add(session)
                elif session is not None and session not in sessions:
                    self._answer(404, None, None)
                    return
                reply = tools.reply(message)
                self._answer(202 if reply is None else 200, reply, session)

            def do_GET(self) -> None:
                self._answer(405, None, None)

            def do_DELETE(self) -> None:
                self._answer(200, None, None)

            def _answer(self, status: int, reply: dict[str, Any] | None, session: str | None) -> None:
                body = b"" if reply is None else json.dumps(reply).encode()
                self.send_response(status)
                if session is not None:
                    self.send_header("mcp-session-id", session)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="small peer")
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def __enter__(self) -> SmallHTTPPeer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def main(options: list[str]) -> None:
    if "late" in options:
        time.sleep(0.5)
    tools = Tools(endless="endless" in options)
    for line in sys.stdin:
        if (reply := tools.reply(json.loads(line))) is not None:
            print(json.dumps(reply), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
