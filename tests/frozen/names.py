"""The names that users depend on, as this version has them, a line each: `python -m tests.frozen.names`.

| kind | where it is taken from |
|---|---|
| `path` | methods and paths of the OpenAPI document |
| `config` | keys of the configuration file |
| `environment` | variables that the package or a provider's profile reads |
| `command` | commands and options of `pellucid` |
| `code` | codes of errors |
| `metric` | metrics with their labels |
| `attribute` | attributes of spans |
| `event`, `field` | what the structs of client protocols write: an event's `type` with its fields, and other fields |
| `envelope` | kinds of envelopes in spaces |
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

import click
import msgspec

import pellucid
from pellucid.cli import main
from pellucid.providers.profiles import builtin_profiles
from pellucid.server.config import Config
from pellucid.server.openapi import document
from pellucid.telemetry.metrics import Metrics

SOURCE = Path(pellucid.__file__).parent


@cache
def current_names() -> tuple[str, ...]:
    """Every name, as `KIND NAME`, sorted."""
    kinds = (_paths, _config, _environment, _commands, _codes, _metrics, _attributes, _protocols, _envelopes)
    return tuple(sorted({name for kind in kinds for name in kind()}))


def _paths() -> Iterator[str]:
    for path, methods in document()["paths"].items():
        yield from (f"path {method.upper()} {path}" for method in methods if method != "parameters")


def _config() -> Iterator[str]:
    yield from (f"config {key}" for key in _keys(Config, ""))


def _keys(to: Any, prefix: str) -> Iterator[str]:
    """The keys below a type, with `*` for names that the operator chooses."""
    if to is Any:
        return
    if is_typeddict(to):
        for name, value in get_type_hints(to).items():
            yield f"{prefix}{name}"
            yield from _keys(value, f"{prefix}{name}.")
    elif isinstance(to, type) and issubclass(to, msgspec.Struct):
        for field in msgspec.structs.fields(to):
            yield f"{prefix}{field.encode_name}"
            yield from _keys(field.type, f"{prefix}{field.encode_name}.")
    else:
        arguments = get_args(to)
        inner = f"{prefix}*." if getattr(to, "__origin__", None) is dict else prefix
        for argument in arguments[1:] if inner != prefix else arguments:
            yield from _keys(argument, inner)


def _environment() -> Iterator[str]:
    for text in _constants():
        if re.fullmatch(r"PELLUCID_[A-Z0-9_]+", text):
            yield f"environment {text}"
    for row in builtin_profiles().values():
        yield from (f"environment {name}" for name in (*row.api_key_env, *row.base_url_env))


def _commands() -> Iterator[str]:
    def below(command: click.Command, name: str) -> Iterator[str]:
        yield f"command {name}"
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield from (f"command {name} {option}" for option in (*parameter.opts, *parameter.secondary_opts))
        if isinstance(command, click.Group):
            context = click.Context(command)
            for one in command.list_commands(context):
                inner = command.get_command(context, one)
                assert inner is not None
                yield from below(inner, f"{name} {one}")

    yield from below(main, "pellucid")


def _codes() -> Iterator[str]:
    """Constants that are given as `code=`, or as the third argument of an `ErrorInfo`."""
    for node in _nodes():
        if isinstance(node, ast.Call):
            named = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if isinstance(node.func, ast.Name) and node.func.id == "ErrorInfo":
                named += node.args[2:3]
            for value in named:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield f"code {value.value}"

    yield from (f"code {text}" for text in _constants("sealing") if re.fullmatch(r"seal_[a-z_]+", text))


def _metrics() -> Iterator[str]:
    metrics = Metrics()
    for family in metrics.registry.collect():
        yield f"metric {family.name}"
    for name, family in vars(metrics).items():
        if name != "registry":
            metric = family._metric
            yield from (f"metric {metric._name}{{{label}}}" for label in metric._labelnames)


def _attributes() -> Iterator[str]:
    for text in _constants("telemetry"):
        if re.fullmatch(r"(gen_ai|pellucid|http|server|error)\.[a-z_.]+", text):
            yield f"attribute {text}"


def _protocols() -> Iterator[str]:
    import pellucid.protocols as protocols

    for module in pkgutil.walk_packages(protocols.__path__, "pellucid.protocols."):
        importlib.import_module(module.name)
    for struct in _subclasses(msgspec.Struct):
        package, _, rest = struct.__module__.removeprefix("pellucid.protocols.").partition(".")
        if not struct.__module__.startswith("pellucid.protocols.") or not rest:
            continue
        config = struct.__struct_config__
        kind = f"event {package} {config.tag}" if config.tag is not None else f"field {package}"
        if config.tag is not None:
            yield kind
        yield from (f"{kind} .{field.encode_name}" for field in msgspec.structs.fields(struct))


def _subclasses(cls: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    one: type[msgspec.Struct]
    for one in cls.__subclasses__():
        yield one
        yield from _subclasses(one)


def _envelopes() -> Iterator[str]:
    for text in _constants("envelopes"):
        if re.fullmatch(r"(system|reasoning|mcp|chat|capability|space|stream|participant|presence)(/[a-z-]+)+", text):
            yield f"envelope {text}"


def _constants(package: str = "") -> Iterator[str]:
    for node in _nodes(package):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _nodes(package: str = "") -> Iterator[ast.AST]:
    for path in sorted((SOURCE / package).rglob("*.py")):
        yield from _nodes_of(path)


@cache
def _nodes_of(path: Path) -> list[ast.AST]:
    """The nodes that can hold a name."""
    return [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Constant | ast.Call)]


if __name__ == "__main__":
    sys.stdout.write("\n".join([*current_names(), ""]))
