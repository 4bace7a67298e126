"""A chat to unknown participants is refused with a suggestion; if some targets are known, the unknown ones are
flagged."""

from __future__ import annotations

import asyncio

from tests.spaces.space_kit import chat, frame, join_space, opened, whole_log
from tests.waiting import eventually


def test_a_chat_to_an_unknown_participant_is_refused() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _):
            ada, sink = await join_space(space, "ada")
            before = len(await whole_log(space))
            await ada.receive(chat("psst", to=["bop"], id="lost"))
            await eventually(lambda: sink.errors)
            [error] = sink.of("system/error")
            assert error["payload"]["error"] == error["payload"]["code"] == "target_not_found"
            assert error["payload"]["param"] == "to"
            assert "did you mean 'bob'?" in error["payload"]["message"]
            assert error["correlation_id"] == ["lost"]
            assert len(await whole_log(space)) == before

    asyncio.run(scene())


def test_absent_and_invited_participants_are_valid_targets() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _):
            ada, sink = await join_space(space, "ada")
            await ada.receive(chat("away", to=["bob"], id="away"))
            await ada.receive(chat("soon", to=["eve"], id="early"))
            await ada.receive(frame("space/invite", {"participant_id": "two words"}, id="blank"))
            await ada.receive(frame("space/invite", {"participant_id": "eve"}))
            await ada.receive(chat("soon", to=["eve"], id="soon"))
            await ada.receive(chat("mix", to=["bob", "zoe"], id="mix"))
            await ada.receive(frame("space/kick", {"participant_id": "dee"}))
            await ada.receive(chat("gone", to=["dee"], id="gone"))
            await ada.receive(chat("to the gateway", to=["system:gateway"], id="end"))
            await eventually(lambda: any(one["id"] == "end" for one in sink.of("chat")))
            accepted = {one["id"]: one for one in sink.of("chat")}
            assert accepted.keys() == {"away", "soon", "mix", "end"}
            assert [flag["code"] for flag in accepted["mix"]["flags"]] == ["target_not_found"]
            assert "'zoe'" in accepted["mix"]["flags"][0]["message"]
            assert not any("flags" in one for id, one in accepted.items() if id != "mix")
            refused = {one["correlation_id"][0]: one["payload"] for one in sink.of("system/error")}
            assert refused.keys() == {"early", "blank", "gone"}
            assert "'two-words' would be valid" in refused["blank"]["message"]

    asyncio.run(scene())
