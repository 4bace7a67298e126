"""String constants in the package's source, and those of them that are used as the code of an error.

This module names no module or class of the package. A value is traced from its use back to its constant: through
parameters of functions, fields of classes, variables, constants and tables.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pellucid

SOURCE = Path(pellucid.__file__).parent
ROUTINES = (ast.FunctionDef, ast.AsyncFunctionDef)

Routine: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Assigned: TypeAlias = dict[str, list[ast.expr]]


class Parameter(NamedTuple):
    """A parameter of a callable.

    Attributes:
        place: its index among the positional arguments; None: by keyword alone.
        module: the name of the file in which the callable is.
    """

    callee: str
    name: str
    place: int | None
    module: str


class Module:
    """One parsed file, with its assignments, functions and calls."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.nodes: list[ast.AST] = []
        self.functions: list[tuple[str, Routine, bool]] = []
        """The name that each is called by (a class's, for its `__init__`), itself, and whether it is bound."""
        self.around: dict[int, Scope] = {}
        """The innermost function around a call, by the call's identity."""
        self._visit(ast.parse(path.read_bytes()), None, None)
        self.assigned = _assigned(self.nodes)
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.defined = {name for name, _, _ in self.functions}
        imports = [node for node in self.nodes if isinstance(node, ast.ImportFrom)]
        self.imported = {one.asname or one.name for node in imports for one in node.names}

    def _visit(self, node: ast.AST, scope: Scope | None, of: str | None) -> None:
        """Collect the nodes below a node; `of`: the class that directly contains it."""
        for one in ast.iter_child_nodes(node):
            if isinstance(one, ast.Name | ast.expr_context):
                continue
            self.nodes.append(one)
            if scope is not None:
                scope.nodes.append(one)
                if isinstance(one, ast.Call):
                    self.around[id(one)] = scope
            if isinstance(one, ROUTINES):
                static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in one.decorator_list)
                name = of if of and one.name == "__init__" else one.name
                bound = of is not None and not static
                self.functions.append((name, one, bound))
                self._visit(one, Scope(self._taken(name, one, bound), []), None)
            else:
                self._visit(one, scope, one.name if isinstance(one, ast.ClassDef) else None)

    @cached_property
    def parameters(self) -> list[Parameter]:
        """Return the parameters of functions, and the annotated fields of classes."""
        parameters = [one for name, function, bound in self.functions for one in self._taken(name, function, bound)]
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                names = [one.id for one in fields if isinstance(one, ast.Name)]
                parameters += [Parameter(node.name, name, place, self.name) for place, name in enumerate(names)]
        return parameters

    @cached_property
    def defaults(self) -> list[ast.expr]:
        """Return the defaults of parameters named `code`."""
        defaults = []
        for _, function, _ in self.functions:
            arguments, default_values = [*function.args.posonlyargs, *function.args.args], function.args.defaults
            pairs = [*zip(arguments[len(arguments) - len(default_values) :], default_values, strict=True)]
            keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
            pairs += [(one, value) for one, value in keywords if value is not None]
            defaults += [value for one, value in pairs if one.arg == "code"]
        return defaults

    def _taken(self, name: str, function: Routine, bound: bool) -> list[Parameter]:
        arguments = [*function.args.posonlyargs, *function.args.args][int(bound) :]
        return [
            *(Parameter(name, one.arg, place, self.name) for place, one in enumerate(arguments)),
            *(Parameter(name, one.arg, None, self.name) for one in function.args.kwonlyargs),
        ]


class Scope(NamedTuple):
    """A function: its parameters and the nodes of its body."""

    parameters: list[Parameter]
    nodes: list[ast.AST]


