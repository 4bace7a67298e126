"""Agents behind the gateway's endpoints: `pellucid.responses(agent)`, `pellucid.chat(agent)`, and `AgentModel`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pydantic_ai
import pytest
from pydantic_ai.models import function as theirs
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Mount
from websockets.sync.client import connect

from pellucid import Agent, ApprovalRequired, RunContext, chat, responses
from pellucid.agent import RunInput
from pellucid.errors import ConfigError
from pellucid.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel, StreamItem
from pellucid.parts import ModelMessage, ModelRequest, SystemPromptPart, ThinkingPart, UserPromptPart
from pellucid.server.agent_model import AgentModel
from tests.agent.agui_app_kit import App, running
from tests.scripted import Reply
from tests.scripted.gateway import Served, serve
from tests.waiting import LIMIT_SECONDS

JSON = {"Content-Type": "application/json"}
MODELS = {"providers": {"up": {"profile": "vllm", "base_url": "http://127.0.0.1:9/v1", "models": ["m"]}}}
PAINT = {
    "type": "function",
    "name": "paint",
    "parameters": {"type": "object", "properties": {"color": {"type": "string"}}},
}

MCP = {"type": "mcp", "server_label": "x", "server_url": "https://192.0.2.1/"}


class Weather(NamedTuple):
    """An agent that thinks, looks up the weather, and answers; and what its model read in each turn."""

    agent: Agent[Any, str]
    requests: list[list[ModelMessage]]


def weather_agent(**options: Any) -> Weather:
    requests: list[list[ModelMessage]] = []

    async def write(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
        requests.append(messages)
        yield {0: DeltaThinkingPart(content=f"Thought {len(requests)}.", signature=f"sig-{len(requests)}")}
        last = messages[-1].parts[-1]
        if isinstance(last, UserPromptPart) and "weather" in str(last.content):
            yield {1: DeltaToolCall("weather", '{"city": "Oslo"}', f"call-{len(requests)}")}
        elif isinstance(last, UserPromptPart) and "paint" in str(last.content):
            yield {1: DeltaToolCall("paint", '{"color": "red"}', f"call-{len(requests)}")}
        else:
            yield f"Answer {len(requests)}."

    agent = Agent(FunctionModel(stream_function=write), name="meteorologist", instructions="Be brief.", **options)

    @agent.tool
    def weather(ctx: RunContext[Any], city: str) -> str:
        return f"rain in {city} for {ctx.deps}"

    return Weather(agent, requests)


@pytest.fixture
def weather() -> Weather:
    return weather_agent()


@pytest.fixture
def app(weather: Weather) -> Iterator[App]:
    with running(responses(weather.agent, deps="you")) as app:
        yield app


def post(app: Served, path: str, body: dict[str, Any], status: int = 200) -> Any:
    reply = send(app, path, body)
    assert reply.status == status, reply.body
    return json.loads(reply.body)


def send(app: Served, path: str, body: dict[str, Any], **headers: str) -> Reply:
    return app.request("POST", path, json.dumps(body).encode(), JSON | headers)


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def thoughts(messages: list[ModelMessage]) -> list[tuple[str, str | None]]:
    parts = [part for message in messages for part in message.parts]
    return [(part.content, part.signature) for part in parts if isinstance(part, ThinkingPart)]


# --- responses -------------------------------------------------------------------------------------------------------


def test_an_agent_is_a_model_whose_response_has_its_thoughts_calls_and_answer(app: App, weather: Weather) -> None:
    response = post(app, "/v1/responses", {"input": "What is the weather?"})
    assert (response["status"], response["model"]) == ("completed", "meteorologist")
    assert kinds(response) == ["reasoning", "function_call", "function_call_output", "reasoning", "message"]
    assert response["output"][2]["output"] == "rain in Oslo for you"
    assert response["output"][4]["content"][0]["text"] == "Answer 2."
    first = weather.requests[0][-1]
    assert isinstance(first, ModelRequest)
    assert first.instructions == "Be brief."


def test_the_next_response_continues_from_the_stored_one_with_signatures(app: App, weather: Weather) -> None:
    first = post(app, "/v1/responses", {"input": "What is the weather?"})
    post(app, "/v1/responses", {"input": "Sure?", "previous_response_id": first["id"]})
    assert thoughts(weather.requests[-1]) == [("Thought 1.", "sig-1"), ("Thought 2.", "sig-2")]
    assert [message.kind for message in weather.requests[-1]] == [*["request", "response"] * 2, "request"]


def test_sealed_thoughts_come_back_with_their_signatures_where_nothing_is_stored(app: App, weather: Weather) -> None:
    options = {"store": False, "include": ["reasoning.encrypted_content"]}
    question = {"role": "user", "content": "What is the weather?"}
    first = post(app, "/v1/responses", {"input": [question], **options})
    history = [question, *first["output"], {"role": "user", "content": "Sure?"}]
    post(app, "/v1/responses", {"input": history, **options})
    assert thoughts(weather.requests[-1]) == [("Thought 1.", "sig-1"), ("Thought 2.", "sig-2")]


def test_a_call_of_a_client_function_ends_the_response_and_its_result_continues_the_run(
    app: App, weather: Weather
) -> None:
    first = post(app, "/v1/responses", {"input": "Please paint.", "tools": [PAINT]})
    assert kinds(first) == ["reasoning", "function_call"]
    result = {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "It is red."}
    second = post(app, "/v1/responses", {"input": [result], "previous_response_id": first["id"], "tools": [PAINT]})
    assert kinds(second) == ["reasoning", "message"]
    assert "It is red." in str(weather.requests[-1][-1])


def test_a_background_response_runs_to_its_end_without_its_client(app: App) -> None:
    begun = post(app, "/v1/responses", {"input": "What is the weather?", "background": True})
    reply = app.request("GET", f"/v1/responses/{begun['id']}?stream=true")
    assert b"response.completed" in reply.body
    assert json.loads(app.request("GET", f"/v1/responses/{begun['id']}").body)["status"] == "completed"


def test_the_socket_serves_the_agent_too(app: App) -> None:
    with connect(f"ws://127.0.0.1:{app.port}/v1/responses", open_timeout=LIMIT_SECONDS) as socket:
        socket.send(json.dumps({"type": "response.create", "input": "What is the weather?"}))
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "response.completed":
            events.append(json.loads(socket.recv(LIMIT_SECONDS)))
    assert kinds(events[-1]["response"]) == [
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
    ]


def test_what_the_agent_decides_itself_is_left_out_with_a_warning(app: App, weather: Weather) -> None:
    body = {
        "input": [{"role": "developer", "content": "Say yes."}, {"role": "user", "content": "Hi"}],
        "instructions": "Obey me.",
        "tool_choice": "required",
        "tools": [PAINT],
        "text": {"format": {"type": "json_object"}},
        "truncation": "auto",
    }
    reply = httpx.post(f"{app.url}/v1/responses", json=body)
    assert reply.json()["status"] == "completed"
    warnings = " ".join(reply.headers.get_list("pellucid-warning"))
    for left_out in ("instructions of the client", "choice of tools", "form of the output", "truncation"):
        assert left_out in warnings
    [request] = weather.requests[-1]
    assert isinstance(request, ModelRequest)
    assert request.instructions == "Be brief."
    assert not [part for part in request.parts if isinstance(part, SystemPromptPart)]


def test_an_application_can_trust_its_clients_with_instructions(weather: Weather) -> None:
    with running(responses(weather.agent, system_messages=True)) as app:
        post(app, "/v1/responses", {"input": "Hi", "instructions": "Obey me."})
    assert "Obey me." in str(weather.requests[-1])


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {"input": "Hi", "tools": [PAINT | {"name": "weather"}]}, "tools[0].name"),
        ("/v1/responses", {"input": "Hi", "tools": [MCP]}, "tools[0]"),
        ("/v1/responses", {"input": "Hi", "model": "another"}, "model"),
        ("/v1/responses/compact", {"input": "Hi"}, "model"),
    ],
)  # fmt: skip
def test_what_an_agent_cannot_do_is_refused(app: App, path: str, body: dict[str, Any], param: str) -> None:
    reply = send(app, path, body)
    assert reply.status in (400, 404, 422, 501), reply.body
    assert json.loads(reply.body)["error"]["param"].startswith(param)


def test_a_call_that_waits_for_an_approval_ends_the_response_as_failed(weather: Weather) -> None:
    dropped: list[str] = []

    @weather.agent.tool_plain(name="paint")
    def drop(color: str) -> str:
        dropped.append(color)
        raise ApprovalRequired

    with running(responses(weather.agent)) as app:
        response = post(app, "/v1/responses", {"input": "Please paint."})
        assert (response["status"], response["error"]["code"]) == ("failed", "interrupt_not_supported")
        assert "'paint' waits for an approval" in response["error"]["message"]
        # The call has a result, so that the client cannot answer it.
        assert kinds(response) == ["reasoning", "function_call", "function_call_output"]
        result = {"type": "function_call_output", "call_id": response["output"][1]["call_id"], "output": "approved"}
        again = {"input": [result], "previous_response_id": response["id"]}
        assert send(app, "/v1/responses", again).status == 400
        post(app, "/v1/responses", {"input": "Hi", "previous_response_id": response["id"]})
    assert "was not made" in str(weather.requests[-1])


def test_max_tool_calls_limits_the_functions_of_the_agent() -> None:
    async def write(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
        yield {0: DeltaToolCall("look", "{}", f"call-{len(messages)}")}

    looked: list[int] = []
    agent = Agent(FunctionModel(stream_function=write))

    @agent.tool_plain
    def look() -> str:
        looked.append(1)
        return "Nothing yet."

    with running(responses(agent)) as app:
        response = post(app, "/v1/responses", {"input": "Look.", "max_tool_calls": 2})
    assert (response["status"], len(looked)) == ("incomplete", 2)


def test_a_restricted_view_holds_for_stored_responses_too(weather: Weather) -> None:
    with running(responses(weather.agent, view="hidden")) as app:
        first = post(app, "/v1/responses", {"input": "What is the weather?"})
        reply = app.request("GET", f"/v1/responses/{first['id']}")
    assert "Thought" not in json.dumps(first)
    assert b"Thought" not in reply.body


def test_stored_responses_are_there_after_a_restart(weather: Weather, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/agent.db"
    with running(responses(weather.agent, store=store)) as app:
        first = post(app, "/v1/responses", {"input": "What is the weather?"})
    with running(responses(weather.agent, store=store)) as app:
        post(app, "/v1/responses", {"input": "Sure?", "previous_response_id": first["id"]})
    assert len(thoughts(weather.requests[-1])) == 2


def test_dependencies_are_made_from_the_request(weather: Weather) -> None:
    async def deps(request: HTTPConnection) -> str:
        return request.headers["x-user"]

    with running(responses(weather.agent, deps=deps)) as app:
        reply = send(app, "/v1/responses", {"input": "What is the weather?"}, **{"X-User": "ada"})
        url = f"ws://127.0.0.1:{app.port}/v1/responses"
        with connect(url, open_timeout=LIMIT_SECONDS, additional_headers={"X-User": "bob"}) as socket:
            socket.send(json.dumps({"type": "response.create", "input": "What is the weather?"}))
            while "response.completed" not in (last := str(socket.recv(LIMIT_SECONDS))):
                pass
    assert json.loads(reply.body)["output"][2]["output"] == "rain in Oslo for ada"
    assert "rain in Oslo for bob" in last


def test_only_the_endpoints_of_the_protocol_are_there(app: App) -> None:
    for path in ("/v1/chat/completions", "/v1/messages", "/ag-ui", "/api/chat", "/spaces"):
        assert send(app, path, {}).status == 404, path
    assert json.loads(app.request("GET", "/v1/models").body)["data"][0]["id"] == "meteorologist"
    assert set(json.loads(app.request("GET", "/openapi.json").body)["paths"]) >= {"/v1/responses", "/v1/models"}


def test_a_page_under_a_foreign_name_is_refused(app: App) -> None:
    headers = JSON | {"Host": "rebound.example"}
    reply = app.request("POST", "/v1/responses", b'{"input": "Hi"}', headers)
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (403, "foreign_host")


def test_arguments_are_checked(weather: Weather) -> None:
    with pytest.raises(ConfigError, match="origins"):
        responses(weather.agent, origins=["not an origin"])
    with pytest.raises(ConfigError, match="store: a store is sqlite"):
        responses(weather.agent, store="mysql://host/db")
    with pytest.raises(TypeError, match="is no agent"):
        responses(object())


def test_an_application_that_was_not_started_says_how_to_start_it(weather: Weather) -> None:
    async def main() -> None:
        app = responses(weather.agent)
        mounted = Starlette(routes=[Mount("/agent", app)])
        transport = httpx.ASGITransport(mounted)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            with pytest.raises(RuntimeError, match="lifespan_context"):
                await client.post("/agent/v1/responses", json={"input": "Hi"})
            async with app.lifespan_context:
                reply = await client.post("/agent/v1/responses", json={"input": "Hi"})
                assert reply.json()["status"] == "completed"

    asyncio.run(main())


# --- chat ------------------------------------------------------------------------------------------------------------


def test_the_chat_streams_stores_and_continues(weather: Weather) -> None:
    with running(chat(weather.agent, deps="you")) as app:
        first = send(app, "/api/chat", {"text": "What is the weather?"}).body.decode()
        frames = [json.loads(line[6:]) for line in first.splitlines() if line.startswith("data: ")]
        chat_id = frames[0]["conversation_id"]
        assert [
            frame["type"] for frame in frames if frame["type"] in ("thought_started", "tool_result", "message_final")
        ]
        assert frames[-1]["event"]["segments"][-1]["text"] == "Answer 2."
        send(app, "/api/chat", {"text": "Sure?", "conversation_id": chat_id})
        opened = json.loads(app.request("GET", f"/api/conversations/{chat_id}").body)
        page = app.request("GET", "/", headers={"Accept": "text/html"})
    assert thoughts(weather.requests[-1]) == [("Thought 1.", "sig-1"), ("Thought 2.", "sig-2")]
    assert opened["conversation"]["title"] == "What is the weather?"
    assert page.status in (200, 503)  # 503: the page was not built


# --- agents of Pydantic AI, and agents as one of several models ------------------------------------------------------


def test_an_agent_of_pydantic_ai_is_served_in_the_same_way() -> None:
    async def write(messages: Any, info: Any) -> AsyncIterator[Any]:
        is_first = len(messages) == 1
        yield {0: theirs.DeltaThinkingPart(content="Hm.")}
        yield {1: theirs.DeltaToolCall("weather", '{"city": "Oslo"}', tool_call_id="c1")} if is_first else "Rain."

    agent = pydantic_ai.Agent(theirs.FunctionModel(stream_function=write), name="theirs")

    @agent.tool_plain
    def weather(city: str) -> str:
        return f"rain in {city}"

    with running(responses(agent)) as app:
        response = post(app, "/v1/responses", {"input": "What is the weather?"})
        assert kinds(response) == ["reasoning", "function_call", "function_call_output", "reasoning", "message"]


def test_an_agent_is_one_of_the_models_and_served_in_every_protocol(weather: Weather) -> None:
    function = {"type": "function", "function": {name: PAINT[name] for name in ("name", "parameters")}}
    with serve(MODELS, more=[AgentModel(weather.agent, "helper", deps="you")]) as gateway:
        body = {"model": "helper", "messages": [{"role": "user", "content": "What is the weather?"}]}
        message = post(gateway, "/v1/chat/completions", body)["choices"][0]["message"]
        assert (message["content"], message.get("tool_calls")) == ("Answer 2.", None)
        called = {"model": "helper", "messages": [{"role": "user", "content": "Please paint."}], "tools": [function]}
        message = post(gateway, "/v1/chat/completions", called)["choices"][0]["message"]
        assert [call["function"]["name"] for call in message["tool_calls"]] == ["paint"]
        answer = post(gateway, "/v1/messages", {**body, "max_tokens": 100})
        assert [block["type"] for block in answer["content"]][-1] == "text"
        metrics = gateway.request("GET", "/metrics").body.decode()
    assert 'pellucid_upstream_turns_total{model="helper",provider="function"} 5.0' in metrics, metrics


def test_the_operators_bounds_hold_for_agents() -> None:
    """The view of the model's provider, the limits of keys, and the number of calls."""
    settings: list[Any] = []

    async def write(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
        settings.append(info.model_settings)
        yield {0: DeltaThinkingPart(content="A secret thought.")}
        yield {1: DeltaToolCall("look", "{}", f"call-{len(messages)}")}

    agent = Agent(FunctionModel(stream_function=write), model_settings={"max_tokens": 100})
    looked: list[int] = []

    @agent.tool_plain
    def look() -> str:
        looked.append(1)
        return "Nothing yet."

    config = {
        "providers": {"function": {"profile": "vllm", "base_url": "http://127.0.0.1:9/v1", "view": "hidden"}},
        "access": {"default_policy": "team", "policies": {"team": {"max_output_tokens": 5000}}},
        "tools": {"max_calls": 3},
    }
    with serve(config, more=[AgentModel(agent, "looker")]) as gateway:
        response = post(gateway, "/v1/responses", {"model": "looker", "input": "Look."})
        post(gateway, "/v1/responses", {"model": "looker", "input": "Look.", "max_output_tokens": 4000})
    assert "secret" not in json.dumps(response)
    assert (response["status"], len(looked)) == ("incomplete", 6)
    assert [settings[0]["max_tokens"], settings[-1]["max_tokens"]] == [100, 4000]


def test_the_context_of_an_agui_client_is_text_of_the_user(weather: Weather) -> None:
    body = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "s", "role": "system", "content": "Obey."}, {"id": "u", "role": "user", "content": "Hi"}],
        "context": [{"description": "Where", "value": "Oslo"}],
        "forwardedProps": {"pellucid": {"model": "helper"}},
    }
    with serve(MODELS, more=[AgentModel(weather.agent, "helper")]) as gateway:
        reply = send(gateway, "/ag-ui", body)
    assert "1" in reply.headers["pellucid-warning"]
    [request] = weather.requests[-1]
    assert [type(part) for part in request.parts] == [UserPromptPart] * 2
    assert "Oslo" in str(request)
    assert "Obey" not in str(request)


def test_prompts_are_called_once_with_the_dependencies_of_an_override(weather: Weather) -> None:
    called_with: list[Any] = []

    @weather.agent.system_prompt
    def static(ctx: RunContext[Any]) -> str:
        called_with.append(("static", ctx.deps))
        return "Static."

    @weather.agent.system_prompt(dynamic=True)
    def dynamic(ctx: RunContext[Any]) -> str:
        called_with.append(("dynamic", ctx.deps))
        return "Dynamic."

    async def main() -> None:
        with weather.agent.override(deps="overridden"):
            run = await weather.agent.start(RunInput(messages=[ModelRequest([UserPromptPart("Hi")])], deps="given"))
            await run.finish()

    asyncio.run(main())
    assert called_with == [("static", "overridden"), ("dynamic", "overridden")]
    assert [part.content for part in weather.requests[-1][0].parts] == ["Static.", "Dynamic.", "Hi"]  # type: ignore[union-attr]


def test_names_of_agents_are_checked(weather: Weather) -> None:
    with pytest.raises(ValueError, match="256 characters"):
        AgentModel(weather.agent, "x" * 300)
