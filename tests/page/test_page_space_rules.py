"""The page folds a history into contexts by the gateway's rules, and its tables are those of the gateway.

`ui/src/spaces/recorded.json` has conversations and the gateway's trees of them; the page's tests
(`ui/src/spaces/fold.test.ts`) compare its fold with them. A test here checks that the file is up to date. The others
compare kinds, text fields, links, limits and close codes in the page's source with the gateway's tables.

    python -m tests.page.test_page_space_rules      # writes the file
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from pellucid.envelopes import Defaults, Envelope, EnvelopeError, close_codes, read
from pellucid.envelopes.kinds import KINDS
from pellucid.envelopes.lifecycle import MAX_TRIGGERS
from pellucid.envelopes.translate import write
from pellucid.envelopes.tree import Tree, build_trees
from tests.envelopes.life_kit import life
from tests.envelopes.seed_flows import FLOWS

SOURCE = Path(__file__).parents[2] / "ui" / "src" / "spaces"
RECORDED = SOURCE / "recorded.json"

WEIGHT_BY_KIND = {
    "reasoning/start": 5,
    "reasoning/thought": 6,
    "reasoning/hypothesis": 1,
    "reasoning/conclusion": 3,
    "reasoning/cancel": 1,
    "chat": 4,
    "mcp/request": 2,
    "mcp/response": 2,
    "mcp/proposal": 1,
}
PEOPLE = ("ada", "bob", "system:gateway")


def scripts() -> list[list[Envelope]]:
    """Conversations that a strict space accepts: those of the seed, and random ones."""
    chance = random.Random(20260)
    conversations = [_accepted(_numbered([json.loads(one) for one in flow])) for flow in FLOWS.values()]
    return conversations + [_accepted(_numbered(_conversation(chance))) for _ in range(120)]


def _conversation(chance: random.Random) -> list[Any]:
    frames: list[dict[str, Any]] = []
    for number in range(chance.randint(4, 26)):
        starts = [frame["id"] for frame in frames if frame["kind"] == "reasoning/start"][-3:]
        frames.append(_any(chance, number, [*starts, *starts, f"m{max(0, number - 2)}", "label"]))
    return frames


def _any(chance: random.Random, number: int, names: list[str]) -> dict[str, Any]:
    kind = chance.choices(list(WEIGHT_BY_KIND), list(WEIGHT_BY_KIND.values()))[0]
    frame: dict[str, Any] = {"id": f"m{number}", "kind": kind, "from": chance.choice(PEOPLE[:2]), "payload": {}}
    if chance.random() < 0.7 and kind != "mcp/proposal":
        depth = 2 if chance.random() < 0.35 else 1
        frame["context"] = "/".join(chance.choice(names) for _ in range(depth))
    if chance.random() < 0.5:
        frame["correlation_id"] = [chance.choice(names)]
    if kind == "reasoning/cancel" and chance.random() < 0.5:
        frame["from"] = PEOPLE[2]
    if kind == "reasoning/conclusion" and chance.random() < 0.2:
        frame["payload"] = {"cancelled": True}
    return frame


def _numbered(frames: list[Any]) -> list[Envelope]:
    envelopes: list[Envelope] = []
    for number, frame in enumerate(frames, 1):
        sender = frame.pop("from", "agent")
        try:
            envelope = read(frame, None, Defaults(sender="x", id=frame.get("id", f"n{number}"), ts=number * 1000))
        except EnvelopeError:
            continue
        envelopes.append(_with(envelope, sender=sender))
    return envelopes


def _with(envelope: Envelope, **changes: Any) -> Envelope:
    fields = {name: getattr(envelope, name) for name in envelope.__struct_fields__}
    return Envelope(**{**fields, **changes})


def _accepted(envelopes: list[Envelope]) -> list[Envelope]:
    lifecycle, accepted = life(), list[Envelope]()
    for envelope in envelopes:
        numbered = _with(envelope, seq=len(accepted) + 1)
        if lifecycle.feed(numbered).accepted:
            accepted.append(numbered)
    return accepted


def picture(tree: Tree) -> dict[str, Any]:
    return {
        "path": tree.path,
        "owner": tree.owner,
        "status": tree.status,
        "start": tree.start.id if tree.start else None,
        "answer": tree.answer,
        "led_to": list(tree.led_to),
        "steps": [
            picture(step.tree) if step.tree is not None else step.envelope.seq if step.envelope is not None else None
            for step in tree.steps
            if step.tree is not None or step.envelope is not None
        ],
    }


def recorded() -> str:
    rows = [
        {
            "envelopes": [write(one, "mew/v0.4") for one in script],
            "trees": [picture(tree) for tree in build_trees(script)],
        }
        for script in scripts()
        if script
    ]
    return "[\n" + ",\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows) + "\n]\n"


def test_the_recorded_trees_are_the_gateways() -> None:
    assert recorded() == RECORDED.read_text(encoding="utf-8"), "write the file again, and check whether the page agrees"


def source(name: str) -> str:
    return (SOURCE / name).read_text(encoding="utf-8")


def constants() -> dict[str, str]:
    """The string constants of the page's `envelope.ts`, by name."""
    return dict(re.findall(r'^export const ([A-Z]+) = "([^"]+)"', source("envelope.ts"), re.M))


