"""Agents as ASGI applications.

    from pellucid import Agent, agui, chat, responses

    app = agui(Agent("anthropic:claude-sonnet-4-0"))      # uvicorn module:app

`agui` serves AG-UI clients and stores nothing. `responses` is the Responses API, and `chat` the page and its API: they
are the gateway (`server`) with the agent as its only model, so conversations are stored, and run in the background.
The agent may be Pellucid's or Pydantic AI's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .asgi.agui import AGUIApp, application_path
from .errors import ConfigError
from .interop.servable import servable
from .protocols.agui import DialectName
from .sealing import Keys
from .view import View, parse_view

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from .server.agent_model import AgentModel
    from .server.app import Gateway


def agui(
    agent: Any,
    *,
    path: str = "/",
    dialect: DialectName | None = None,
    view: View = "raw",
    seal_keys: Keys | str | Path | None = None,
    deps: Any = None,
    system_messages: bool = False,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    threads: str | None = None,
) -> AGUIApp | Gateway:
    """Make an ASGI application that serves runs of an agent to AG-UI clients.

    Args:
        agent: A `pellucid.Agent`, a `pydantic_ai.Agent`, or any other `ServableAgent`.
        path: The path that clients POST to.
        dialect: The dialect for clients that name neither a dialect nor a version (by default `0.x`).
        view: The least restricted view of the reasoning that a client may have: `raw`, `summary`, `sealed` or `hidden`.
        seal_keys: A key set, or the path of its file, which is created if it does not exist. None: the keys in the
            environment, or the gateway's own file.
        deps: The dependencies of each run, or a function that makes them from the run's `RunAgentInput`. If they are a
            dataclass with a field `state` (`StateDeps`), the field holds the client's state, converted to the type of
            its value here.
        system_messages: Whether clients may instruct the model with messages of the roles `system` and `developer`, and
            with `context`. By default such messages are left out, and `context` is a text of the user.
        hosts: Names under which the application may be used, in addition to addresses, localhost and the machine's
            name; `*` for all. The application has no keys, so a web page could otherwise use it under a name that its
            owner points at this machine (DNS rebinding).
        origins: Origins of other web pages that may use it, such as `https://app.example.com`; `*` for all.
        threads: The URL of the store in which the server holds the threads (`store` of `responses`). Of a client come
            only new messages, results of its tools, and answers to interrupts; a run continues without its client, and
            GET streams it again. Lifespan is as in `responses`. None: a client sends the whole conversation, and
            nothing is stored.

    Returns:
        The application.

    Raises:
        ConfigError: An argument is invalid, or the keys cannot be read.
        TypeError: `agent` is not an agent.
    """
    if threads is not None:
        from .server.agent_model import AgentModel

        if seal_keys is not None:
            raise ConfigError(["seal_keys: with threads, nothing is sealed, because the server has it; leave it out"])
        make_deps = deps
        if callable(deps):  # `run_input` is set by the endpoint

            def make_deps(request: HTTPConnection) -> Any:
                return deps(request.state.run_input)

        model = AgentModel(agent, deps=make_deps, system_messages=system_messages, holds_threads=True)
        return _gateway(model, ["agui"], threads, view, hosts, origins, path=application_path(path), dialect=dialect)
    return AGUIApp(
        servable(agent),
        path=path,
        dialect=dialect,
        view=view,
        seal_keys=seal_keys,
        deps=deps,
        system_messages=system_messages,
        hosts=hosts,
        origins=origins,
    )


def responses(
    agent: Any,
    *,
    name: str | None = None,
    store: str = "sqlite://",
    view: View = "raw",
    seal_keys: str | Path | None = None,
    deps: Any = None,
    system_messages: bool = False,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> Gateway:
    """Make an ASGI application that serves an agent as a model of the Responses API, at `/v1/responses`.

    The application needs ASGI's lifespan events: another application that contains it enters its `lifespan_context`. It
    has no keys, and all clients share its stored responses: `server.create_app` has keys and owners.

    Args:
        agent: A `pellucid.Agent`, a `pydantic_ai.Agent`, or any other `ServableAgent`.
        name: The name of the model; by default the agent's own, or `agent`. A request without one means it, too.
        store: The URL of the store: `sqlite:///file`, `postgresql://host/database`, or `sqlite://`, which is the memory
            of the process.
        view: The least restricted view of the reasoning that a client may have: `raw`, `summary`, `sealed` or `hidden`.
        seal_keys: The path of the file with the seal keys, which is created if it does not exist. None: the keys in the
            environment, or the gateway's own file.
        deps: The dependencies of each run, or a function that makes them from the `starlette.requests.HTTPConnection`.
        system_messages: Whether clients may instruct the model, with `instructions` and with messages of the roles
            `system` and `developer`. By default they are left out, with a warning.
        hosts: See `agui`.
        origins: See `agui`.

    Returns:
        The application.

    Raises:
        ConfigError: An argument is invalid.
        TypeError: `agent` is not an agent.
    """
    from .server.agent_model import AgentModel

    model = AgentModel(agent, name, deps=deps, system_messages=system_messages)
    return _gateway(model, ["openresponses"], store, view, hosts, origins, seal_keys)


def chat(
    agent: Any,
    *,
    name: str | None = None,
    store: str = "sqlite://",
    view: View = "raw",
    deps: Any = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> Gateway:
    """Make an ASGI application that serves a chat with an agent: the page at `/`, and its API.

    Lifespan, keys and owners are as in `responses`.

    Args:
        agent: A `pellucid.Agent`, a `pydantic_ai.Agent`, or any other `ServableAgent`.
        name: The name under which the page shows it; by default the agent's own, or `agent`.
        store: Where the conversations are stored. See `responses`.
        view: The least restricted view of the reasoning that a reader may have.
        deps: The dependencies of each run, or a function that makes them from the `starlette.requests.HTTPConnection`.
        hosts: See `agui`.
        origins: See `agui`.

    Returns:
        The application.

    Raises:
        ConfigError: An argument is invalid.
        TypeError: `agent` is not an agent.
    """
    from .server.agent_model import AgentModel

    return _gateway(AgentModel(agent, name, deps=deps), ["chat", "sessions"], store, view, hosts, origins)


def _gateway(
    model: AgentModel,
    endpoints: Sequence[str],
    store: str,
    view: View,
    hosts: Sequence[str],
    origins: Sequence[str],
    seal_keys: str | Path | None = None,
    path: str | None = None,
    dialect: DialectName | None = None,
) -> Gateway:
    """Make a gateway with one model, for clients without keys.

    Args:
        model: The model.
        endpoints: The names of the endpoints that it has (`server.endpoints.ENDPOINTS`).
        store: The URL of the store.
        view: The fullest view of the reasoning.
        hosts: Names under which it may be used.
        origins: Origins of other pages that may use it.
        seal_keys: The path of the file with the seal keys.
        path: A path under which the endpoints of AG-UI are used, too.
        dialect: The dialect of AG-UI clients that name none.

    Raises:
        ConfigError: An argument is invalid.
    """
    from .protocols.client_protocols import CLIENT_PROTOCOLS
    from .server.access.config import AccessConfig, CorsConfig, check_access
    from .server.access.policy import Policy
    from .server.app import Gateway
    from .server.config import (
        Config,
        LocalConfig,
        RecordConfig,
        SealingConfig,
        ServerConfig,
        StorageConfig,
        TelemetryConfig,
    )
    from .server.endpoints import ENDPOINTS
    from .server.services import Services
    from .storage import check_store_url

    config = Config(
        server=ServerConfig(
            default_model=model.name, allow_unauthenticated=True, page="chat" in endpoints, agui_dialect=dialect
        ),
        access=AccessConfig(
            keys=False,
            default_policy="client",
            policies={"client": Policy(view=parse_view(view, "view"))},
            hosts=list(hosts),
            cors=CorsConfig(origins=list(origins)),
        ),
        storage=StorageConfig(url=store),
        sealing=SealingConfig(keys_file=None if seal_keys is None else str(seal_keys)),
        record=RecordConfig(enabled=False),
        telemetry=TelemetryConfig(metrics=False),
        local=LocalConfig(enabled=False),
    )
    if mistakes := check_access(config.access, os.environ):
        raise ConfigError(mistakes)
    try:
        check_store_url(store)
    except ConfigError as error:
        raise ConfigError([f"store: {mistake}" for mistake in error.mistakes]) from None
    [agui_path] = CLIENT_PROTOCOLS["agui"].paths
    aliases = {} if path is None else {f"{path}{one}": f"{agui_path}{one}" for one in ("", "/cancel")}
    return Gateway(
        Services(config, extra_models=[model], locks_store=True), [ENDPOINTS[name] for name in endpoints], aliases
    )
