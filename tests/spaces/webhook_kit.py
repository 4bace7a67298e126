"""A receiver of webhooks, which fails, hangs, is down and comes back as a test says, and checks signatures itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Receiver:
    """An HTTP server on a port of its own.

    Args:
        status: Returns the status for an attempt, by its number; 0: the receiver hangs.
    """

    def __init__(self, status: Callable[[int], int] = lambda attempt: 200) -> None:
        self.status = status
        self.attempts: list[str] = []
        """Ids of all messages, in order."""
        self.accepted: list[tuple[str, dict[str, Any]]] = []
        """Id and body of those that were accepted."""
        self.wrong: list[str] = []
        self._released = threading.Event()
        self._port = 0
        self.start()

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._receive(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/hook?token=secret"

    @property
    def texts(self) -> list[str]:
        """Texts of the accepted chats, each message once."""
        return [
            body["data"]["envelope"]["payload"]["text"]
            for body in dict(self.accepted).values()
            if body["type"] == "chat"
        ]

    def of(self, type: str) -> list[dict[str, Any]]:
        """Envelopes of the accepted messages of a type."""
        return [body["data"]["envelope"] for _, body in self.accepted if body["type"] == type]

    def _receive(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        id, timestamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        mac = hmac.new(KEY, b".".join((id.encode(), timestamp.encode(), body)), hashlib.sha256).digest()
        if request.headers["webhook-signature"] != "v1," + base64.b64encode(mac).decode():
            self.wrong.append(id)
        self.attempts.append(id)
        status = self.status(len(self.attempts))
        if status == 0:
            self._released.wait()
            request.close_connection = True
            return
        if 200 <= status < 300:
            self.accepted.append((id, json.loads(body)))
        request.send_response(status)
        if 300 <= status < 400:
            request.send_header("Location", "/elsewhere")
        request.send_header("Content-Length", "0")
        request.end_headers()
