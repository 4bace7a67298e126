"""The grammars of custom tools: a text is checked against a grammar in Lark's language, or a regular expression.

Grammars come from clients, so neither one nor a text may take long: whatever takes more than `MAX_WORK`, or uses what
is not known here, is not checked. A regular expression is matched by RE2, in linear time, and a grammar by Earley's
algorithm. At each place a terminal matches the longest text that it can.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Syntax = Literal["lark", "regex"]

MAX_WORK = 40_000_000
"""The work of reading one grammar, or of checking one text, in nanoseconds as they are estimated."""

MAX_GRAMMAR_CHARS = 16_000
MAX_TEXT_BYTES = 32_000
"""The maximum length of a grammar, and of a text that is checked against it."""

_MAX_DEPTH = 50
_MAX_REPEATS = 100
_MAX_PATTERN_CHARS = 4_000
_MAX_PATTERN_SIZE = 1_000
"""The maximum number of RE2's instructions. Each takes up to a nanosecond for each byte."""


class GrammarError(Exception):
    """The grammar is not valid."""


class NotDecided(Exception):
    """The grammar or the text is too large or too complex, or the grammar uses something that is not known here."""


class Grammar:
    """A grammar, to check texts against."""

    def __init__(self, syntax: Syntax, definition: str, work: Work) -> None:
        """Read a grammar.

        Args:
            syntax: The language of the definition.
            definition: The definition.
            work: Counts the work.

        Raises:
            GrammarError: It is not valid.
            NotDecided: It cannot be checked here.
        """
        if len(definition) > MAX_GRAMMAR_CHARS:
            raise NotDecided
        if syntax == "regex":
            self._rules = _Rules([("start", (-1,))], [_compiled(definition, work)], ())
        else:
            self._rules = _LarkReader(definition, work).rules()

    def permits(self, text: str) -> bool:
        """Return whether the grammar permits a text.

        Raises:
            NotDecided: It would take too long.
        """
        data = text.encode(errors="replace")
        if len(data) > MAX_TEXT_BYTES:
            raise NotDecided
        return _permits(self._rules, data, Work())


class ReadGrammar(NamedTuple):
    """What is known of a grammar: neither a grammar nor a problem if it cannot be checked here."""

    grammar: Grammar | None
    problem: str
    work: int
    """What reading it took, in nanoseconds."""


@functools.lru_cache(maxsize=64)
def read_grammar(syntax: Syntax, definition: str) -> ReadGrammar:
    """Read a grammar, or find what is wrong with it."""
    work = Work()
    try:
        return ReadGrammar(Grammar(syntax, definition, work), "", work.done)
    except GrammarError as error:
        return ReadGrammar(None, str(error), work.done)
    except NotDecided:
        return ReadGrammar(None, "", work.done)


class Work:
    """What one task takes."""

    def __init__(self) -> None:
        self.done = 0

    def add(self, nanoseconds: int = 3_000) -> None:
        """Add a step. Raises `NotDecided` if it is too much for one task."""
        self.done += nanoseconds
        if self.done > MAX_WORK:
            raise NotDecided


# --- matching ----------------------------------------------------------------------------------------------------

_Terminal = Any
"""A compiled expression of RE2, or bytes."""


class _Rules(NamedTuple):
    productions: list[tuple[str, tuple[str | int, ...]]]
    """Each has a name, and names or terminals; a terminal is the complement of its place in the list."""
    terminals: list[_Terminal]
    ignored: tuple[_Terminal, ...]
    """What may stand between terminals."""


_Item = tuple[int, int, int]
"""A production, the place in it that is reached, and where it begins."""


