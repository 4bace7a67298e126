"""Hooks of MkDocs: pages that are generated from the source, and links to files outside of docs/.

`make docs` builds the site with them (mkdocs.yml). The generated pages are under `reference/`: commands (from the
parser of the command line), configuration keys (from the types of the configuration), paths (from the OpenAPI
document), metrics (from their registry) and Python objects (from docstrings).

A link of a page to a file of the repository leads to it there, if pyproject.toml has the address of the repository;
otherwise it becomes its text.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import tomllib
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import click
import msgspec

ROOT = Path(__file__).parents[1]
PYTHON_MODULES = (
    "pellucid", "pellucid.parts", "pellucid.events", "pellucid.fold", "pellucid.errors", "pellucid.models",
    "pellucid.tools", "pellucid.egress", "pellucid.view", "pellucid.sealing", "pellucid.spaces",
)  # fmt: skip
"""The public modules whose objects are listed, from docs/python-api.md."""

_OUTSIDE = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(\.\./([^()\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for name, text in generated_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files that the site does not have. Generated pages have none."""
    return markdown if "/" in page.file.src_uri else replace_outside_links(markdown, repository())


def repository() -> str:
    """Return the public address of the repository, or an empty string."""
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    return str(hatch["metadata"]["hooks"]["custom"]["repository"]).rstrip("/")


def replace_outside_links(markdown: str, address: str) -> str:
    """Return a page whose links to `../FILE` lead to the repository, or are text if it has no address."""
    return _OUTSIDE.sub(lambda link: f"[{link[1]}]({address}/blob/main/{link[2]})" if address else link[1], markdown)


def generated_pages() -> dict[str, str]:
    """Return the text of each generated page, by its path in the site."""
    return {
        "reference/commands.md": "\n".join(commands_page()),
        "reference/configuration.md": "\n".join(configuration_page()),
        "reference/http.md": "\n".join(http_page()),
        "reference/metrics.md": "\n".join(metrics_page()),
        "reference/python.md": "\n".join(python_page()),
    }


def cell(text: str) -> str:
    """Return text for a cell of a table."""
    return re.sub(r"\s+", " ", text.replace("|", "\\|").replace("<", "&lt;")).strip()


# --- commands ----------------------------------------------------------------------------------------------------


def commands_page() -> Iterator[str]:
    """Yield the lines of the page of all commands."""
    from pellucid.cli.main import COMMANDS, main

    yield "# Commands\n\nGenerated from the parser of `pellucid`.\n"
    context = click.Context(main, info_name="pellucid")
    for name in sorted(COMMANDS):
        command = main.get_command(context, name)
        if command is not None and COMMANDS[name].help is not None:
            yield from _command(command, f"pellucid {name}", context, level=2)


