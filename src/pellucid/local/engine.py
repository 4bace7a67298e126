"""The engine process: `python -m pellucid.local.engine`. The supervisor starts it.

It reads one line of JSON (`EngineSpec`) from stdin, so the API key is not visible in the process list. It loads the
model, listens on 127.0.0.1, and writes one line of JSON to stdout: `EngineReady` or `EngineFailed`. Then it serves
until its stdin closes, which also happens when the parent process dies.

llama.cpp writes its log to stdout and stderr. Both are redirected to the log file before llama.cpp is loaded. The
original stdout is used for the one line only.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

import msgspec

from .model_index import INSTALL_COMMAND


class EngineSpec(msgspec.Struct, frozen=True):
    """The model to serve, and the settings of the engine."""

    path: str
    """The weight file."""
    name: str
    """The model's name in `/v1/models`."""
    api_key: str
    context: int
    """Tokens for each slot (prompt and answer together)."""
    threads: int
    slots: int = 1
    """Requests that are processed at the same time. Others wait in llama.cpp's own queue."""
    template: str | None = None
    """The text of the chat template. None: the template in the weight file is used."""
    memory: int = 0
    """Bytes of memory that the engine needs. 0: unknown, so it is estimated from the size of the file."""
    log: str | None = None
    """The file for llama.cpp's log. None: the log is discarded."""


class EngineReady(msgspec.Struct, frozen=True, tag_field="event", tag="ready"):
    """The model is loaded, and the engine listens on this port of 127.0.0.1."""

    port: int


class EngineFailed(msgspec.Struct, frozen=True, tag_field="event", tag="failed"):
    """The engine could not start."""

    code: str
    """A code of `EngineError`."""
    message: str
    upstream_message: str | None = None
    """The message of llama.cpp or of the system."""


def missing_cpu_features(cpuinfo: str) -> list[str]:
    """List the CPU features that the x86-64 build of llama.cpp uses and this CPU lacks.

    Args:
        cpuinfo: The text of `/proc/cpuinfo`.
    """
    for line in cpuinfo.splitlines():
        if line.startswith("flags"):
            available = set(line.partition(":")[2].split())
            return [name for name in ("avx2", "fma", "f16c", "bmi2") if name not in available]
    return []  # not x86: that build has no such requirements


def free_memory_bytes(meminfo: str) -> int | None:
    """Return the bytes of memory available to a new process; None if `/proc/meminfo` does not state it.

    Args:
        meminfo: The text of `/proc/meminfo`.
    """
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def container_memory_bytes(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes of memory left under the container's limit (cgroup v2); None if there is no limit."""
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        stat = (folder / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):  # the text "max" means no limit
        return None
    # The page cache counts as used, but the kernel can reclaim it.
    reclaimable_bytes = sum(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))
    return max(0, limit - used + reclaimable_bytes)


def unmet_requirement(spec: EngineSpec) -> EngineFailed | None:
    """Return why the engine cannot run here, or None if it can.

    It checks what would otherwise make llama.cpp abort, or make the system kill the process.
    """
    if missing := missing_cpu_features(_read("/proc/cpuinfo")):
        return EngineFailed(
            "unsupported_cpu",
            f"this CPU lacks {', '.join(missing)}, which the embedded engine's build of llama.cpp needs. "
            "Use another upstream (pellucid serve --provider NAME --upstream URL)",
        )
    try:
        size = os.stat(spec.path).st_size
    except OSError as error:
        return EngineFailed("bad_model", f"the model file {spec.path} cannot be read: {error.strerror}")
    needed_bytes = spec.memory or int(size * 1.2) + (400 << 20)
    free_bytes = min(
        (n for n in (free_memory_bytes(_read("/proc/meminfo")), container_memory_bytes()) if n is not None),
        default=None,
    )
    if free_bytes is not None and free_bytes < needed_bytes:
        return EngineFailed(
            "out_of_memory",
            f"the model {spec.name} needs about {needed_bytes / 1e9:.1f} GB of memory and {free_bytes / 1e9:.1f} GB "
            "are free. Free some, choose a smaller model or a shorter context, or use another upstream",
        )
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _exit_with_parent(parent: int) -> None:
    """Exit when stdin closes.

    On Linux, the kernel also sends SIGKILL when the parent dies, which ends a process that is loading the model.
    """
    if sys.platform == "linux":
        import ctypes

        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(0)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True, name="parent").start()


def _redirect_output(log: str | None) -> int:
    """Redirect stdout and stderr to the log. Returns a file descriptor of the original stdout."""
    stdout_fd = os.dup(1)
    log_fd = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd in (1, 2):
        os.dup2(log_fd, fd)
    os.close(log_fd)
    return stdout_fd


def _read_spec() -> EngineSpec:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            raise SystemExit("pellucid.local.engine is started by Pellucid, with its specification on stdin")
        line += piece
    return msgspec.json.decode(line, type=EngineSpec)


def serve(spec: EngineSpec) -> EngineReady | EngineFailed:
    """Load the model and open the port. llama.cpp then serves on its own threads."""
    if failed := unmet_requirement(spec):
        return failed
    try:
        import xllamacpp
    except ImportError as error:
        message = f"the embedded engine is not installed: {INSTALL_COMMAND}"
        return EngineFailed("not_installed", message, str(error))
    params = xllamacpp.CommonParams()
    params.model.path = spec.path
    params.model_alias = {spec.name}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [spec.api_key]
    params.n_ctx = spec.context * spec.slots
    params.n_parallel = spec.slots
    params.cpuparams.n_threads = spec.threads
    params.cpuparams_batch.n_threads = spec.threads
    params.endpoint_metrics = True  # requests that wait in llama.cpp, for operators
    params.ui = False
    params.cache_ram_mib = 256  # for prompts of earlier turns; the default of 8 GiB suits large servers
    if spec.template is not None:
        params.chat_template = spec.template
    try:
        server = xllamacpp.Server(params)
    except Exception as error:  # the binding raises various types; the message is the reason
        message = f"llama.cpp could not load {spec.path} (log: {spec.log})"
        return EngineFailed("bad_model", message, str(error) or type(error).__name__)
    _server_references.append(server)
    return EngineReady(int(server.listening_address.rpartition(":")[2]))


_server_references: list[object] = []
"""Keeps the server alive: it stops when nothing refers to it."""


def main() -> NoReturn:
    """Read the specification, load the model, and serve until the parent process ends."""
    parent = os.getppid()
    # Ctrl-C reaches the whole process group. The parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spec = _read_spec()
    stdout_fd = _redirect_output(spec.log)
    _exit_with_parent(parent)
    result = serve(spec)
    os.write(stdout_fd, msgspec.json.encode(result) + b"\n")
    os.close(stdout_fd)
    if isinstance(result, EngineFailed):
        os._exit(1)
    threading.Event().wait()
    raise AssertionError("unreachable")


if __name__ == "__main__":
    main()
