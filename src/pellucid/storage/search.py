"""Search: which of the texts in a scope hold what is asked for, anywhere in them, in any script.

    yield from add([Text(owner, CHATS, chat_id, response_id, "What was asked, and what was answered.")])

    FOUND = finding([texts.c.id], lambda matched: matched.texts.order_by(matched.number.desc()).limit(most))
    rows = yield FOUND.ask({**asked(owner, CHATS, "ANSWER"), "most": 20})

The rules:

* A scope is one owner's texts of one kind (`chats`), or of one room. What is searched is always one scope.
* Case does not matter, nor how a character is composed; what is looked for is a substring and nothing else. That is
  decided here, by `folded`, so it is the same in every database and locale: it is Unicode's compatibility normal form
  of the folded case. So `STRASSE` finds `Straße`, full width finds half width, `é` finds `é` however it is composed,
  and `e` does not find it. No language's own rules hold: `istanbul` does not find `İstanbul`.
* What lies behind a text's first 200,000 characters (`MAX_SEARCHED_CHARS`) is not found, nor what lies so far back in its folded
  form. Some characters fold to eighteen: to fold and index megabytes of them would keep everybody waiting.
* An index makes that fast where there are three characters or more; it never decides. In SQLite it is FTS5's, of
  trigrams, which triggers keep as the table is; in PostgreSQL pg_trgm's, where that can be had. With two characters or
  fewer, and without pg_trgm, a scope is read through.
* A text goes with what it is of, in the same transaction, and so does what the index knows of it. SQLite before 3.45
  is not sure to overwrite that at once: single trigrams, without their order, stay in the file until the index is
  merged, which `Store.erase` sees to and time does otherwise. PostgreSQL keeps what is gone until its vacuum, as of
  every table.

In SQLite the index spans all scopes, so that each has a mark in it: a trigram of its own, of characters that nobody
writes. Otherwise who has little would wait for what is everyone's.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from ..unicode import replace_surrogates
from . import tables
from .statement import Execute, Operation, Params, Statement, param

CHATS = "chats"
"""The scope of a tenant's chats: their titles, questions and answers."""

MAX_SEARCHED_CHARS = 200_000
"""So many characters of a text, and of its folded form, can be found."""

MAX_GRAMS = 8
"""So many trigrams of what is looked for are asked of the index, at most: more cost more than they spare. The text
itself says the rest."""

_FIRST_PRIVATE, _PRIVATE_COUNT = 0xF0000, 0xFFFE
"""Where the characters begin that nobody writes, and how many of them are used."""


class Text(NamedTuple):
    """What can be found. `id` is its own within the scope; `of` is what it belongs to, and goes with."""

    owner: str
    scope: str
    parent_id: str
    id: str
    text: str
    traits: tuple[str, ...] = ()
    """What `asked` may also name, so that SQLite's index need not be asked for what is not of this sender, say."""
    is_stored: bool = True
    """Whether the text itself is, for `text_of`; what is kept elsewhere need not be."""


def replace_unstorable(text: str) -> str:
    """As every database can keep it: a NUL and half of a surrogate pair are U+FFFD."""
    return replace_surrogates(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def fold_text(text: str, max_chars: int | None = None) -> str:
    """What is compared; only the beginning of it, `most` characters, if that is all that is wanted."""
    text = text[:max_chars]
    if text.isascii():
        return text.lower().replace("\0", "\N{REPLACEMENT CHARACTER}")
    text = replace_unstorable(text)
    if _LONG_NON_LATIN.search(text):
        text = _too_many_marks_pattern().sub(_split_marks, text)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text)[:max_chars].casefold())[:max_chars]


_MAX_MARKS = 30
"""So many marks on one character are put in order; what is beyond has an order of its own (UAX #15, stream-safe text).
To order them takes the square of the time: a few hundred kilobytes of them would keep the whole server for a minute."""

_LONG_NON_LATIN = re.compile(f"[\u0300-\U0001ffff]{{{_MAX_MARKS + 1}}}")
"""So many characters that are all beyond Latin: without that, nothing has too many marks, which is slow to tell."""


@cache
def _too_many_marks_pattern() -> re.Pattern[str]:
    marks = (chr(code) for code in range(0x300, 0x20000))
    marks_in_class = "".join(
        one for one in marks if all(map(unicodedata.combining, unicodedata.normalize("NFKD", one)))
    )
    return re.compile(f"[{marks_in_class}]{{{_MAX_MARKS + 1},}}")


def _split_marks(run: re.Match[str]) -> str:
    marks = run.group()
    return "\N{COMBINING GRAPHEME JOINER}".join(marks[at : at + _MAX_MARKS] for at in range(0, len(marks), _MAX_MARKS))