def _permits(rules: _Rules, data: bytes, work: Work) -> bool:
    productions, terminals, ignored = rules
    by_name: dict[str, list[int]] = {}
    for index, (name, _) in enumerate(productions):
        by_name.setdefault(name, []).append(index)
    optional = _optional_names(productions)
    items_at: dict[int, dict[_Item, None]] = {}
    waiting_at: dict[int, dict[str, list[_Item]]] = {}
    beginnings = _after_ignored(ignored, data, 0, work)
    for begin in beginnings:
        items_at[begin] = {(index, 0, begin): None for index in by_name["start"]}
    items: dict[_Item, None] = {}
    while items_at:
        position = min(items_at)
        items = items_at.pop(position)
        queue = list(items)
        waiting = waiting_at[position] = {}
        ends: dict[int, tuple[int, ...]] = {}
        while queue:
            work.add()
            production, place, begin = queue.pop()
            name, symbols = productions[production]
            following: list[_Item] = []
            if place == len(symbols):
                following = [(p, f + 1, b) for p, f, b in waiting_at[begin].get(name, ())]
            elif isinstance(symbol := symbols[place], str):
                if symbol not in waiting:
                    waiting[symbol] = []
                    following = [(index, 0, position) for index in by_name[symbol]]
                waiting[symbol].append((production, place, begin))
                if symbol in optional:
                    following.append((production, place + 1, begin))
            else:
                if symbol not in ends:
                    match_end = _match(terminals[~symbol], data, position, work)
                    ends[symbol] = () if match_end is None else _after_ignored(ignored, data, match_end, work)
                for end in ends[symbol]:
                    if end == position:
                        following.append((production, place + 1, begin))
                    else:
                        items_at.setdefault(end, {})[production, place + 1, begin] = None
            work.add(1_000 * len(following))
            for item in following:
                if item not in items:
                    items[item] = None
                    queue.append(item)
    return position == len(data) and any(
        productions[index][0] == "start" and place == len(productions[index][1]) and begin in beginnings
        for index, place, begin in items
    )


_WINDOW = 256
"""The number of bytes in which a terminal is searched first, so that all others are not read each time."""


def _match(terminal: _Terminal, data: bytes, position: int, work: Work) -> int | None:
    """Return the end of the longest match at a position."""
    if isinstance(terminal, bytes):
        return position + len(terminal) if data.startswith(terminal, position) else None
    for limit in (min(position + _WINDOW, len(data)), len(data)):
        work.add(3_000 + (limit - position) * terminal.programsize)
        match = terminal.match(data, position, limit)
        if limit == len(data) or (match is not None and match.end() < limit):
            break
    return None if match is None else int(match.end())


def _after_ignored(ignored: tuple[_Terminal, ...], data: bytes, position: int, work: Work) -> tuple[int, ...]:
    """Return this position, and the one after all that may be ignored there."""
    end, last = position, -1
    while ignored and end != last:
        last = end
        end = max((match_end for one in ignored if (match_end := _match(one, data, end, work))), default=end)
    return (position,) if end == position else (position, end)


def _optional_names(productions: list[tuple[str, tuple[str | int, ...]]]) -> set[str]:
    """Return the names of what can be empty."""
    users: dict[str, list[int]] = {}
    missing = []
    for index, (_, symbols) in enumerate(productions):
        missing.append(len(symbols))
        for symbol in symbols:
            if isinstance(symbol, str):
                users.setdefault(symbol, []).append(index)
    optional: set[str] = set()
    queue = [index for index, count in enumerate(missing) if count == 0]
    while queue:
        name = productions[queue.pop()][0]
        if name not in optional:
            optional.add(name)
            for index in users.get(name, ()):
                missing[index] -= 1
                if missing[index] == 0:
                    queue.append(index)
    return optional


def _re2() -> Any:
    import re2  # imported on first use: few requests have a grammar

    return re2


_CERTAIN_ERRORS = ("missing )", "missing ]", "unexpected )", "no argument", "trailing")


def _compiled(pattern: str, work: Work) -> _Terminal:
    work.add(100_000 + 1_000 * len(pattern) + 2_000_000 * ("{" in pattern))
    options = _re2().Options()
    options.max_mem = 1 << 19
    options.longest_match = True
    options.never_capture = True
    options.log_errors = False
    try:
        compiled = _re2().compile(pattern, options)
    except UnicodeEncodeError:
        raise GrammarError("it holds half of a surrogate pair") from None
    except _re2().error as error:
        message = error.args[0] if error.args else b""
        problem = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        if problem.startswith(_CERTAIN_ERRORS):
            raise GrammarError(problem) from None
        raise NotDecided from None  # RE2 does not know all that other engines do
    if compiled.programsize > _MAX_PATTERN_SIZE:
        raise NotDecided
    return compiled


# --- Lark's language ---------------------------------------------------------------------------------------------

