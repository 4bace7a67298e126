"""Fields of responses that no reader reads: found on every wire that is read by structs, without their values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.parts import Origin
from pellucid.providers import unread_fields
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles, load_profiles
from pellucid.providers.unread_fields import MAX_FIELDS, MAX_FRAME_BYTES, MAX_MEMBERS, MAX_SILENT_FRAMES, UNSAFE_NAME
from pellucid.providers.wires import WIRES, count_unread_fields
from tests.cutting import cut
from tests.providers.wire_kit import body, chunk, sse

ROWS = builtin_profiles()
VLLM = ROWS["vllm"]
SECRET = "what the model thought"


def unread_online(profile: Profile, *reads: bytes) -> set[str]:
    """Return the unread fields that a gateway notices."""
    decoder = WIRES[profile.wire].decoder(profile, Origin("p", profile.wire, "m"))
    for read in reads:
        decoder.feed(read)
    decoder.end()
    return set(decoder.unread_fields)


def numbered(n: int, **delta: Any) -> dict[str, Any]:
    """Return a chunk that differs from others not only in its text, so that each is read in full."""
    return chunk(**delta) | {"created": n}


def event(**value: Any) -> bytes:
    return f"event: {value.get('type', '')}\ndata: {json.dumps(value)}\n\n".encode()


NEW: dict[str, Any] = {"new_thoughts": SECRET}
WITH_NEW_FIELD = {
    "vllm": (sse(chunk(role="assistant", content=""), chunk(**NEW), chunk("stop")), "choices[].delta.new_thoughts"),
    "mistral": (sse(chunk(content="a", **NEW), chunk("stop")), "choices[].delta.new_thoughts"),
    "anthropic": (
        event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "a", **NEW}),
        "delta.new_thoughts",
    ),
    "openai-responses": (
        event(type="response.output_text.delta", output_index=0, content_index=0, delta="a", **NEW),
        "new_thoughts",
    ),
    "cohere": (
        event(type="content-delta", index=0, delta={"message": {"content": {"text": "a"}, **NEW}}),
        "delta.message.new_thoughts",
    ),
    "google": (
        sse({"candidates": [{"content": {"parts": [{"text": "a"}], **NEW}}]}, done=False),
        "candidates[].content.new_thoughts",
    ),
    "ollama-native": (
        json.dumps({"message": {"role": "assistant", "content": "a", **NEW}, "done": False}).encode() + b"\n",
        "message.new_thoughts",
    ),
}


@pytest.mark.parametrize("row", WITH_NEW_FIELD)
def test_a_new_field_is_found_on_every_wire_of_structs(row: str) -> None:
    data, path = WITH_NEW_FIELD[row]
    assert unread_online(ROWS[row], data) == {path}
    assert dict(count_unread_fields(ROWS[row], data)) == {path: 1}
    plain = data.replace(b"new_thoughts", b"content" if row == "vllm" else b"text")
    assert SECRET not in str(count_unread_fields(ROWS[row], plain))


def test_every_wire_is_examined_but_bedrock() -> None:
    """Bedrock's deltas of any other kind than text, reasoning and arguments are kept whole."""
    assert {ROWS[row].wire for row in WITH_NEW_FIELD} == set(WIRES) - {"bedrock"}


def test_a_whole_body_is_examined() -> None:
    data = body(content="a", **NEW)
    assert unread_online(VLLM, data) == {"choices[].message.new_thoughts"}


def test_a_field_that_a_row_reads_is_not_unread() -> None:
    row = load_profiles({"lab": {"extends": "vllm", "reasoning_fields": ["new_thoughts"]}}, ROWS)["lab"]
    assert unread_online(row, WITH_NEW_FIELD["vllm"][0]) == set()


def test_what_every_server_sends_is_not_unread() -> None:
    tool = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    frames = [
        chunk(role="assistant", content=""),
        chunk(content="a", refusal=None, audio=None),
        chunk(tool_calls=[tool]),
    ]
    assert unread_online(VLLM, sse(*frames, chunk("stop"))) == set()
    assert unread_online(VLLM, sse(chunk(content="a", thoughts="", notes=[], more={"id": "", "data": None}))) == set()


