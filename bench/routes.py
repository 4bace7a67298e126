"""Routes: the servers that are measured, the command that starts each, and its request.

A route is a row. To measure another server, or the gateway in another configuration, add one here and name it in a
scenario (`scenarios.py`). Every sample starts a new server, in an empty home directory.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import environment
from environment import PeerEnvironment
from processes import BenchError

HERE = Path(__file__).resolve().parent

DIRECT = "direct"
NGINX = "nginx"
PASS_THROUGH = "pass-through"
TRANSLATION = "translation"
ATTACHED = "attached"
STORED = "stored"
GUARDED = "stored, key and limits"
OPERATED = "attached, operated"
CHAT_PAGE = "chat page"
DETACHED = "detached"
DETACHED_REDIS = "detached, Redis"
TWO_WORKERS = "two workers"
CHAT_COMPLETIONS = "chat completions"
AG_UI = "ag-ui"
TENSORZERO = "TensorZero"
LITELLM = "LiteLLM"
LITELLM_RESPONSES = "LiteLLM, responses"
PYDANTIC_AI = "Pydantic AI, ag-ui"


class ServerOptions(NamedTuple):
    """The directory, port and upstream of a server."""

    home: Path
    """An empty directory, which is its working directory, too."""
    port: int
    """The port to listen on."""
    upstream_port: int
    redis_port: int | None
    source: Path | None
    """The `src` directory of another commit, and its Python; None for this checkout."""
    python: str


class Server(NamedTuple):
    """A command line and its environment variables."""

    command: list[str]
    environment: dict[str, str]


@dataclass(frozen=True)
class Route:
    name: str
    path: str
    body: dict[str, Any]
    headers: tuple[str, ...] = ()
    start: Callable[[ServerOptions], Server] | None = None
    """None: nothing is between the load generator and the upstream."""
    redis: bool = False
    """A Redis server is started for it, on the CPU of the upstream and the load."""
    batches: bool = False
    """By design, several deltas may leave in one write, although they came in several reads."""
    detached: bool = False
    """Its upstream streams go on when their clients have gone."""
    gateway: bool = False
    """It is Pellucid: `--base` measures it in the other version, too."""
    peer: PeerEnvironment | None = None
    is_base: bool = False

    def of_base(self) -> Route:
        """The same route over the commit that `--base` names."""
        return replace(self, name=base_name(self.name), is_base=True)


def base_name(name: str) -> str:
    """What the route `name` is called when it is measured over the base."""
    return f"{name} (base)"


# ---- requests -----------------------------------------------------------------------------------------------

MESSAGES = [{"role": "user", "content": "hi"}]
COMPLETIONS = {
    "model": "mock-r1",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": MESSAGES,
}
"""The request of the mock upstream, directly and through nginx."""
RESPONSES = {"model": "mock-r1", "stream": True, "input": "hi"}
BACKGROUND = RESPONSES | {"background": True, "store": True}
AG_UI_RUN = {
    "threadId": "t",
    "runId": "r",
    "protocolVersion": "1.0",
    "messages": [{"id": "m", "role": "user", "content": "hi"}],
    "tools": [],
    "context": [],
    "state": {},
    "forwardedProps": {},
}

# ---- the gateway -----------------------------------------------------------------------------------------------

KEY = "bench-bench-bench-bench-bench"
NOT_STORED = "[storage]\nstore = false\n"
WITH_KEY = """\
[access]
key_env = "BENCH_KEY"
key_policy = "metered"
[access.policies.metered]
requests_per_minute = 1000000000
tokens_per_minute = 1000000000000
streams = 100000
"""
WITH_DEPLOYMENTS = """\
cost_per_day = 1000000000
cost_per_month = 1000000000
[providers.first]
profile = "vllm"
base_url = "http://127.0.0.1:{upstream_port}/v1"
[providers.second]
profile = "vllm"
base_url = "http://127.0.0.1:{upstream_port}/v1"
[models.mock-r1]
fallbacks = { down = ["other"], rate_limit = ["other"] }
[[models.mock-r1.deployments]]
provider = "first"
requests_per_minute = 1000000000
streams = 100000
prices = { input = 1, cached_input = 0.1, output = 2, reasoning = 3 }
[[models.mock-r1.deployments]]
provider = "second"
prices = { input = 1, output = 2 }
[models.other]
provider = "second"
model = "mock-r1"
"""
"""Added to `WITH_KEY`: budgets of its policy, and two deployments with prices, of which one has limits."""
WITH_REDIS = '[relay]\nurl = "redis://127.0.0.1:{redis_port}"\n'
WITH_WORKERS = "[server]\nworkers = 2\n"


def gateway(config: str) -> Callable[[ServerOptions], Server]:
    """`pellucid serve` as it is by default (SQLite store, metrics, log lines), but for `config`, which is TOML."""

    def start(options: ServerOptions) -> Server:
        file, text = options.home / "pellucid.toml", config
        ports = {"{redis_port}": options.redis_port, "{upstream_port}": options.upstream_port}
        for placeholder, port in ports.items():
            text = text.replace(placeholder, str(port))
        file.write_text(text)
        command = [options.python, "-m", "pellucid", "serve", "--host", "127.0.0.1", "--port", str(options.port)]
        command += ["--provider", "vllm", "--upstream", f"http://127.0.0.1:{options.upstream_port}/v1"]
        variables = {"BENCH_KEY": KEY}
        if options.source is not None:
            variables["PYTHONPATH"] = str(options.source)
        return Server([*command, "--config", str(file)], variables)

    return start


# ---- others ----------------------------------------------------------------------------------------------------

NGINX_CONFIG = """\
daemon off;
pid {home}/nginx.pid;
worker_processes 1;
worker_rlimit_nofile 32768;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_timeout 300s;
    keepalive_requests 100000000;
    client_body_buffer_size 64k;
    client_body_temp_path {home}/nginx-body;
    proxy_temp_path {home}/nginx-proxy;
    fastcgi_temp_path {home}/nginx-fastcgi;
    uwsgi_temp_path {home}/nginx-uwsgi;
    scgi_temp_path {home}/nginx-scgi;
    upstream model {{
        server 127.0.0.1:{upstream_port};
        keepalive 4096;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://model;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 300s;
        }}
    }}
}}
"""


def find_program(name: str, remedy: str) -> str:
    """Return the path of a program. Nothing is installed.

    Raises:
        BenchError: It is missing; `remedy` says how to get it.
    """
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if not path:
        raise BenchError(f"{name} is missing; on Debian and its relatives: {remedy}")
    return path


def find_nginx() -> str:
    return find_program("nginx", "apt-get install nginx-light")


def find_redis() -> str:
    return find_program("redis-server", "apt-get install redis-server")


def nginx(options: ServerOptions) -> Server:
    config = options.home / "nginx.conf"
    config.write_text(NGINX_CONFIG.format(home=options.home, port=options.port, upstream_port=options.upstream_port))
    return Server([find_nginx(), "-p", str(options.home), "-c", str(config), "-e", "stderr"], {})


def pass_through(options: ServerOptions) -> Server:
    upstream = f"http://127.0.0.1:{options.upstream_port}"
    script = str(HERE / "passthrough.py")
    return Server([sys.executable, script, "--port", str(options.port), "--upstream", upstream], {})


def translation(options: ServerOptions) -> Server:
    script = str(HERE / "translation.py")
    ports = ["--port", str(options.port), "--upstream-port", str(options.upstream_port)]
    return Server([sys.executable, script, *ports], {})


def tensorzero(options: ServerOptions) -> Server:
    upstream = f"http://127.0.0.1:{options.upstream_port}/v1/"
    program = [environment.TENSORZERO.program("python"), str(HERE / "peer_tensorzero.py")]
    return Server([*program, "--upstream", upstream, "--port-file", str(port_file(options.home))], {})


def port_file(home: Path) -> Path:
    """Where a server that chooses its port itself writes it."""
    return home / "port"


LITELLM_KEY = f"sk-{secrets.token_hex(32)}"
LITELLM_CONFIG = """\
model_list:
  - model_name: mock-r1
    litellm_params: {{model: "{provider}/mock-r1", api_base: "http://127.0.0.1:{upstream_port}/v1", api_key: "none"}}