def _command(command: click.Command, path: str, parent: click.Context, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{'#' * level} `{path}`\n"
    yield f"{cell(inspect.cleandoc(command.help or ''))}\n"
    yield f"```text\n{path} {usage}\n```\n"
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        yield "| option | effect |\n|---|---|"
        for option in options:
            names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
            record = option.get_help_record(context)
            yield f"| {names} | {cell(record[1] if record else '')} |"
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _command(inner, f"{path} {name}", context, level + 1)


# --- configuration -----------------------------------------------------------------------------------------------


def configuration_page() -> Iterator[str]:
    """Yield the lines of the page of all configuration keys."""
    from pellucid.server.config import Config

    yield "# Configuration keys\n\nGenerated from the types of the configuration. [Configuration](../configuration.md)"
    yield "explains the file, with an example of every key. `NAME` is a name that you choose.\n"
    yield from _table_of_keys(Config, "")


def _table_of_keys(struct: type[msgspec.Struct], path: str) -> Iterator[str]:
    documentation = attribute_docs(struct)
    inner: list[tuple[type[msgspec.Struct], str]] = []
    rows: list[str] = []
    for field in msgspec.structs.fields(struct):
        name = f"{path}.{field.encode_name}" if path else field.encode_name
        kinds = [kind for kind in get_args(field.type) or (field.type,) if isinstance(kind, type)]
        structs = [kind for kind in kinds if issubclass(kind, msgspec.Struct)]
        if structs:
            is_mapping = get_origin(field.type) is dict
            inner += [(kind, f"{name}.NAME" if is_mapping else name) for kind in structs]
        else:
            columns = (f"`{field.encode_name}`", cell(type_name(field.type)), default_of(field))
            rows.append(f"| {' | '.join(columns)} | {cell(documentation[field.name])} |")
    if rows and path:
        yield f"## `[{path}]`\n"
        summary = inspect.cleandoc(struct.__doc__ or "").partition("\n\n")[0]
        summary = cell(summary.partition("`: ")[2] or summary)
        yield f"{summary[:1].upper()}{summary[1:]}\n"
    if rows:
        yield "| key | type | default | effect |\n|---|---|---|---|"
        yield from rows
        yield ""
    for kind, where in inner:
        yield from _table_of_keys(kind, where)


def attribute_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstrings of the attributes of a class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base.__module__.startswith("pellucid."):
            docs |= _own_attribute_docs(base)
    return docs


def _own_attribute_docs(struct: type) -> dict[str, str]:
    [node] = ast.parse(inspect.cleandoc("\n" + inspect.getsource(struct))).body
    assert isinstance(node, ast.ClassDef)
    return {
        before.target.id: str(after.value.value)
        for before, after in zip(node.body, node.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


def type_name(kind: Any) -> str:
    """Return the name of a type, for readers of TOML."""
    origin, arguments = get_origin(kind), get_args(kind)
    if hasattr(kind, "__metadata__"):
        return type_name(arguments[0] if arguments else kind.__origin__)
    if origin is Literal:
        return ", ".join(f'"{value}"' for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(one) for one in arguments if one is not type(None))
    if origin is list:
        return f"list of {type_name(arguments[0])}"
    if origin is dict:
        return f"table of {type_name(arguments[1])}"
    names = {str: "text", int: "number", float: "number", bool: "true or false"}
    return names.get(kind, "table" if isinstance(kind, type) and not issubclass(kind, str | float) else "text")


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """Return the default of a key, as TOML, or why it has none."""
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{json.dumps(field.default_factory())}`"
    if field.default is msgspec.NODEFAULT:
        return "required"
    return "" if field.default is None else f"`{json.dumps(field.default)}`"


# --- metrics -----------------------------------------------------------------------------------------------------


def metrics_page() -> Iterator[str]:
    """Yield the lines of the page of all metrics."""
    from pellucid.telemetry.metrics import LabeledMetric, Metrics

    yield "# Metrics\n\nGenerated from the registry of the gateway's metrics. [Telemetry](../telemetry.md) explains how"
    yield "to read them and what they count. A histogram has the series `_bucket`, `_count` and `_sum`.\n"
    yield "| metric | type | labels | meaning |\n|---|---|---|---|"
    for one in vars(Metrics()).values():
        if not isinstance(one, LabeledMetric):
            continue
        collector = one.metric
        [metric] = collector.describe()
        suffix = "_total" if metric.type == "counter" else ""
        labels = ", ".join(collector._labelnames)  # prometheus_client has no public name for them
        yield f"| `{metric.name}{suffix}` | {metric.type} | {labels} | {cell(metric.documentation)} |"
    yield ""


# --- paths -------------------------------------------------------------------------------------------------------


def http_page() -> Iterator[str]:
    """Yield the lines of the page of all paths of the gateway."""
    from pellucid.server.openapi import build_document

    document = build_document()
    yield "# HTTP paths\n\nGenerated from the OpenAPI document, which a gateway serves at `/openapi.json` and"
    yield "`pellucid openapi` prints, with all schemas.\n"
    for path, operations in document["paths"].items():
        yield f"## `{path}`\n"
        for method, operation in operations.items():
            if not isinstance(operation, dict) or method.startswith("x-"):
                continue
            yield f"**{method.upper()}** {cell(operation.get('summary') or operation.get('description') or '')}\n"
            if parameters := [row for row in operation.get("parameters", []) if "name" in row]:
                yield "| parameter | in | meaning |\n|---|---|---|"
                for row in parameters:
                    yield f"| `{row['name']}` | {row['in']} | {cell(row.get('description', ''))} |"
                yield ""
            statuses = ", ".join(f"`{status}`" for status in operation.get("responses", {}))
            yield f"Answers: {statuses}. Body: {_body(operation)}.\n"


def _body(operation: dict[str, Any]) -> str:
    contents: Iterable[dict[str, Any]] = operation.get("requestBody", {}).get("content", {}).values()
    names = [str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2] for content in contents]
    return ", ".join(f"`{name}`" for name in names if name) or ("JSON" if names else "none")


# --- Python ------------------------------------------------------------------------------------------------------


def python_page() -> Iterator[str]:
    """Yield the lines of the page of Python objects, which mkdocstrings fills."""
    yield "# Python objects\n\nGenerated from docstrings. [Public Python names](../python-api.md) says which names are"
    yield "public, and what may change.\n"
    listed: set[str] = set()
    for name in PYTHON_MODULES:
        module = importlib.import_module(name)
        yield f"## `{name}`\n"
        for public in getattr(module, "__all__", None) or sorted(vars(module)):
            target = getattr(module, public)
            if public.startswith("_") or not (inspect.isclass(target) or inspect.isfunction(target)):
                continue
            place = f"{target.__module__}.{target.__qualname__}"
            if place.startswith("pellucid.") and place not in listed and _is_own(module, target):
                listed.add(place)
                yield f"::: {place}\n"


def _is_own(module: types.ModuleType, target: Any) -> bool:
    return hasattr(module, "__all__") or target.__module__ == module.__name__