def test_a_field_that_comes_late_is_found() -> None:
    """Frames before it are skipped by a template, or are read in full because each has another number."""
    for frames in ([chunk(content=" a")] * 400, [numbered(n, content=" a") for n in range(400)]):
        reads = [sse(frame, done=False) for frame in frames]
        for late in (chunk(content=" a", **NEW), numbered(401, **NEW), numbered(401, content=" b", **NEW)):
            assert unread_online(VLLM, *reads, sse(late)) == {"choices[].delta.new_thoughts"}
    role = {"role": "assistant", "content": ""}
    silent = [sse(numbered(n, **role), done=False) for n in range(MAX_SILENT_FRAMES - 1)]
    assert unread_online(VLLM, *silent, sse(chunk(role="assistant", **NEW))) == {"choices[].delta.new_thoughts"}


def test_a_command_counts_every_frame() -> None:
    frames = [chunk(content=" a", **NEW)] * 50 + [chunk(content=" b", other=1)] * 3
    assert count_unread_fields(VLLM, sse(*frames, chunk("stop"))) == {
        "choices[].delta.new_thoughts": 50,
        "choices[].delta.other": 3,
    }


def test_few_frames_of_a_response_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each delta, whether a template skips it or not."""
    examined: list[bytes] = []
    paths_of = unread_fields._paths_of

    def counted(frame: bytes, *of: Any) -> tuple[str, ...]:
        examined.append(frame)
        return paths_of(frame, *of)

    monkeypatch.setattr(unread_fields, "_paths_of", counted)
    alike = [chunk(content=f" {n}") for n in range(1000)]
    different = [numbered(n, content=f" {n}") for n in range(1000)]
    silent = [numbered(n, **NEW) for n in range(1000)]
    code = [numbered(n, content='"a":' * n) for n in range(1000)]
    for frames in (alike, different, silent, code):
        examined.clear()
        unread_online(VLLM, *(sse(frame, done=False) for frame in frames))
        assert 0 < len(examined) <= (MAX_MEMBERS if frames is code else MAX_SILENT_FRAMES + 1)


def test_a_shape_is_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [sse(chunk(content=" a", once_only=n)) for n in range(1, 6)]
    assert unread_online(VLLM, frames[0]) == {"choices[].delta.once_only"}
    monkeypatch.setattr(unread_fields, "unread_paths", lambda *of: pytest.fail("examined again"))
    for frame in frames[1:]:
        assert unread_online(VLLM, frame) == {"choices[].delta.once_only"}


def test_names_and_their_number_are_bounded() -> None:
    def one(name: str) -> dict[str, Any]:
        return {"content": "a", name: 1}

    many: dict[str, Any] = {f"field_{n}": 1 for n in range(100)}
    assert len(unread_online(VLLM, sse(chunk(content="a", **many)))) == MAX_FIELDS
    for name in (SECRET, "x" * 41, "", "été", "a.b", "a\nb", '"'):
        assert unread_online(VLLM, sse(chunk(**one(name)))) == {f"choices[].delta.{UNSAFE_NAME}"}
    for text in ('{"a":1}', 'a":'):
        assert unread_online(VLLM, sse(chunk(content=text))) == set()
    assert unread_online(VLLM, sse(chunk(content="a", été=None))) == set()
    for name in (SECRET, "", "été"):
        assert unread_online(VLLM, sse(chunk(**one(name)))) == {f"choices[].delta.{UNSAFE_NAME}"}
    large = sse(chunk(content="a" * MAX_FRAME_BYTES, **NEW))
    assert unread_online(VLLM, large) == set()
    assert set(count_unread_fields(VLLM, large)) == {"choices[].delta.new_thoughts"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(WITH_NEW_FIELD)), st.dictionaries(st.text(max_size=8), VALUES, max_size=4), st.data())
def test_any_answer_is_examined_alike_in_any_pieces(row: str, more: dict[str, Any], data: st.DataObject) -> None:
    """What is found does not depend on the reads, and names of fields are all that is found."""
    frames = WITH_NEW_FIELD[row][0].replace(b'"new_thoughts": ', json.dumps({"x": more})[1:-1].encode() + b', "y": ')
    paths = unread_online(ROWS[row], frames)
    positions = data.draw(st.lists(st.integers(0, len(frames)), max_size=4))
    assert unread_online(ROWS[row], *cut(frames, positions)) == paths == set(count_unread_fields(ROWS[row], frames))
    names = {part.removesuffix("[]") for path in paths for part in path.split(".")}
    assert names <= {"choices", "delta", "message", "candidates", "content", "x", "y"}


@given(st.sampled_from(sorted(WITH_NEW_FIELD)), st.binary(max_size=80))
def test_any_bytes_can_be_examined(row: str, data: bytes) -> None:
    assert SECRET not in str(count_unread_fields(ROWS[row], b"data: " + data + b"\n\n"))