# ---------------------------------------------------------------------------------------------- what is kept

_T = tables.texts
_owner, _scope = param("for_owner"), param("for_scope")
_this_text = sa.and_(_T.c.owner == _owner, _T.c.scope == _scope, _T.c.id == param("for_id"))

_ADD = Statement(sa.insert(_T).values({c.name: param(c.name) for c in _T.columns if c is not _T.c.number}))
_UPDATE = Statement(
    sa.update(_T).where(_this_text).values(text=param("to_text"), folded=param("to_folded")).returning(_T.c.id)
)
_GET = Statement(sa.select(_T.c.text).where(_this_text))
_REMOVE = Statement(sa.delete(_T).where(_this_text))
_REMOVE_OF = Statement(sa.delete(_T).where(_T.c.owner == _owner, _T.c.scope == _scope, _T.c.of == param("for_id")))


def text_with_id(scope: str) -> sa.ColumnElement[bool]:
    """The text `for_id` of `for_owner`."""
    return sa.and_(_T.c.owner == _owner, _T.c.scope == scope, _T.c.id == param("for_id"))


def delete_statement(scope: str) -> Statement:
    """Deletes the text `for_id` of `for_owner`."""
    return Statement(sa.delete(_T).where(text_with_id(scope)))


def insert_texts(texts: Iterable[Text]) -> Operation[None]:
    """Those that are new."""
    if rows := [_row(text) for text in texts]:
        yield Execute(_ADD, rows)


def replace_text(text: Text) -> Operation[None]:
    """This, in the place of what was there under its id."""
    row = _row(text)
    params = {**_key_params(text.owner, text.scope, text.id), "to_text": row["text"], "to_folded": row["folded"]}
    if not (yield Execute(_UPDATE, params)):
        yield Execute(_ADD, [row])


def get_text(owner: str, scope: str, id: str) -> Operation[str | None]:
    """The text itself, as it was given (but for what cannot be kept)."""
    rows = yield Execute(_GET, _key_params(owner, scope, id))
    return rows[0][0] if rows else None


def delete_texts(owner: str, scope: str, ids: Iterable[str]) -> Operation[None]:
    """Those of them that are there."""
    if named := [_key_params(owner, scope, id) for id in ids]:
        yield Execute(_REMOVE, named)


def delete_texts_of(owner: str, scope: str, parent_id: str) -> Operation[None]:
    """All that belongs to this."""
    yield Execute(_REMOVE_OF, _key_params(owner, scope, parent_id))


def _key_params(owner: str, scope: str, id: str) -> Params:
    return {"for_owner": owner, "for_scope": scope, "for_id": id}


def _row(text: Text) -> Params:
    owner, scope, parent_id, id, content, traits, is_stored = text
    mark = "".join([_mark(owner, scope), *(_mark(owner, scope, trait) for trait in traits)])
    return {
        "owner": owner,
        "scope": scope,
        "of": parent_id,
        "id": id,
        "mark": mark,
        "text": replace_unstorable(content) if is_stored else "",
        "folded": fold_text(content, MAX_SEARCHED_CHARS),
    }


@lru_cache(maxsize=4096)
def _mark(owner: str, scope: str, trait: str = "") -> str:
    """A trigram that is in all texts of the scope (that have this trait), and (but for an accident, which costs a look)
    in no other."""
    digest = hashlib.sha256(f"{owner}\0{scope}\0{trait}".encode() if trait else f"{owner}\0{scope}".encode()).digest()
    numbers = [int.from_bytes(digest[at : at + 2]) for at in (0, 2, 4)]
    return "".join(chr(_FIRST_PRIVATE + number % _PRIVATE_COUNT) for number in numbers)


_MERGE = Statement(
    sa.select(sa.literal_column("0")),
    sqlite=sa.text("INSERT INTO texts_grams(texts_grams, rank) VALUES ('merge', :pages)").bindparams(
        sa.bindparam("pages", type_=sa.Integer, required=False)
    ),
)
_TOTAL_CHANGES = Statement(sa.select(sa.literal_column("0")), sqlite=sa.select(sa.func.total_changes()))
MERGE_PAGES = 500
"""So many pages of the index are merged in one transaction."""


def merge_index(is_first: bool) -> Operation[bool]:
    """A step of making SQLite's index anew, which lets go of the trigrams of what is gone; whether there is more to do.
    `first`: of the steps."""
    before = yield Execute(_TOTAL_CHANGES, {})
    yield Execute(_MERGE, {"pages": -MERGE_PAGES if is_first else MERGE_PAGES})
    after = yield Execute(_TOTAL_CHANGES, {})
    return bool(after[0][0] - before[0][0] > 1)


# ---------------------------------------------------------------------------------------------- how it is found