litellm_settings: {{telemetry: false}}
"""


def litellm(provider: str) -> Callable[[ServerOptions], Server]:
    def start(options: ServerOptions) -> Server:
        config = options.home / "litellm.yaml"
        config.write_text(LITELLM_CONFIG.format(provider=provider, upstream_port=options.upstream_port))
        command = [environment.LITELLM.program("litellm"), "--config", str(config), "--host", "127.0.0.1"]
        variables = {
            "LITELLM_MASTER_KEY": LITELLM_KEY,  # it does not start without one
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # prices are read from the package, not from the network
            "LITELLM_MODE": "PRODUCTION",
            "LITELLM_LOG": "ERROR",
        }
        return Server([*command, "--port", str(options.port), "--num_workers", "1", "--telemetry", "False"], variables)

    return start


def pydantic_ai(options: ServerOptions) -> Server:
    upstream = f"http://127.0.0.1:{options.upstream_port}/v1"
    program = [environment.PYDANTIC_AI.program("python"), str(HERE / "peer_agui.py")]
    return Server([*program, "--port", str(options.port), "--upstream", upstream], {})


# ---- the table -------------------------------------------------------------------------------------------------

_COMPLETIONS_PATH = "/v1/chat/completions"
_RESPONSES_PATH = "/v1/responses"

ROUTES = {
    route.name: route
    for route in (
        Route(DIRECT, _COMPLETIONS_PATH, COMPLETIONS),
        Route(NGINX, _COMPLETIONS_PATH, COMPLETIONS, start=nginx),
        # It reads its upstream's answers to their ends, whether or not the client is there.
        Route(PASS_THROUGH, _COMPLETIONS_PATH, COMPLETIONS, start=pass_through, detached=True),
        Route(TRANSLATION, _RESPONSES_PATH, RESPONSES, start=translation),
        Route(ATTACHED, _RESPONSES_PATH, RESPONSES | {"store": False}, start=gateway(NOT_STORED), gateway=True),
        Route(STORED, _RESPONSES_PATH, RESPONSES | {"store": True}, start=gateway(""), gateway=True),
        Route(
            GUARDED,
            _RESPONSES_PATH,
            RESPONSES | {"store": True},
            headers=(f"Authorization: Bearer {KEY}",),
            start=gateway(WITH_KEY),
            gateway=True,
        ),
        Route(
            OPERATED,
            _RESPONSES_PATH,
            RESPONSES | {"store": False},
            headers=(f"Authorization: Bearer {KEY}",),
            start=gateway(NOT_STORED + WITH_KEY + WITH_DEPLOYMENTS),
            gateway=True,
        ),
        Route(
            CHAT_PAGE,
            "/api/chat",
            {"model": "mock-r1", "text": "hi"},
            start=gateway(""),
            detached=True,
            gateway=True,
        ),
        Route(
            DETACHED,
            _RESPONSES_PATH,
            BACKGROUND,
            start=gateway(""),
            detached=True,
            gateway=True,
        ),
        Route(
            DETACHED_REDIS,
            _RESPONSES_PATH,
            BACKGROUND,
            start=gateway(WITH_REDIS),
            redis=True,
            batches=True,
            detached=True,
            gateway=True,
        ),
        Route(
            TWO_WORKERS,
            _RESPONSES_PATH,
            RESPONSES | {"store": False},
            start=gateway(NOT_STORED + WITH_WORKERS + WITH_REDIS),
            redis=True,
            gateway=True,
        ),
        Route(CHAT_COMPLETIONS, _COMPLETIONS_PATH, COMPLETIONS, start=gateway(NOT_STORED), gateway=True),
        Route(AG_UI, "/ag-ui?model=mock-r1", AG_UI_RUN, start=gateway(NOT_STORED), gateway=True),
        Route(
            TENSORZERO,
            "/openai/v1/chat/completions",
            COMPLETIONS | {"model": "tensorzero::model_name::mock-r1"},
            start=tensorzero,
            batches=True,
            peer=environment.TENSORZERO,
        ),
        Route(
            LITELLM,
            _COMPLETIONS_PATH,
            COMPLETIONS,
            headers=(f"Authorization: Bearer {LITELLM_KEY}",),
            start=litellm("hosted_vllm"),
            batches=True,
            peer=environment.LITELLM,
        ),
        Route(
            LITELLM_RESPONSES,
            _RESPONSES_PATH,
            RESPONSES,
            headers=(f"Authorization: Bearer {LITELLM_KEY}",),
            start=litellm("deepseek"),
            batches=True,
            peer=environment.LITELLM,
        ),
        Route(
            PYDANTIC_AI,
            "/ag-ui",
            AG_UI_RUN,
            start=pydantic_ai,
            batches=True,
            peer=environment.PYDANTIC_AI,
        ),
    )
}


def server_environment(home: Path, variables: dict[str, str]) -> dict[str, str]:
    """An environment in which a server finds no settings of the operator's and leaves nothing behind."""
    excluded = ("PELLUCID_", "XDG_", "PYTHON", "LITELLM_", "OPENAI_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(excluded)}
    return inherited | {"HOME": str(home), "NO_PROXY": "127.0.0.1"} | variables
