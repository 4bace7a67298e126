"""Tools of the run and of the provider: from the first delta of the arguments to a result, or to none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pellucid.emit import Emitter
from pellucid.events import Event, FunctionToolCallEvent, FunctionToolResultEvent, ModelEvent
from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    Image,
    Origin,
    RetryPromptPart,
    Text,
    ToolCallPart,
    ToolReturnPart,
)
from pellucid.run import CallTools, Minter, Run
from pellucid.settings import ModelCall
from pellucid.view import VIEWS, Redactor, Viewer
from tests.cases import Cases
from tests.chat.chat_kit import NOW, encode, final_event, frame_types, make_encoder, select, verified_frames
from tests.providers_anthropic import anthropic_kit as claude
from tests.providers_openai_responses import responses_kit as openai


def run_events(events: list[ModelEvent], **more: Any) -> list[Event]:
    run = Run(ModelCall("m", []), Minter(b"seed"), **more)
    run.start()
    return run.feed(events)[0] + run.end()


def run_with_result(args: list[str], result: Any, *, cause: Any = "eof") -> list[Event]:
    """A run in which a function is called with `args` and returns `result`; None: it is not executed."""
    run = Run(ModelCall("m", []), Minter(b"seed"), server_tools={"look"} if result is not None else set())
    run.start()
    emitter = Emitter(Origin("p", "w", "m"))
    for piece in args:
        emitter.tool_call("c", piece, name="look", call_id="call_1")
    emitter.finish("tool_call", None)
    events, effects = run.feed(emitter.end(cause))
    if effects and isinstance(effects[0], CallTools):
        events += run.add_results([result])[0]
    return events + run.end()


def call_segment(frames: list[dict[str, Any]]) -> dict[str, Any]:
    segments: list[dict[str, Any]] = [one for one in final_event(frames)["segments"] if "call_id" in one]
    assert len(segments) == 1
    return segments[0]


def test_a_function_call_has_frames_from_arguments_to_result() -> None:
    frames = verified_frames(
        encode(run_with_result(['{"where"', ': "up"}'], ToolReturnPart("look", {"seen": [1, None]}, "call_1")))
    )
    call = {"event_id": "evt_1", "call_id": "call_1"}
    assert frames[1:5] == [
        {
            "type": "tool_call_started",
            **call,
            "name": "look",
            "args_preview": "",
            "sequence_number": 0,
            "created_at": NOW,
        },
        {
            "type": "tool_call_update",
            **call,
            "status": "arguments",
            "progress": None,
            "args_preview": '{"where": "up"}',
        },
        {"type": "tool_call_update", **call, "status": "running", "progress": None},
        {"type": "tool_result", **call, "result": {"seen": [1, None]}, "completed_at": NOW},
    ]
    segment = call_segment(frames)
    assert segment.pop("id").startswith("fc_")
    assert segment == {
        "type": "tool_call",
        "call_id": "call_1",
        "name": "look",
        "args": {"where": "up"},
        "args_text": '{"where": "up"}',
        "status": "completed",
        "result": {"seen": [1, None]},
        "created_at": NOW,
        "sequence_number": 0,
        "output_index": 0,
    }


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (RetryPromptPart("no such place", "look", "call_1"), "no such place"),
        (ToolReturnPart("look", "it broke", "call_1", "failed"), "it broke"),
        (ToolReturnPart("look", None, "call_1", "denied"), "the call was denied"),
        (ToolReturnPart("look", {"why": "x"}, "call_1", "failed"), '{"why":"x"}'),
    ],
)
def test_a_failed_result_is_an_error(result: ToolReturnPart | RetryPromptPart, error: str) -> None:
    frames = verified_frames(encode(run_with_result(["{}"], result)))
    [ended] = select(frames, "tool_result")
    assert (ended["result"], ended["error"]) == (None, error)
    segment = call_segment(frames)
    assert (segment["status"], segment["error"], "result" in segment) == ("failed", error, False)


RESULTS: list[Any] = [
    None,
    "",
    "text\ud800",
    5,
    [],
    {"a": 2**70},
    [{"kind": "text"}],
    [Text("x"), Image(url="https://e.org/i")],
    float("nan"),
    {1: {2: object()}},
    "<script>alert(1)</script>",
    [[[[]]]],
]


def test_any_result_of_a_function_can_be_encoded() -> None:
    with Cases() as case:
        for content in RESULTS:
            with case(content):
                frames = verified_frames(encode(run_with_result(["{}"], ToolReturnPart("look", content, "call_1"))))
                assert select(frames, "tool_result")[0]["result"] == call_segment(frames)["result"]


@pytest.mark.parametrize("cause", ["eof", "error", "cancelled"])
def test_a_call_without_a_result_is_incomplete(cause: Any) -> None:
    frames = verified_frames(encode(run_with_result(['{"a":'], None, cause=cause)))
    assert [frame["status"] for frame in select(frames, "tool_call_update")] == ["arguments", "incomplete"]
    segment = call_segment(frames)
    assert (segment["status"], segment["args"]) == ("incomplete", '{"a":')
    assert not {"result", "error"} & set(segment)


def test_previews_of_long_arguments_double_in_length() -> None:
    args = json.dumps({"text": "é" * 2000}, ensure_ascii=False)
    frames = verified_frames(encode(run_with_result(list(args), ToolReturnPart("look", 1, "call_1"))))
    previews = [frame["args_preview"] for frame in select(frames, "tool_call_update") if "args_preview" in frame]
    assert [len(preview) for preview in previews] == [32, 64, 128, 256, 500]
    assert all(args.startswith(preview) for preview in previews)
    assert call_segment(frames)["args"] == json.loads(args)


def test_a_call_from_an_earlier_answer_is_sent_complete() -> None:
    call = ToolCallPart("look", '{"where": "up"}', "call_0", item_id="fc_0")
    events: list[Event] = [
        FunctionToolCallEvent(call),
        FunctionToolResultEvent(ToolReturnPart("look", "sky", "call_0"), "fco_1"),
        FunctionToolResultEvent(RetryPromptPart("answer in JSON"), "fco_2"),
        *run_events([]),
    ]
    frames = verified_frames(encode(events))
    assert frame_types(frames)[1:-2] == ["tool_call_started", "tool_call_update", "tool_result"]
    assert select(frames, "tool_call_started")[0]["args_preview"] == '{"where": "up"}'
    assert (call_segment(frames)["id"], call_segment(frames)["result"]) == ("fc_0", "sky")


# --- tools of the provider -----------------------------------------------------------------------------------------

SEARCH = {"type": "search", "query": "tides"}
SOURCES = [{"type": "url", "url": "https://e.org"}]
CODE = "import math\nprint(math.pi)"

OPENAI = openai.sse(
    openai.created(),
    openai.added(0, "web_search_call", id="ws_1"),
    openai.wire_event("web_search_call.in_progress", 0, item_id="ws_1"),
    openai.wire_event("web_search_call.searching", 0, item_id="ws_1"),
    openai.wire_event("web_search_call.completed", 0, item_id="ws_1"),
    openai.done(0, "web_search_call", id="ws_1", action={**SEARCH, "sources": SOURCES}),
    openai.added(1, "code_interpreter_call", id="ci_1", code="", container_id="cntr"),
    openai.wire_event("code_interpreter_call.in_progress", 1, item_id="ci_1"),
    *(
        openai.wire_event("code_interpreter_call_code.delta", 1, delta=piece, item_id="ci_1")
        for piece in (CODE[:9], CODE[9:])
    ),
    openai.wire_event("code_interpreter_call_code.done", 1, code=CODE, item_id="ci_1"),
    openai.wire_event("code_interpreter_call.interpreting", 1, item_id="ci_1"),
    openai.wire_event("code_interpreter_call.completed", 1, item_id="ci_1"),
    openai.done(
        *(1, "code_interpreter_call"),
        id="ci_1",
        code=CODE,
        container_id="cntr",
        outputs=[{"type": "logs", "logs": "3.14\n"}],
    ),
    openai.added(2, "file_search_call", id="fs_1", queries=["q"]),
    openai.done(2, "file_search_call", id="fs_1", queries=["q"], status="failed"),
    *openai.answer(3, "High tide."),
    openai.response_end(),
)


def claude_tools() -> bytes:
    search_results = [{"type": "web_search_result", "url": "https://e.org", "title": "E", "encrypted_content": "blob"}]
    execution = {"type": "code_execution_result", "stdout": "3.14\n", "stderr": "", "return_code": 0, "content": []}
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    return claude.sse(
        claude.start(),
        *claude.tool(0, "srvtoolu_1", '{"query"', ': "tides"}', name="web_search", type="server_tool_use"),
        *(
            claude.block_start(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=search_results),
            claude.block_stop(1),
        ),
        *claude.tool(2, "srvtoolu_2", json.dumps({"code": CODE}), name="code_execution", type="server_tool_use"),
        *claude.tool(3, "srvtoolu_3", '{"query": "more"}', name="web_search", type="server_tool_use"),
        *(
            claude.block_start(4, "code_execution_tool_result", tool_use_id="srvtoolu_2", content=execution),
            claude.block_stop(4),
        ),
        *(
            claude.block_start(5, "web_search_tool_result", tool_use_id="srvtoolu_3", content=error),
            claude.block_stop(5),
        ),
        *claude.text(6, "High tide."),
        *claude.message_end(),
    )


def stream_frames(events: list[ModelEvent], view: Any = "raw") -> list[dict[str, Any]]:
    encoder = make_encoder(view=view)
    return verified_frames(encoder.start() + encoder.feed(Redactor(Viewer(view)).feed(run_events(events)), NOW))


@pytest.mark.parametrize("view", VIEWS)
def test_openai_searches_and_runs_code(view: Any) -> None:
    frames = stream_frames(openai.events_of(OPENAI), view)
    search = select(frames, "web_search_call_started", "web_search_call_update", "web_search_call_result")
    assert (search[0]["call_id"], search[0]["name"]) == ("ws_1", "web_search")
    statuses = [frame["status"] for frame in search if "status" in frame]
    assert "searching" in statuses
    assert search[-1]["result"] == {"status": "completed", "sources": SOURCES}
    code = select(
        frames, "code_interpreter_call_started", "code_interpreter_call_update", "code_interpreter_call_result"
    )
    assert (code[0]["call_id"], code[0]["name"]) == ("ci_1", "code_execution")
    previews = [frame["args_preview"] for frame in code if "args_preview" in frame]
    assert json.loads(previews[-1])["code"] == CODE
    assert code[-1]["result"] == {"status": "completed", "logs": ["3.14\n"]}
    segments = [segment for segment in final_event(frames)["segments"] if "call_id" in segment]
    assert [(one["type"], one["call_id"], one["status"], one["args"], one["output_index"]) for one in segments] == [
        ("web_search_call", "ws_1", "completed", SEARCH, 0),
        ("code_interpreter_call", "ci_1", "completed", {"container_id": "cntr", "code": CODE}, 1),
        ("builtin_tool_call", "fs_1", "failed", {"queries": ["q"]}, 2),
    ]
    # A tool without frames of its own has those of a function call.
    assert [frame["name"] for frame in select(frames, "tool_call_started")] == ["file_search"]
    assert select(frames, "tool_result")[0]["error"] == "the tool ended as failed"
    assert select(frames, "text_delta")[0]["output_index"] == 3


@pytest.mark.parametrize("view", VIEWS)
def test_anthropic_searches_and_runs_code(view: Any) -> None:
    frames = stream_frames(claude.events_of(claude_tools()), view)
    segments = [segment for segment in final_event(frames)["segments"] if "call_id" in segment]
    assert [(one["type"], one["call_id"], one["status"], one["args"]) for one in segments] == [
        ("web_search_call", "srvtoolu_1", "completed", {"query": "tides"}),
        ("code_interpreter_call", "srvtoolu_2", "completed", {"code": CODE}),
        ("web_search_call", "srvtoolu_3", "failed", {"query": "more"}),
    ]
    assert segments[0]["result"][0]["url"] == "https://e.org"
    assert segments[1]["result"]["stdout"] == "3.14\n"
    assert segments[2]["error"] == "max_uses_exceeded"
    updates = select(frames, "web_search_call_update")
    assert [frame["status"] for frame in updates] == ["running", "running"]
    assert [frame["args_preview"] for frame in updates] == ['{"query": "tides"}', '{"query": "more"}']
    results = select(frames, "web_search_call_result", "code_interpreter_call_result")
    assert [frame["call_id"] for frame in results] == ["srvtoolu_1", "srvtoolu_2", "srvtoolu_3"]


def test_calls_with_one_id_and_results_without_a_call_are_distinct() -> None:
    emitter = Emitter(Origin("p", "w", "m"))
    for _ in range(2):
        emitter.whole_part(BuiltinToolCallPart("web_search", {"q": 1}, "same"))
        emitter.whole_part(BuiltinToolReturnPart("web_search", "found", "same"))
    emitter.whole_part(BuiltinToolReturnPart("web_search", "unasked", "other"))
    emitter.whole_part(BuiltinToolCallPart("web_search", None, ""))
    emitter.finish("stop", None)
    frames = verified_frames(encode(run_events(emitter.end("eof"))))
    segments = final_event(frames)["segments"]
    assert len({one["call_id"] for one in segments}) == len(segments) == 4
    assert [(one["status"], one.get("result")) for one in segments] == [
        ("completed", "found"),
        ("completed", "found"),
        ("completed", "unasked"),
        ("incomplete", None),
    ]


FAILURES: list[tuple[Any, str | None]] = [
    ({"error": {"message": "no"}}, "no"),
    ({"error": ["a", 1]}, '["a",1]'),
    ({"error": None, "output": 1}, None),
    ({"is_error": True, "content": "bad"}, "bad"),
    ({"is_error": False, "content": "good"}, None),
    ({"is_error": True}, "the tool failed"),
    ({"status": "incomplete"}, "the tool ended as incomplete"),
    ({"error": object()}, "the tool failed"),
    ({"error_code": "x\ud800"}, "x\ufffd"),
    ("error", None),
    (None, None),
]


def test_the_error_of_a_failed_tool_is_its_own_message_or_a_default() -> None:
    with Cases() as case:
        for content, error in FAILURES:
            with case(content):
                emitter = Emitter(Origin("p", "w", "m"))
                emitter.whole_part(BuiltinToolReturnPart("mcp_server:x", content, "b"))
                emitter.finish("stop", None)
                frames = verified_frames(encode(run_events(emitter.end("eof"))))
                assert select(frames, "tool_result")[0].get("error") == error
                assert call_segment(frames)["status"] == ("completed" if error is None else "failed")
