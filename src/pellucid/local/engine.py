"""The engine's own process: ``python -m pellucid.local.engine``.

Started by ``supervise``, never by a person. It reads one line of JSON (``EngineSpec``) on stdin, so that the API key
is in no process list; loads the model; listens on 127.0.0.1; and says one line of JSON on stdout: ``Ready`` or
``EngineFailed``. Then it serves until its stdin closes, which happens however the parent ends.

llama.cpp writes its own log to both outputs; they are turned to the log file before it is loaded, and stdout's
original is kept for that one line.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

import msgspec


class EngineSpec(msgspec.Struct, frozen=True):
    """What the engine is to serve."""

    path: str
    """The weight file."""
    name: str
    """The model's name, as ``/v1/models`` tells it."""
    api_key: str
    context: int
    """Tokens, prompt and answer together, for each slot."""
    threads: int
    slots: int = 1
    """Requests answered at once; further ones wait in llama.cpp's own queue."""
    template: str | None = None
    """The chat template's text; ``None``: the one inside the weight file."""
    memory: int = 0
    """Bytes that the engine will occupy; 0: not known, so taken from the file's size."""
    log: str | None = None
    """The file for llama.cpp's log; ``None``: nowhere."""


class EngineReady(msgspec.Struct, frozen=True, tag_field="event", tag="ready"):
    port: int


class EngineFailed(msgspec.Struct, frozen=True, tag_field="event", tag="failed"):
    code: str
    """As in ``EngineError``."""
    message: str
    upstream_message: str | None = None
    """In llama.cpp's words, or the system's."""


def missing_cpu_features(cpuinfo: str) -> list[str]:
    """What the x86-64 build of llama.cpp uses and this CPU lacks, from the text of ``/proc/cpuinfo``."""
    for line in cpuinfo.splitlines():
        if line.startswith("flags"):
            available = set(line.partition(":")[2].split())
            return [name for name in ("avx2", "fma", "f16c", "bmi2") if name not in available]
    return []  # not x86: another build


def free_memory_bytes(meminfo: str) -> int | None:
    """Bytes that a new process can have, from the text of ``/proc/meminfo``; ``None``: it does not say."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def container_memory_bytes(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that the container's limit leaves, or ``None`` without one (or outside Linux)."""
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        stat = (folder / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):  # "max" is no number: no limit
        return None
    # The page cache counts as used, but gives way.
    reclaimable_bytes = sum(int(line.split()[1]) for line in stat if line.startswith("inactive_file "))
    return max(0, limit - used + reclaimable_bytes)


def unmet_requirement(spec: EngineSpec) -> EngineFailed | None:
    """Why the engine cannot run here, as far as can be told before llama.cpp aborts or the system kills it."""
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
            f"the model {spec.name} needs about {needed_bytes / 1e9:.1f} GB of memory and {free_bytes / 1e9:.1f} GB are free. "
            "Free some, choose a smaller model or a shorter context, or use another upstream",
        )
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _exit_with_parent(parent: int) -> None:
    """Exit when stdin closes. On Linux the kernel also sends a signal, which reaches a process that is loading."""
    if sys.platform == "linux":
        import ctypes

        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call
            os._exit(0)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True, name="parent").start()


def _redirect_output(log: str | None) -> int:
    """Turn stdout and stderr to the log; returns what stdout was."""
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
    """Load the model and open the port. llama.cpp then serves on threads of its own."""
    if failed := unmet_requirement(spec):
        return failed
    try:
        import xllamacpp
    except ImportError as error:
        message = "the embedded engine is not installed; pip install 'pellucid[local]'"
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
    params.endpoint_metrics = True  # how many wait
    params.ui = False
    params.cache_ram_mib = 256  # prompts of earlier turns; the default of 8 GiB is for servers
    if spec.template is not None:
        params.chat_template = spec.template
    try:
        server = xllamacpp.Server(params)
    except Exception as error:  # whatever the binding raises: the reason is the message
        message = f"llama.cpp could not load {spec.path} (log: {spec.log})"
        return EngineFailed("bad_model", message, str(error) or type(error).__name__)
    _server_references.append(server)
    return EngineReady(int(server.listening_address.rpartition(":")[2]))


_server_references: list[object] = []
"""The server lives as long as something refers to it."""


def main() -> NoReturn:
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
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
