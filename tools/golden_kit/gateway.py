"""The gateway of a checkout, as a process; and a client that keeps what it gets."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .surface import SURFACE

KEY_VARIABLE = "PELLUCID_GOLDEN_KEY"
_CONNECTION_HEADERS = frozenset({"date", "server", "connection", "keep-alive", "content-length", "transfer-encoding"})
"""Headers of one connection, not of the answer."""
_IDLE_SECONDS = 2.0
"""A connection that was not used for so long is not used again: the gateway may be about to close it."""


class Checkout(NamedTuple):
    """A version of the project: its files, and a Python that has what it needs."""

    root: Path
    python: str = sys.executable

    def environment(self, data: Path) -> dict[str, str]:
        known = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        paths = {"PYTHONPATH": str(self.root / "src"), "XDG_DATA_HOME": str(data), "COLUMNS": "100"}
        return {**known, **paths, KEY_VARIABLE: "provider-key", "GATEWAY_KEY": "gateway-key-gateway-key-0"}

    def run(self, data: Path, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """A command of `pellucid`, to its end."""
        return subprocess.run(
            [self.python, "-m", "pellucid", *args],
            input=stdin,
            capture_output=True,
            cwd=data,
            env=self.environment(data),
            timeout=120,
            check=False,
        )


class Reply(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def head(self) -> str:
        """The status and the headers that matter, sorted, a line each."""
        lines = sorted(f"{name}: {value}" for name, value in self.headers if name not in _CONNECTION_HEADERS)
        return "\n".join([str(self.status), *lines])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON objects of an event stream's `data` lines."""
        lines = (line[6:] for line in self.body.decode().split("\n") if line.startswith("data: {"))
        return [json.loads(line) for line in lines]


class Gateway:
    """`pellucid serve` of a checkout, over a data directory that stays when it ends."""

    def __init__(self, checkout: Checkout, data: Path, config: str, files: Mapping[str, str] | None = None) -> None:
        data.mkdir(parents=True, exist_ok=True)
        for name, text in (files or {}).items():
            (data / name).write_text(text)
            (data / name).chmod(0o600)
        (data / "pellucid.toml").write_text(config)
        self.data = data
        self._process = subprocess.Popen(
            [checkout.python, "-m", "pellucid", "serve", "--config", "pellucid.toml", "--port", "0"],
            cwd=data,
            env=checkout.environment(data),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self._process.stderr is not None
        started = b""
        for line in self._process.stderr:
            started += line
            if match := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match[1])
                break
        else:
            raise RuntimeError(f"the gateway of {checkout.root} did not start:\n{started.decode()}")
        # Its log is read, so that the pipe does not fill up.
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        self._connection: http.client.HTTPConnection | None = None
        self._used = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()
    ) -> Reply:
        """Send a request (`body`: bytes as they are, or a value for JSON) and read the whole response."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None else {}
        sent |= dict(headers)
        connection, self._connection = self._connection, None  # one that breaks is not used again
        if connection is not None and time.monotonic() - self._used > _IDLE_SECONDS:
            connection.close()
            connection = None
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, data, sent)
        response = connection.getresponse()
        SURFACE.add_request(method, path, response.status)
        got = [(name.lower(), value) for name, value in response.getheaders()]
        try:
            reply = Reply(response.status, got, response.read())
        except http.client.IncompleteRead as error:
            connection.close()
            return Reply(response.status, got, error.partial + b"<the connection ended here>")
        self._connection, self._used = connection, time.monotonic()
        return reply

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
