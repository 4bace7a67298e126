"""A private context that ended so long ago that it is not remembered stays private."""

from __future__ import annotations

import asyncio

import pytest

from pellucid.errors import PellucidError
from pellucid.spaces.runtime import settings
from pellucid.spaces.runtime.space import Space
from tests.spaces.space_kit import chat, frame, opened


async def post(space: Space, participant: str, data: bytes) -> str | None:
    try:
        await space.post(participant, data)
    except PellucidError as error:
        return error.info.code
    return None


@pytest.mark.parametrize("mode", ["strict", "flag", "off"])
def test_nothing_is_accepted_in_a_private_context_that_is_forgotten(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(settings, "MAX_ENDED", 2)

    async def end(space: Space, id: str, **more: object) -> None:
        assert await post(space, "bob", frame("reasoning/start", {"message": "hm"}, id=id, **more)) is None
        path = more.get("context", id)
        path = f"{path}/{id}" if path == "pub" else path
        assert await post(space, "bob", frame("reasoning/conclusion", {"message": "so"}, context=path)) is None

    async def scene() -> None:
        async with opened(settings={"reasoning": mode}) as (_, space, _):
            assert await post(space, "bob", frame("reasoning/start", {"message": "hm"}, id="pub")) is None
            await end(space, "plan", to=["cyd"])
            await end(space, "id-7", context="label", to=["cyd"])
            await end(space, "inner", context="pub", to=["cyd"])
            await end(space, "open")
            for number in range(4):
                await end(space, f"x{number}", to=["cyd"])
            for path in ("plan", "plan/deeper", "label", "id-7", "label/id-7", "pub/inner"):
                for sender in ("bob", "cyd", "dee"):
                    assert await post(space, sender, chat("late secret", context=path)) == "context_ended"
            # Others are for everyone, as before.
            assert await post(space, "dee", chat("late", context="open")) is None
            assert await post(space, "dee", chat("new", context="pub/other")) is None

    asyncio.run(scene())
