"""The names that users depend on, as this version has them, a line each: `python -m tests.frozen.names`.

`KINDS` has a row for each kind of names. They are read from the running product (the OpenAPI document, click's
commands, the configuration's structs, the metrics' registry, a migrated database, the spans of a run); names that no
running part lists are read from the source (`source`). No line depends on the name of a class or of a module.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import cache

import click
import msgspec

import pellucid
from pellucid import protocols
from pellucid.cli import main
from pellucid.envelopes import kinds
from pellucid.errors import ERROR_KINDS
from pellucid.protocols.decoding import PlainRequest
from pellucid.protocols.errors import KIND_NAMES
from pellucid.providers.profiles import builtin_profiles
from pellucid.relay import DEFAULT_PREFIX, scripts
from pellucid.server.access import oidc, session
from pellucid.server.config import Config
from pellucid.settings import ModelSettings
from pellucid.storage.migrate import alembic_statements, migration_statements
from pellucid.telemetry.metrics import Metrics
from pellucid.telemetry.names import SETTING_ATTRIBUTES
from pellucid.tools.server_toolset import ENTRY_POINT_GROUP
from tests.frozen.observed import observed_names
from tests.frozen.schemas import Struct, openapi_names, setting_names, struct_names, tagged
from tests.frozen.source import SOURCE, code_values, constants, named_numbers
from tests.schemas import openapi_document

_FROM_PROTOCOLS = "pellucid.protocols."


@cache
def current_names() -> tuple[str, ...]:
    """Return every name as `KIND NAME`, sorted."""
    names = set(_openapi()) | set(observed_names())
    for kind, rows in KINDS.items():
        names |= {f"{kind} {row}" for row in rows()}
    return tuple(sorted(names))


# --- the operator's interface ----------------------------------------------------------------------------------------


def _openapi() -> Iterator[str]:
    yield from openapi_names(openapi_document())


def _config() -> Iterator[str]:
    yield from setting_names(Config)


def _environment() -> Iterator[str]:
    """Yield the environment variables that the package reads."""
    for row in builtin_profiles().values():
        yield from (*row.api_key_env, *row.base_url_env)
    usual = r"(PELLUCID|OTEL|XDG|AWS|HF|PROMETHEUS)_[A-Z0-9_]*[A-Z0-9]"
    yield from (text for text in constants() if re.fullmatch(usual, text))
    for _, parameter in _parameters():
        variables = parameter.envvar or ()
        yield from (variables,) if isinstance(variables, str) else variables


def _commands() -> Iterator[str]:
    yield from (name for name, _ in _walk(main, "pellucid"))
    for name, parameter in _parameters():
        argument = parameter.metavar or (parameter.name or "").upper()
        shown = parameter.opts if isinstance(parameter, click.Option) else [argument]
        for option in (*shown, *parameter.secondary_opts):
            yield f"{name} {option}"
        if isinstance(parameter.type, click.Choice):
            yield from (f"{name} {shown[0]} = {choice}" for choice in parameter.type.choices)
        if isinstance(parameter, click.Option) and isinstance(parameter.default, str | int | float):
            yield f"{name} {shown[0]} default {parameter.default}"


def _walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for one in command.list_commands(context):
            inner = command.get_command(context, one)
            assert inner is not None
            yield from _walk(inner, f"{name} {one}")


def _parameters() -> Iterator[tuple[str, click.Parameter]]:
    for name, command in _walk(main, "pellucid"):
        yield from ((name, parameter) for parameter in command.params)


def _metrics() -> Iterator[str]:
    registry = Metrics().registry
    for family in registry.collect():
        yield f"{family.name} {family.type}"
    for metric in dict.fromkeys(registry._names_to_collectors.values()):
        labels: tuple[str, ...] = getattr(metric, "_labelnames", ())
        yield from (f"{getattr(metric, '_name', '')}{{{label}}}" for label in labels)


def _attributes() -> Iterator[str]:
    """Yield the attributes of spans that one run does not show, without ASGI message types and file names."""
    others = r"http\.(disconnect|request|response\.(start|body))|pellucid\.(frames|sqlite|toml)"
    candidates = {
        text for text in constants() if re.fullmatch(r"(gen_ai|pellucid|http|server|error)(\.[a-z_]+)+", text)
    }
    modules = {".".join(("pellucid", *path.relative_to(SOURCE).with_suffix("").parts)) for path in SOURCE.rglob("*")}
    yield from SETTING_ATTRIBUTES.values()
    yield from (text for text in candidates - modules if not re.fullmatch(others, text))


# --- errors ----------------------------------------------------------------------------------------------------------


def _codes() -> Iterator[str]:
    """Yield the codes of errors, and the kinds, which are the codes of errors without one.

    `{}` stands for a value that is known at run time only.
    """
    yield from ERROR_KINDS
    yield from (code for code in code_values() if isinstance(code, str) and re.fullmatch(r"[a-z][a-z0-9_{}]+", code))


def _kinds() -> Iterator[str]:
    yield from (f"{kind} {KIND_NAMES[kind].status}" for kind in ERROR_KINDS)


def _close_codes() -> Iterator[str]:
    """Yield the close codes of WebSockets: those of RFC 6455, and ours from 4400."""
    yield from (str(code) for code in code_values() if code in range(1000, 1016) or code in range(4400, 4500))
    yield from (str(code) for code in named_numbers() if code in range(1001, 1016) or code in range(4400, 4500))


# --- HTTP ------------------------------------------------------------------------------------------------------------


def _headers() -> Iterator[str]:
    """Yield headers that are not HTTP's: ours, those that begin with `X-`, and such names in OpenAPI."""
    for text in constants():
        for one in re.split(r",\s*", text):
            if re.fullmatch(r"(x|pellucid|openresponses|ag-?ui|last-event)-[a-z%{}-]*[a-z}]", one, re.IGNORECASE):
                yield one.lower()