def _assigned(nodes: Sequence[ast.AST]) -> Assigned:
    """Return the values assigned to each name and attribute."""
    assigned: Assigned = defaultdict(list)

    def assign(target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                assign(one, its)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.IfExp):
            assign(target, value.body)
            assign(target, value.orelse)
        elif isinstance(target, ast.Name):
            assigned[target.id].append(value)
        elif isinstance(target, ast.Attribute):
            assigned[target.attr].append(value)

    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                assign(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            assign(node.target, node.value)
    return assigned


@cache
def modules() -> tuple[Module, ...]:
    return tuple(Module(path) for path in sorted(SOURCE.rglob("*.py")))


@cache
def _named_constants() -> Assigned:
    """Return the values assigned to names in capitals, in any module."""
    constants_by_name: Assigned = defaultdict(list)
    for module in modules():
        for name, values in module.assigned.items():
            if name.isupper():
                constants_by_name[name] += values
    return constants_by_name


@cache
def _subclasses() -> dict[str, set[tuple[str, str]]]:
    """Return the subclasses that inherit a constructor, by the base class's name, each with its module's name."""
    subclasses: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for module in modules():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and not any(
                isinstance(one, ROUTINES) and one.name == "__init__" for one in node.body
            ):
                for base in node.bases:
                    subclasses[getattr(base, "id", getattr(base, "attr", ""))].add((node.name, module.name))
    return subclasses


def _inherited(parameters: Iterable[Parameter]) -> Iterator[Parameter]:
    """Yield the parameters, and those that subclasses inherit."""
    for one in parameters:
        yield one
        for name, module in _subclasses().get(one.callee, ()):
            yield from _inherited([one._replace(callee=name, module=module)])


def _all_parameters() -> Iterator[Parameter]:
    for module in modules():
        yield from _inherited(module.parameters)


def constants() -> Iterator[str]:
    """Yield every string constant of the source; an f-string has `{}` in the place of each value."""
    for module in modules():
        for node in module.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            elif isinstance(node, ast.JoinedStr):
                yield _pattern(node)


def _pattern(text: ast.JoinedStr) -> str:
    """Return an f-string with `{}` in the place of each value."""
    return "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in text.values)


@cache
def code_values() -> frozenset[str | int]:
    """Return the constants used as a `code`: strings as codes of errors, numbers as close codes of WebSockets.

    They are: arguments for a parameter or a field of that name, or for a parameter that is passed on to one;
    assignments and entries of that name; and the values of types and constants whose name ends in "code".
    """
    sinks = {one for one in [*_all_parameters()] if one.name == "code"}
    codes: set[str | int] = set()
    while True:
        by_callee: dict[str, set[Parameter]] = defaultdict(set)
        for sink in sinks:
            by_callee[sink.callee].add(sink)
        more: set[Parameter] = set()
        for module in modules():
            for call in module.calls:
                scope = module.around.get(id(call), Scope([], []))
                code_arguments = list(_code_arguments(module, call, by_callee))
                near = _assigned(scope.nodes) if code_arguments else {}
                for value in code_arguments:
                    names = {one.id for one in _branches(value) if isinstance(one, ast.Name)}
                    more |= {one for one in _inherited(scope.parameters) if one.name in names}
                    codes |= _values(value, near, module.assigned)
        if more <= sinks:
            break
        sinks |= more
    for module in modules():
        for value in [*module.assigned.get("code", ()), *module.defaults, *_entries(module)]:
            codes |= _values(value, {}, module.assigned)
        for name, values in module.assigned.items():
            if re.fullmatch(r"_?([A-Z]\w+)?Code|_?([A-Z]+_)*CODE", name):
                codes |= {its for value in values for one in ast.walk(value) if (its := _constant(one)) is not None}
    return frozenset(codes)


def named_numbers() -> Iterator[int]:
    """Yield the numbers assigned to names in capitals."""
    for values in _named_constants().values():
        for value in values:
            if isinstance(value, ast.Constant) and type(value.value) is int:
                yield value.value


def _code_arguments(module: Module, call: ast.Call, sinks: Mapping[str, set[Parameter]]) -> Iterator[ast.expr]:
    """Yield the arguments of a call that are a code. A parameter of another name needs an unambiguous callee."""
    callee = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    taken = sinks.get(callee, set())
    if callee in module.defined:
        taken = {one for one in taken if one.module == module.name}
    elif callee not in module.imported:
        taken = {one for one in taken if one.name == "code"}
    names = {"code", *(one.name for one in taken)}
    yield from (keyword.value for keyword in call.keywords if keyword.arg in names)
    for place in {one.place for one in taken if one.place is not None}:
        if place < len(call.args) and not any(isinstance(one, ast.Starred) for one in call.args[: place + 1]):
            yield call.args[place]


def _branches(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the alternatives of a conditional expression."""
    if isinstance(value, ast.IfExp):
        yield from (*_branches(value.body), *_branches(value.orelse))
    elif isinstance(value, ast.BoolOp):
        for one in value.values:
            yield from _branches(one)
    else:
        yield value


def _values(value: ast.expr, near: Assigned, far: Assigned, depth: int = 4) -> set[str | int]:
    """Return the constants that an expression can evaluate to, given the assignments of its function and module."""
    constants: set[str | int] = set()
    for one in _branches(value) if depth else ():
        further: list[ast.expr] = []
        if isinstance(one, ast.Constant):
            if (its := _constant(one)) is not None:
                constants.add(its)
        elif isinstance(one, ast.JoinedStr):
            constants.add(_pattern(one))
        elif isinstance(one, ast.Subscript):
            constants |= _looked_up(one.value, far, depth - 1)
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "get":
            constants |= _looked_up(one.func.value, far, depth - 1)
            further = one.args[1:]
        elif isinstance(one, ast.Name):
            further = near.get(one.id) or (one.id.isupper() and far.get(one.id)) or _named_constants()[one.id]
        elif isinstance(one, ast.Attribute):
            further = _named_constants()[one.attr]
        for step in further:
            constants |= _values(step, near, far, depth - 1)
    return constants


def _looked_up(table: ast.expr, far: Assigned, depth: int) -> set[str | int]:
    """Return the constants in a table of the module: its values, and the cells of values that are rows."""
    constants: set[str | int] = set()
    for one in far.get(table.id, []) if isinstance(table, ast.Name) else [table]:
        for value in one.values if isinstance(one, ast.Dict) else []:
            for cell in value.elts if isinstance(value, ast.Tuple) else [value]:
                constants |= _values(cell, {}, far, depth)
    return constants


def _constant(node: ast.AST) -> str | int | None:
    """Return the string or the integer of a constant node, or None."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _entries(module: Module) -> Iterator[ast.expr]:
    """Yield the values of the key `"code"` in dict literals."""
    for node in module.nodes:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "code" and not isinstance(value, ast.Dict):
                    yield value
