"""The processes of the bench: they are pinned, given priority, measured, and always ended.

Linux only, as the figures come from ``/proc``. Every process that is started here leads a process group of its own and
gets SIGTERM should the bench itself die; nothing else is ever signalled.

Real-time priority (``SCHED_FIFO``, what ``chrt -f`` sets) is used where the kernel allows it: then no ordinary process
takes the CPU from what is measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import random
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
STOP_SECONDS = 5.0
OPEN_FILES = 32768

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Scheduling(NamedTuple):
    """How the kernel shares a CPU between a process and others."""

    policy: int
    priority: int

    def apply(self, pid: int) -> None:
        """Set it for the process `pid`; 0 for this one.

        Raises:
            OSError: The kernel does not allow it.
        """
        os.sched_setscheduler(pid, self.policy, os.sched_param(self.priority))


MEASURED = Scheduling(os.SCHED_FIFO, 10)
"""Of servers, upstream and load: those on one CPU let each other run, and are not interrupted by others."""
BENCH = Scheduling(os.SCHED_FIFO, 11)
"""Of the bench itself. It does next to nothing, but has to read the clocks when a window opens and closes."""


class BenchError(Exception):
    """The bench cannot continue; the message gives the reason and the remedy."""


@dataclass(frozen=True)
class Cpus:
    """Which CPU makes the traffic and which one the server under test has to itself.

    Both are `None` on a machine with one CPU, where nothing is pinned and the figures are rough.
    """

    traffic: int | None
    under_test: int | None

    @classmethod
    def available(cls) -> Cpus:
        cpus = sorted(os.sched_getaffinity(0))
        return cls(cpus[0], cpus[1]) if len(cpus) > 1 else cls(None, None)


def prepare_this_process(cpus: Cpus) -> None:
    """Move the bench itself off the CPU under test and raise its limit of open files, which children inherit."""
    if cpus.traffic is not None:
        os.sched_setaffinity(0, {cpus.traffic})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def use_real_time() -> bool:
    """Give this process real-time priority; False where the kernel does not allow it."""
    try:
        BENCH.apply(0)
    except OSError:
        return False
    return True


def child_setup(cpu: int | None, scheduling: Scheduling | None) -> Callable[[], None]:
    """What a child does between fork and exec: it ends with the bench, has its CPU, and its share of it."""

    def set_up() -> None:
        end_with_parent()
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        if scheduling is not None:
            scheduling.apply(0)

    return set_up


def free_port() -> int:
    """Return a free TCP port of the loopback address.

    It is none of those that the kernel gives to clients: an attempt to connect to one of those, before its server
    listens, can end up connected to itself.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def end_with_parent() -> None:
    """For a child, between fork and exec: get SIGTERM when the bench dies, however it dies."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    cpu: int | None,
    log: Path,
    directory: Path,
    environment: Mapping[str, str] | None = None,
    scheduling: Scheduling | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of a ``with`` block, pinned to `cpu`, its output in the file `log`.

    Without `scheduling` it is an ordinary process.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment,
            start_new_session=True,
            preexec_fn=child_setup(cpu, scheduling),
        )
    try:
        yield process
    finally:
        stop(process)


def ended(process: subprocess.Popen[bytes]) -> int | None:
    """The exit status of a process that has ended. It is not reaped, so its id and its group's cannot be reused."""
    state = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if state is None else state.si_status


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, then end it and whatever is left of its own process group."""
    os.kill(process.pid, signal.SIGTERM)  # not process.terminate(), which would reap it
    deadline = time.monotonic() + STOP_SECONDS
    while ended(process) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = ended(process)
        if status is not None:
            raise BenchError(f"{describe(process)}\nended at once, with status {status}:\n{tail(log)}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise BenchError(f"{describe(process)}\ndid not listen within {seconds:g} s:\n{tail(log)}")


def wait_for_port(process: subprocess.Popen[bytes], file: Path, log: Path, seconds: float) -> int:
    """The port in `file`, which a server writes that chooses its port itself."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and ended(process) is None:
        with contextlib.suppress(OSError, ValueError):
            return int(file.read_text())
        time.sleep(0.02)
    raise BenchError(f"{describe(process)}\nwrote no port:\n{tail(log)}")


def describe(process: subprocess.Popen[bytes]) -> str:
    return " ".join(map(str, process.args)) if isinstance(process.args, list) else str(process.args)


def tail(log: Path, lines: int = 15) -> str:
    text = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join(f"    {line}" for line in text) or "    (no output)"


def get(port: int, path: str) -> bytes:
    """A GET to a server on this machine, past any proxy settings."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise BenchError(f"GET {path}: {response.status} {body[:200]!r}")
    return body


def family(pid: int) -> list[int]:
    """Return `pid` and its descendants."""
    pids = [pid]
    for parent in pids:  # grows while it is iterated
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                pids += map(int, Path(f"/proc/{parent}/task/{task}/children").read_text().split())
    return pids


class TaskTimes(NamedTuple):
    """Seconds of a process and its descendants, all their threads together."""

    cpu: float
    waiting: float
    """Time in which it was ready to run and waited for the CPU."""


def task_times(pid: int) -> TaskTimes:
    """What the threads of `pid` and its descendants have used, to the nanosecond; those that have ended are missing.

    ``utime`` and ``stime`` of ``/proc/PID/stat`` are cut to hundredths of a second: several percent of a short window.
    """
    cpu = waiting = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{member}/task"):
                ran, waited, _ = map(int, Path(f"/proc/{member}/task/{task}/schedstat").read_text().split())
                cpu += ran
                waiting += waited
    return TaskTimes(cpu / 1e9, waiting / 1e9)


def resident_kib(pid: int) -> int:
    """Resident memory of `pid` and its descendants in KiB. Shared pages count once for each, so look at growth."""
    return sum(map(_resident_kib, family(pid)))


def _resident_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


class CpuTimes(NamedTuple):
    """Seconds of one CPU since the machine started."""

    busy: float
    """In any process, or in the kernel."""
    stolen: float
    """Taken by the host that the machine is a guest of."""


def cpu_times(cpu: int | None) -> CpuTimes:
    """The times of `cpu`; of the whole machine for None."""
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name == ("cpu" if cpu is None else f"cpu{cpu}"):
            user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, ticks[:8])
            busy = user + nice + system + irq + softirq
            return CpuTimes(busy / TICKS_PER_SECOND, stolen / TICKS_PER_SECOND)
    return CpuTimes(0.0, 0.0)


def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    system = os.uname()
    return {
        "cpu": models[0] if models else system.machine,
        "cpus": os.cpu_count(),
        "kernel": f"{system.sysname} {system.release}",
    }