def _queries() -> Iterator[str]:
    """Yield query parameters that are read and are not in the OpenAPI document."""
    known = set(constants())
    yield from (name for name in ("include", "iss", "pace", "protocol") if name in known)


def _cookies() -> Iterator[str]:
    yield from (session.COOKIE, oidc.COOKIE)


# --- protocols -------------------------------------------------------------------------------------------------------


def protocol_structs() -> dict[str, list[Struct]]:
    """Return the structs of client protocols, by the protocol's package."""
    for module in pkgutil.walk_packages(protocols.__path__, _FROM_PROTOCOLS):
        importlib.import_module(module.name)
    structs: dict[str, list[Struct]] = {}
    for struct in _subclasses(msgspec.Struct):
        package, _, rest = struct.__module__.removeprefix(_FROM_PROTOCOLS).partition(".")
        # A parsed request is never encoded: its body is listed. A run's header is stored, and sent to no client; so are
        # the client's tools in it.
        is_sent = not issubclass(struct, PlainRequest) and rest not in ("run_header", "client_tools")
        if struct.__module__.startswith(_FROM_PROTOCOLS) and rest and is_sent:
            structs.setdefault(package, []).append(struct)
    return structs


def _subclasses(cls: type[msgspec.Struct]) -> Iterator[Struct]:
    one: Struct
    for one in cls.__subclasses__():
        yield one
        yield from _subclasses(one)


def request_roots() -> dict[str, dict[str, Struct]]:
    """Return the request structs of each protocol, by their name in this list."""
    from pellucid.protocols.agui.interrupts import Approval
    from pellucid.protocols.agui.messages import RunAgentInput
    from pellucid.protocols.agui.request import Options
    from pellucid.protocols.ai_sdk import messages as ui
    from pellucid.protocols.ai_sdk.request import Body
    from pellucid.protocols.chat.types import Ask, Change, NewShare, SetFeedback
    from pellucid.protocols.chat_completions.types import CreateChatCompletion
    from pellucid.protocols.messages import types as anthropic
    from pellucid.protocols.openresponses.types import CreateResponse

    parts: dict[str, Struct] = {
        "part text": ui.TextUIPart,
        "part file": ui.FileUIPart,
        "part tool": ui.ToolUIPart,
        "part steering": ui.SteeringUIPart,
    }
    return {
        "openresponses": {"create": CreateResponse},
        "chat_completions": {"create": CreateChatCompletion},
        "agui": {"run": RunAgentInput, "options": Options, "approval": Approval},
        "ai_sdk": {"ask": Body, **parts},
        "chat": {"ask": Ask, "change": Change, "feedback": SetFeedback, "share": NewShare},
        "messages": {
            "create": anthropic.CreateMessage,
            "count": anthropic.CountTokens,
            "tool": anthropic.ToolParam,
            "block text": anthropic.TextParam,
            "block image": anthropic.ImageParam,
            "block document": anthropic.DocumentParam,
            "block thinking": anthropic.ThinkingBlockParam,
            "block redacted_thinking": anthropic.RedactedThinkingParam,
            "block tool_use": anthropic.ToolUseParam,
            "block tool_result": anthropic.ToolResultParam,
        },
    }


def answer_roots() -> dict[str, dict[str, Struct]]:
    """Return the response structs of each protocol, by their name in this list; events by their types."""
    from pellucid.protocols.chat.types import Answer, Question
    from pellucid.protocols.chat_completions.types import ChatCompletion, ChatCompletionChunk
    from pellucid.protocols.messages.types import Message, TokenCount
    from pellucid.protocols.openresponses.types import CompactedResponse, InputTokens, Response

    written: dict[str, dict[str, Struct]] = {
        "openresponses": {
            "response": Response,
            "response.compaction": CompactedResponse,
            "response.input_tokens": InputTokens,
        },
        "chat_completions": {"chat.completion": ChatCompletion, "chat.completion.chunk": ChatCompletionChunk},
        "chat": {"question": Question, "answer": Answer},
        "messages": {"message": Message, "token count": TokenCount},
    }
    read = request_roots()
    roots = {}
    for package, structs in protocol_structs().items():
        whole = written.get(package, {})
        roots[package] = tagged(structs, {**read.get(package, {}), **whole}) | whole
    return roots


