"""Files by URL, for models that accept no URLs: fetched from a real server and sent as data."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web

from pellucid.egress import EgressError, EgressPolicy
from pellucid.errors import RequestError
from pellucid.models import ChatModel, ModelStream, media
from pellucid.models.media import MediaFetcher, MediaModel
from pellucid.parts import Audio, File, Image, ModelRequest, Origin, Text, ToolReturnPart, UserPromptPart
from pellucid.settings import ModelCall
from tests.cases import Cases


class RecordingModel:
    """A model that records its calls, and whose responses are empty."""

    name = "m"
    origin = Origin("p", "w", "m")

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []

    async def open(self, call: ModelCall) -> ModelStream:
        self.calls.append(call)
        return cast("ModelStream", None)

    def warnings(self, call: ModelCall) -> list[str]:
        return []


class FileServer:
    """A server whose path `/{size}.{type}` returns `size` bytes of that type."""

    def __init__(self) -> None:
        self.requested_paths: list[str] = []
        self.url = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        async def answer(request: web.Request) -> web.Response:
            self.requested_paths.append(request.path)
            size, _, kind = request.path[1:].partition(".")
            return web.Response(
                body=bytes(int(size)), content_type={"png": "image/png", "pdf": "application/pdf"}[kind]
            )

        app = web.Application()
        app.router.add_get("/{name}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def run_scenario(scene: Callable[[str, FileServer, MediaModel, RecordingModel], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        files, recorder = FileServer(), RecordingModel()
        async with files.serve() as url:
            inner: ChatModel = recorder
            await scene(url, files, MediaModel(inner, MediaFetcher(EgressPolicy(["127.0.0.1"])), inline=True), recorder)

    asyncio.run(main())


def user_call(*content: Any) -> ModelCall:
    return ModelCall("m", [ModelRequest([UserPromptPart(list(content))])])


def test_a_url_in_any_message_is_fetched_once_and_sent_as_data() -> None:
    async def scene(url: str, files: FileServer, model: MediaModel, recorder: RecordingModel) -> None:
        image = Image(url=f"{url}/9.png", detail="low")
        returned = ToolReturnPart("look", [image], "c1")
        call = ModelCall("m", [ModelRequest([UserPromptPart([Text("See: "), image])]), ModelRequest([returned])])
        for _ in range(3):
            await model.open(call)
        assert files.requested_paths == ["/9.png"]
        inlined = Image(data=base64.b64encode(bytes(9)).decode(), media_type="image/png", detail="low")
        for got in recorder.calls:
            assert got.messages == [
                ModelRequest([UserPromptPart([Text("See: "), inlined])]),
                ModelRequest([ToolReturnPart("look", [inlined], "c1")]),
            ]

    run_scenario(scene)


def test_a_file_fetched_as_one_type_is_not_used_as_another() -> None:
    async def scene(url: str, files: FileServer, model: MediaModel, recorder: RecordingModel) -> None:
        await model.open(user_call(File(url=f"{url}/5.pdf")))
        with pytest.raises(EgressError):
            await model.open(user_call(Image(url=f"{url}/5.pdf")))

    run_scenario(scene)


def test_files_of_one_call_are_limited_in_size_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_CALL_BYTES", 100)

    async def scene(url: str, files: FileServer, model: MediaModel, recorder: RecordingModel) -> None:
        await model.open(user_call(Image(url=f"{url}/40.png"), Image(url=f"{url}/60.png")))
        with pytest.raises(RequestError) as wrong:
            await model.open(user_call(Image(url=f"{url}/41.png"), Image(url=f"{url}/60.png")))
        assert wrong.value.info.code == "files_too_large"
        with pytest.raises(RequestError):
            await model.open(user_call(*(Image(url=f"{url}/{size}.png") for size in [1] * 33)))
        assert len(recorder.calls) == 1

    run_scenario(scene)


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_CACHED_BYTES", 100)

    async def scene(url: str, files: FileServer, model: MediaModel, recorder: RecordingModel) -> None:
        for size in (30, 31, 32, 31, 30):
            await model.open(user_call(Image(url=f"{url}/{size}.png")))
        # The oldest entry was evicted.
        assert files.requested_paths == ["/30.png", "/31.png", "/32.png", "/30.png"]

    run_scenario(scene)


# --- URLs that are passed to the provider --------------------------------------------------------------------------


def call_passed_on(policy: EgressPolicy, call: ModelCall) -> ModelCall:
    """Return the call that is passed to a model that fetches URLs itself."""
    inner = RecordingModel()
    asyncio.run(MediaModel(inner, MediaFetcher(policy)).open(call))
    return inner.calls[0]


async def resolve_known_names(host: str) -> list[str]:
    known = {"good.test": ["93.184.215.14"], "rebound.test": ["93.184.215.14", "127.0.0.1"]}
    if host not in known:
        raise OSError(host)
    return known[host]


REFUSED_URLS = [
    "file:///etc/passwd",
    "http://169.254.169.254/latest/meta-data",
    "http://127.0.0.1:9090/metrics",
    "http://localhost:9090/metrics",
    "http://redis:6379/",
    "http://vault.internal/",
    "http://[::ffff:10.0.0.1]/",
    "http://2130706433/",
    "http://rebound.test/",
    "https://u:p@good.test/",
    " " * 300 + "http://10.0.0.1/",
    "gs://bucket/name",
]


@pytest.mark.parametrize(
    "content", [lambda url: Image(url=url), lambda url: File(file_id=url), lambda url: Audio(data=url)]
)
def test_a_url_that_the_policy_refuses_is_not_passed_to_the_provider(content: Callable[[str], Any]) -> None:
    policy = EgressPolicy(resolve=resolve_known_names)
    with Cases() as case:
        for url in REFUSED_URLS:
            with case(url.strip()):
                returned = ToolReturnPart("look", [content(url)], "c1")
                for call in (user_call("See:", content(url)), ModelCall("m", [ModelRequest([returned])])):
                    with pytest.raises(EgressError) as refused:
                        call_passed_on(policy, call)
                    assert refused.value.info.param == "input"
                    assert refused.value.info.kind in ("forbidden", "invalid_request")


@pytest.mark.parametrize(
    "url", ["https://good.test/a.png?b=%2F", "https://unknown.test/a.png", "data:image/png;base64,AAAA", "DATA:,a"]
)
def test_an_allowed_url_is_passed_to_the_provider_unchanged(url: str) -> None:
    call = user_call("See:", Image(url=url), File(data="QUFB", filename="a:b"), File(file_id="file-1"))
    assert call_passed_on(EgressPolicy(resolve=resolve_known_names), call) == call


def test_an_allowlist_permits_internal_urls() -> None:
    policy = EgressPolicy(["vault.internal", "10.0.0.0/8", "s3://"], resolve=resolve_known_names)
    call_passed_on(policy, user_call(*map(_image, ("http://vault.internal/", "http://10.1.2.3/", "s3://bucket/key"))))
    with pytest.raises(EgressError):
        call_passed_on(policy, user_call(_image("file:///etc/passwd")))


def test_a_resolved_name_is_cached() -> None:
    lookups: list[str] = []

    async def resolve(host: str) -> list[str]:
        lookups.append(host)
        return ["93.184.215.14"]

    async def main() -> None:
        model = MediaModel(RecordingModel(), MediaFetcher(EgressPolicy(resolve=resolve)))
        for _ in range(3):
            await model.open(user_call(_image("https://good.test/a"), _image("https://good.test/a")))

    asyncio.run(main())
    assert lookups == ["good.test"]


def _image(url: str) -> Image:
    return Image(url=url)