def strings(text: str) -> list[str]:
    """The strings in a part of the source, written out or named by a constant."""
    return [literal or constants()[name] for literal, name in re.findall(r'"([^"]+)"|\b([A-Z]{2,})\b', text)]


def one(pattern: str, name: str) -> str:
    [match] = re.findall(pattern, source(name), re.M | re.S)
    return str(match)


def test_every_kind_in_the_source_of_the_page_is_a_kind_of_the_gateway() -> None:
    families = "|".join(sorted({kind.partition("/")[0] for kind in KINDS}))
    files = [*SOURCE.glob("*.ts"), *SOURCE.glob("*.tsx")]
    sources = [path.read_text(encoding="utf-8") for path in files if not re.search(r"\.test\.|testkit", path.name)]
    kinds = {kind for text in sources for kind in re.findall(rf'"((?:{families})/[a-z-]+)"', text)}
    assert kinds
    assert kinds <= KINDS.keys()


def test_the_page_looks_for_text_in_the_fields_of_the_gateway() -> None:
    rows = re.findall(
        r'^  "?([a-z/-]+)"?: (\[[^\]]+\]),$', one(r"const TEXT_FIELDS[^{]+\{\n(.*?)^\}", "envelope.ts"), re.M
    )
    by_kind = {kind: tuple(strings(fields)) for kind, fields in rows}
    common = tuple(strings(one(r"const COMMON_TEXT_FIELDS = (\[[^\]]+\])", "envelope.ts")))
    assert {kind: by_kind.get(kind, common) for kind in KINDS} == {kind: row.text_fields for kind, row in KINDS.items()}


def test_the_page_links_and_ends_contexts_by_the_kinds_of_the_gateway() -> None:
    answers = strings(one(r"const ANSWERS = new Set\(\[([^\]]+)\]\)", "fold.ts"))
    calls = strings(one(r"const LINKED = new Set\(\[\.\.\.ANSWERS, ([^\]]+)\]\)", "fold.ts"))
    roles = re.findall(r'\[([A-Z]+)\]: "(\w+)"', one(r"const ROLES: [^{]+(\{[^}]+\})", "fold.ts"))
    assert set(answers) == {kind for kind, row in KINDS.items() if row.link == "answer"}
    assert set(calls) == {kind for kind, row in KINDS.items() if row.link == "call"}
    expected = {kind: row.act for kind, row in KINDS.items() if row.act not in {"step", "message"}}
    assert {constants()[name]: role for name, role in roles} == expected


def test_limits_and_close_codes_of_the_page_are_those_of_the_gateway() -> None:
    assert int(one(r"const MAX_TRIGGERS = (\d+)", "fold.ts")) == MAX_TRIGGERS
    final = {
        close_codes.INVALID_JOIN,
        close_codes.UNAUTHORIZED,
        close_codes.FORBIDDEN,
        close_codes.SPACE_NOT_FOUND,
    }
    assert {
        int(code) for code in re.findall(r"\d+", one(r"const FINAL = new Set\(\[([^\]]+)\]\)", "session.ts"))
    } == final


if __name__ == "__main__":
    RECORDED.write_text(recorded(), encoding="utf-8")