def _requests() -> Iterator[str]:
    for package, roots in request_roots().items():
        yield from (f"{package} {name}" for name in struct_names(roots))


def _events() -> Iterator[str]:
    for package, roots in answer_roots().items():
        # The name of a private base class is not on the wire; its fields are those of its subclasses.
        public = {name: struct for name, struct in roots.items() if not name.startswith("_")}
        yield from (f"{package} {name}" for name in struct_names(public))


def _envelopes() -> Iterator[str]:
    """Yield the kinds of envelopes, with the fields of their payloads."""
    yield from struct_names({name: row.payload for name, row in kinds.KINDS.items()})
    families = "|".join(sorted({kind.partition("/")[0] for kind in kinds.KINDS}))
    yield from (text for text in constants() if re.fullmatch(rf"({families})(/[a-z-]+)+", text))


# --- storage ---------------------------------------------------------------------------------------------------------


def _tables() -> Iterator[str]:
    """Yield the tables of a new database, with their columns, and its indexes."""
    with sqlite3.connect(":memory:") as database:
        for statement in migration_statements("sqlite", None):
            database.execute(statement)
        shadows = {name for _, name, type_, *_ in database.execute("PRAGMA table_list") if type_ == "shadow"}
        for name, type_, table in database.execute("SELECT name, type, tbl_name FROM sqlite_master").fetchall():
            if name in shadows:
                continue
            if type_ == "table":
                yield name
                for _, column, affinity, required, _, key in database.execute(f"PRAGMA table_info({name})").fetchall():
                    yield f"{name}.{column} {affinity}{' required' * bool(required)}{' key' * bool(key)}".rstrip()
            elif not name.startswith("sqlite_autoindex"):
                yield f"{table} {type_} {name}"
    database.close()


def _migrations() -> Iterator[str]:
    for statement in alembic_statements("sqlite", None):
        yield from re.findall(r"(?:version_num\s*=|alembic_version .*VALUES)\s*\(?'(\w+)'", statement)


def _redis() -> Iterator[str]:
    """Yield the Redis keys as `PREFIX:NAME`, and the fields of their values."""
    yield DEFAULT_PREFIX
    keys = "|".join(re.findall(r"^    ([a-z]+)(?::NAME)? ", scripts.__doc__ or "", re.MULTILINE))
    yield from (text for text in constants() if re.fullmatch(keys, text))
    for script in scripts.ALL:
        for command, arguments in re.findall(r"redis\.call\('(HM?GET|HSET|HDEL|XADD)'(.*)\)", script.text):
            yield from (f"field {command[0]} {field}" for field in re.findall(r"'([a-z]+)'", arguments))


def _scopes() -> Iterator[str]:
    """Yield names with a prefix and a name of a user or tenant: logs, buckets, rolls, record scopes, host tools."""
    yield from (text for text in constants() if re.fullmatch(r"[a-z]+:\{\}(:\{\})?", text))


# --- the library -----------------------------------------------------------------------------------------------------


def _python() -> Iterator[str]:
    yield from dir(pellucid)


def _settings() -> Iterator[str]:
    yield from setting_names(ModelSettings)


def _providers() -> Iterator[str]:
    yield from builtin_profiles()


def _entry_points() -> Iterator[str]:
    yield ENTRY_POINT_GROUP


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "config": _config,  # keys of the configuration file, with choices and defaults
    "environment": _environment,  # variables that are read
    "command": _commands,  # commands with their arguments, options, choices and defaults
    "metric": _metrics,  # metrics with their types and labels
    "attribute": _attributes,  # of spans
    "code": _codes,  # of errors
    "kind": _kinds,  # of errors, with their HTTP status
    "close": _close_codes,  # of WebSockets
    "header": _headers,
    "query": _queries,
    "cookie": _cookies,
    "read": _requests,  # the fields of each request of a client protocol
    "written": _events,  # the fields of each event and object that a client protocol writes
    "envelope": _envelopes,  # kinds in spaces, with the fields of their payloads
    "table": _tables,  # of the store
    "migration": _migrations,
    "redis": _redis,
    "scope": _scopes,
    "python": _python,  # what can be imported from `pellucid`
    "setting": _settings,  # of models
    "provider": _providers,
    "entry-point": _entry_points,
}
"""Each kind, and what lists it. Besides, `openapi_names` has paths, operations, parameters, requests, answers, schemas
and ways to prove who one is; `observed_names` has spans and log lines."""


if __name__ == "__main__":
    sys.stdout.write("\n".join([*current_names(), ""]))