class Matches(NamedTuple):
    """Out of which a question is made (`finding`)."""

    texts: sa.Select[Any]
    """Those in the scope that hold it."""
    number: sa.ColumnElement[int]
    """Their numbers, which grow: in whose order they come one by one, so that a few are found without all."""
    holds: sa.ColumnElement[bool]
    """Whether a row of `texts` does, for asking further about what is known to be in the scope."""


class SearchQuery(NamedTuple):
    """One question, with the index and without it."""

    indexed: Statement
    read_through: Statement

    def bind(self, params: Params) -> Execute:
        return Execute(self.indexed if params["grams"] else self.read_through, params)


def search_query(
    columns: Iterable[sa.ColumnElement[Any]],
    build: Callable[[Matches], sa.Executable],
    build_for_postgresql: Callable[[Matches], sa.Executable] | None = None,
) -> SearchQuery:
    """A question about texts: `build` makes it out of those that hold what is looked for, of which it can use
    `columns`. What `asked` gives are its parameters, and `build`'s own. `elsewhere`: what makes it for a database
    whose index knows no traits, if that is better done in another way."""
    chosen = sa.select(*columns)
    general = (build_for_postgresql or build)(Matches(chosen.where(_in_scope, _like), _T.c.number, _like))
    indexed = chosen.select_from(_grams.join(_T, _T.c.number == _grams.c.rowid)).where(
        _grams.c.texts_grams.op("MATCH")(param("grams")),
        _without_index(_T.c.owner) == _owner,
        _without_index(_T.c.scope) == _scope,
    )
    unindexed = chosen.where(_in_scope)
    return SearchQuery(
        Statement(general, sqlite=build(Matches(indexed.where(_instr), _grams.c.rowid, _instr)), replan=True),
        Statement(general, sqlite=build(Matches(unindexed.where(_instr), _T.c.number, _instr)), replan=True),
    )


_grams = sa.table("texts_grams", sa.column("rowid", sa.Integer), sa.column("texts_grams", sa.Text))
_in_scope = sa.and_(_T.c.owner == _owner, _T.c.scope == _scope)
_like = _T.c.folded.like(param("pattern"), escape="\\")
_instr = sa.func.instr(_T.c.folded, param("needle"), type_=sa.Integer) > 0


def _without_index(column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """A plus keeps SQLite from reading the scope through by its own index, in place of the trigrams'."""
    return sa.UnaryExpression(column, operator=sa.sql.operators.custom_op("+"))


def search_params(owner: str, scope: str, query: str, traits: Iterable[str] = ()) -> Params:
    """The parameters of a finding. `traits`: what is found has all of these; that only makes it faster, for the finding
    itself decides."""
    needle = fold_text(query)
    pattern = needle.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    grams = list(dict.fromkeys(needle[at : at + 3] for at in range(len(needle) - 2)))
    chosen = grams[:: max(1, -(-len(grams) // MAX_GRAMS))]
    chosen = [*(_mark(owner, scope, trait) for trait in traits), *chosen]
    return {
        "for_owner": owner,
        "for_scope": scope,
        "needle": needle,
        "pattern": f"%{pattern}%",
        "grams": " ".join(map(_quoted, [_mark(owner, scope), *chosen])) if chosen else "",
    }


def _quoted(gram: str) -> str:
    return '"' + gram.replace('"', '""') + '"'


# ---------------------------------------------------------------------------------------------- what is shown of it

SNIPPET_CHARS = 160
"""So many characters are shown of a text in which something was found."""


def snippet(text: str, query: str) -> str:
    """A piece of a text, on one line, with what was looked for in it; an ellipsis where more was said."""
    at = _locate(text[:MAX_SEARCHED_CHARS], fold_text(query))
    first = at - SNIPPET_CHARS // 4 if at > SNIPPET_CHARS // 2 else 0
    last = first + SNIPPET_CHARS
    piece = " ".join(text[first:last].split())
    return f"{'…' if first else ''}{piece}{'…' if last < len(text) else ''}"


_PIECE_CHARS = 4096


def _locate(text: str, needle: str) -> int:
    """Where in the text itself its folded form holds this; 0 if that cannot be told. Read piece by piece, as far as it
    takes: a page of a list may show places in many long texts."""
    overlap = 4 * len(needle)  # more characters than that make no needle, but for some that nobody writes
    step = max(_PIECE_CHARS, overlap)
    for start in range(0, len(text), step):
        piece = text[start : start + step + overlap]
        folded_piece = fold_text(piece)
        at = folded_piece.find(needle)
        if at == 0 or (at > 0 and len(folded_piece) == len(piece)):
            return start + at
        if at > 0:
            return start + bisect_right(range(len(piece)), at, key=lambda end: len(fold_text(piece[:end]))) - 1
    return 0