_COMMON_DIGITS = r"[0-9]+"
_COMMON_FLOAT = r"(?:[0-9]+(?:\.[0-9]*)?[eE][+-]?[0-9]+|[0-9]+\.[0-9]*|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
_COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": _COMMON_DIGITS,
    "SIGNED_INT": f"[+-]?{_COMMON_DIGITS}",
    "DECIMAL": r"(?:[0-9]+\.[0-9]*|\.[0-9]+)",
    "FLOAT": _COMMON_FLOAT,
    "SIGNED_FLOAT": f"[+-]?{_COMMON_FLOAT}",
    "NUMBER": f"(?:{_COMMON_FLOAT}|{_COMMON_DIGITS})",
    "SIGNED_NUMBER": f"[+-]?(?:{_COMMON_FLOAT}|{_COMMON_DIGITS})",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[a-zA-Z]",
    "WORD": "[a-zA-Z]+",
    "CNAME": "[a-zA-Z_][a-zA-Z0-9_]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
}
"""The terminals of Lark's library `common`."""

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\f\r]+|//[^\n]*|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*"i?)
    |(?P<regex>/(?:[^/\\\n]|\\[^\n])+/[imslux]*)
    |(?P<name>[!?]*_?[a-z][_a-z0-9]*)
    |(?P<terminal>[!?]*_?[A-Z][_A-Z0-9]*)
    |(?P<directive>%[a-z]+)
    |(?P<number>-?[0-9]+)
    |(?P<mark>\.\.|->|[|:()\[\]?*+~.,])
    |(?P<unknown>[&<>{}@$=^;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r'\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([ntrf\\"]))')
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


class _Node(NamedTuple):
    """An expression: the name of a rule or of a terminal, a pattern, or several expressions."""

    kind: Literal["name", "terminal", "pattern", "choice", "sequence", "repeat"]
    text: str = ""
    parts: tuple[_Node, ...] = ()
    least: int = 1
    most: int | None = 1
    """How often it is repeated; None for any number of times."""


class _LarkReader:
    """Reads a grammar in Lark's language."""

    def __init__(self, definition: str, work: Work) -> None:
        self._work = work
        self._tokens = list(self._split(definition))
        self._end = _Token("end", "", definition.count("\n") + 1)
        self._next = 0
        self._depth = 0
        self._definitions: dict[str, _Node] = {}
        self._ignored: list[_Node] = []
        self._productions: list[tuple[str, tuple[str | int, ...]]] = []
        self._terminals: list[_Terminal] = []
        self._places: dict[str, int] = {}
        self._literals: dict[str, bytes] = {}
        """The texts that patterns without any operator stand for."""
        self._patterns: dict[str, str] = {}

    def rules(self) -> _Rules:
        """Return the rules that can be reached from `start`, and check all of them."""
        while self._peek().kind != "end":
            self._statement()
        if "start" not in self._definitions:
            raise GrammarError("there is no rule 'start'")
        for name, node in list(self._definitions.items()):
            if name.lstrip("_")[:1].isupper():
                self._pattern_of(_Node("terminal", name), ())
            else:
                for symbols in self._alternatives(node):
                    self._productions.append((name, symbols))
        ignored = tuple(self._terminals[~self._terminal(self._pattern_of(node, ()))] for node in self._ignored)
        return _Rules(self._productions, self._terminals, ignored)

    # --- tokens and statements ---------------------------------------------------------------------------------

    def _split(self, definition: str) -> Iterator[_Token]:
        position, line, depth = 0, 1, 0
        while position < len(definition):
            self._work.add()
            match = _TOKEN.match(definition, position)
            if match is None:
                raise GrammarError(f"line {line}: {definition[position]!r} is not expected")
            position, kind, text = match.end(), match.lastgroup or "", match.group()
            if kind == "unknown":
                raise NotDecided  # of another dialect, or a template
            depth += (text in ("(", "[")) - (text in (")", "]"))
            if kind != "skip" and (kind != "newline" or depth <= 0):
                yield _Token(kind, text, line)
            line += text.count("\n")

    def _peek(self) -> _Token:
        return self._tokens[self._next] if self._next < len(self._tokens) else self._end

    def _take(self, *texts: str) -> bool:
        """Take the next token if it is one of these marks."""
        token = self._peek()
        is_taken = token.kind == "mark" and token.text in texts
        self._next += is_taken
        return is_taken

    def _expect(self, kind: str, text: str | None = None) -> str:
        token = self._peek()
        if token.kind != kind or (text is not None and token.text != text):
            actual = repr(token.text) if token.kind not in ("end", "newline") else "the end of the line"
            raise GrammarError(f"line {token.line}: {actual} where {text or kind} is expected")
        self._next += 1
        return token.text

    def _statement(self) -> None:
        self._work.add()
        token = self._peek()
        if token.kind == "newline":
            self._next += 1
        elif token.kind == "directive":
            self._next += 1
            self._directive(token.text)
        else:
            kind = "terminal" if token.kind == "terminal" else "name"
            name = self._expect(kind).lstrip("!?")
            if self._take("."):
                self._expect("number")
            elif self._take("["):
                raise NotDecided
            self._expect("mark", ":")
            if name in self._definitions:
                raise GrammarError(f"line {token.line}: {name} is defined twice")
            self._definitions[name] = self._choice()
            self._end_of_statement()

    def _end_of_statement(self) -> None:
        if self._peek().kind != "end":
            self._expect("newline")

    def _directive(self, text: str) -> None:
        if text == "%ignore":
            self._ignored.append(self._choice())
        elif text == "%import" and self._peek().text == "common":
            self._next += 1
            self._import()
        else:
            raise NotDecided
        self._end_of_statement()

    def _import(self) -> None:
        if not (several := self._take("(")):
            self._expect("mark", ".")
        while True:
            name = self._expect("terminal")
            if name not in _COMMON:
                raise NotDecided
            alias = name
            if self._take("->"):
                alias = self._expect("terminal")
            self._definitions[alias] = _Node("pattern", _COMMON[name])
            if not (several and self._take(",")):
                break
        if several:
            self._expect("mark", ")")

    # --- expressions -------------------------------------------------------------------------------------------

    def _choice(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise NotDecided
        parts = [self._sequence()]
        while self._continues():
            parts.append(self._sequence())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else _Node("choice", parts=tuple(parts))

    def _continues(self) -> bool:
        """Take the mark of an alternative, which may be in the next line."""
        start = self._next
        while self._peek().kind == "newline":
            self._next += 1
        if self._take("|"):
            return True
        self._next = start
        return False

    def _sequence(self) -> _Node:
        parts = []
        while self._peek().kind in ("name", "terminal", "string", "regex") or self._peek().text in ("(", "["):
            parts.append(self._repeated(self._atom()))
        if self._peek().text == "~":
            raise NotDecided  # a complement, in another dialect
        if self._take("->"):
            self._expect("name")
        return parts[0] if len(parts) == 1 else _Node("sequence", parts=tuple(parts))

    def _atom(self) -> _Node:
        self._work.add()
        token = self._peek()
        self._next += 1
        match token.kind:
            case "name" | "terminal":
                return _Node("name" if token.kind == "name" else "terminal", token.text.lstrip("!?"))
            case "string":
                if self._take(".."):
                    first, last = _plain(token.text), _plain(self._expect("string"))
                    if len(first) != 1 or len(last) != 1 or first > last:
                        raise GrammarError(f"line {token.line}: a range needs two characters, in their order")
                    return _Node("pattern", f"[{re.escape(first)}-{re.escape(last)}]")
                text = _plain(token.text)
                pattern = f"(?{'i' * token.text.endswith('i')}:{re.escape(text)})"
                if not token.text.endswith("i"):
                    self._literals[pattern] = text.encode()
                return _Node("pattern", pattern)
            case "regex":
                body, _, flags = token.text[1:].rpartition("/")
                if "x" in flags:
                    raise NotDecided
                used = "".join(flag for flag in "ims" if flag in flags)
                pattern = f"(?{used}:" + body.replace("\\/", "/") + ")"
                self._terminal(pattern)
                return _Node("pattern", pattern)
        inner = self._choice()
        self._expect("mark", ")" if token.text == "(" else "]")
        return inner if token.text == "(" else _Node("repeat", parts=(inner,), least=0)

    def _repeated(self, node: _Node) -> _Node:
        while self._peek().kind == "mark" and self._peek().text in "?*+~":
            mark = self._peek().text
            self._next += 1
            least, most = {"?": (0, 1), "*": (0, None), "+": (1, None), "~": (0, 0)}[mark]
            if mark == "~":
                if self._peek().kind != "number":
                    raise NotDecided
                least = most = int(self._expect("number")[:9])
                if self._take(".."):
                    most = int(self._expect("number")[:9])
                if least < 0 or most < least:
                    raise GrammarError("a repetition needs two numbers, in their order")
                if most > _MAX_REPEATS:
                    raise NotDecided
            node = _Node("repeat", parts=(node,), least=least, most=most)
        return node

    # --- rules -------------------------------------------------------------------------------------------------

    def _alternatives(self, node: _Node) -> list[tuple[str | int, ...]]:
        """Return the alternatives of a node as sequences of symbols."""
        if node.kind == "choice":
            return [symbols for part in node.parts for symbols in self._alternatives(part)]
        parts = node.parts if node.kind == "sequence" else (node,)
        return [tuple(symbol for part in parts for symbol in self._symbols(part))]

    def _symbols(self, node: _Node) -> tuple[str | int, ...]:
        self._work.add()
        match node.kind:
            case "name":
                if node.text not in self._definitions:
                    raise GrammarError(f"there is no rule {node.text!r}")
                return (node.text,)
            case "terminal" | "pattern":
                return (self._terminal(self._pattern_of(node, ())),)
            case "repeat":
                return self._repeat(node)
            case "choice":
                return (self._helper(self._alternatives(node)),)
            case "sequence":
                return tuple(symbol for part in node.parts for symbol in self._symbols(part))

    def _terminal(self, pattern: str) -> int:
        """Return the symbol of a terminal."""
        if pattern not in self._places:
            self._places[pattern] = len(self._terminals)
            literal = self._literals.get(pattern)
            self._terminals.append(_compiled(pattern, self._work) if literal is None else literal)
        return ~self._places[pattern]

    def _repeat(self, node: _Node) -> tuple[str | int, ...]:
        alternatives = self._alternatives(node.parts[0])
        inner = alternatives[0] if len(alternatives) == 1 else (self._helper(alternatives),)
        if node.most is None:
            many = self._helper([()])
            self._productions.append((many, (many, *inner)))
            return (*inner * node.least, many)
        rest: tuple[str | int, ...] = ()
        for _ in range(node.most - node.least):
            self._work.add()
            rest = (self._helper([(), (*inner, *rest)]),)
        return (*inner * node.least, *rest)

    def _helper(self, alternatives: list[tuple[str | int, ...]]) -> str:
        """Return the name of a new rule with these alternatives."""
        name = f"#{len(self._productions)}"
        self._productions += [(name, symbols) for symbols in alternatives]
        return name

    # --- terminals ---------------------------------------------------------------------------------------------

    def _pattern_of(self, node: _Node, outer: tuple[str, ...]) -> str:
        """Return a terminal as a regular expression.

        Args:
            node: The expression.
            outer: The terminals that it is a part of.
        """
        self._work.add()
        match node.kind:
            case "pattern":
                pattern = node.text
            case "name":
                raise GrammarError(f"the rule {node.text!r} is used in a terminal")
            case "terminal":
                name = node.text
                if name not in self._definitions:
                    raise GrammarError(f"there is no terminal {name!r}")
                if name in outer:
                    raise GrammarError(f"the terminal {name!r} contains itself")
                if len(outer) > _MAX_DEPTH:
                    raise NotDecided
                if name not in self._patterns:
                    self._patterns[name] = self._pattern_of(self._definitions[name], (*outer, name))
                pattern = self._patterns[name]
            case "repeat":
                most = "" if node.most is None else node.most
                pattern = f"(?:{self._pattern_of(node.parts[0], outer)}){{{node.least},{most}}}"
            case _:
                joint = "|" if node.kind == "choice" else ""
                pattern = f"(?:{joint.join(self._pattern_of(part, outer) for part in node.parts)})"
        if len(pattern) > _MAX_PATTERN_CHARS:
            raise NotDecided
        return pattern


def _plain(token: str) -> str:
    """Return the text of a string in Lark's notation."""
    quoted = token.removesuffix("i")[1:-1]
    try:
        text = _ESCAPE.sub(_unescaped, quoted)
        text.encode()
        return text
    except (ValueError, OverflowError):
        raise GrammarError(f"{token}: no such character") from None


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    return chr(int(code, 16)) if code else _PLAIN_ESCAPES.get(match[4], match[4])
