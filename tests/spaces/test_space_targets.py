"""A chat to nobody is refused, and the sender is told who was meant; in a mix, those who are nobody are flagged."""

from __future__ import annotations

import asyncio

from tests.spaces.space_kit import chat, frame, join_space, opened, whole_log
from tests.waiting import eventually


def test_a_chat_to_nobody_is_not_taken() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _):
            ada, heard = await join_space(space, "ada")
            before = len(await whole_log(space))
            await ada.receive(chat("psst", to=["bop"], id="lost"))
            await eventually(lambda: heard.errors)
            [told] = heard.of("system/error")
            assert told["payload"]["error"] == told["payload"]["code"] == "target_not_found"
            assert told["payload"]["param"] == "to"
            assert "did you mean 'bob'?" in told["payload"]["message"]
            assert told["correlation_id"] == ["lost"]
            assert len(await whole_log(space)) == before

    asyncio.run(scene())


def test_who_is_away_or_invited_is_somebody_and_of_a_mix_the_others_are_flagged() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _):
            ada, heard = await join_space(space, "ada")
            await ada.receive(chat("away", to=["bob"], id="away"))
            await ada.receive(chat("soon", to=["eve"], id="early"))
            await ada.receive(frame("space/invite", {"participant_id": "two words"}, id="blank"))
            await ada.receive(frame("space/invite", {"participant_id": "eve"}))
            await ada.receive(chat("soon", to=["eve"], id="soon"))
            await ada.receive(chat("mix", to=["bob", "zoe"], id="mix"))
            await ada.receive(frame("space/kick", {"participant_id": "dee"}))
            await ada.receive(chat("gone", to=["dee"], id="gone"))
            await ada.receive(chat("to the gateway", to=["system:gateway"], id="end"))
            await eventually(lambda: any(one["id"] == "end" for one in heard.of("chat")))
            taken = {one["id"]: one for one in heard.of("chat")}
            assert taken.keys() == {"away", "soon", "mix", "end"}
            assert [flag["code"] for flag in taken["mix"]["flags"]] == ["target_not_found"]
            assert "'zoe'" in taken["mix"]["flags"][0]["message"]
            assert not any("flags" in one for id, one in taken.items() if id != "mix")
            refused = {one["correlation_id"][0]: one["payload"] for one in heard.of("system/error")}
            assert refused.keys() == {"early", "blank", "gone"}
            assert "'two-words' would be valid" in refused["blank"]["message"]

    asyncio.run(scene())
