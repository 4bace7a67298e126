"""Substring search in the texts of a scope, in any script.

    yield from insert_texts([Text(owner, CHATS, chat_id, response_id, "The question, and the answer.")])

    QUERY = search_query([texts.c.id], lambda matches: matches.texts.order_by(matches.number.desc()).limit(limit))
    rows = yield QUERY.bind({**search_params(owner, CHATS, "ANSWER"), "most": 20})

The rules:

* A scope contains one owner's texts of one kind (`chats`), or of one space. A search covers exactly one scope.
* The search is for substrings, and ignores case and the composition of characters. `fold_text` decides this, so the
  results are the same in every database and locale: it is Unicode's compatibility normalization (NFKC) of the folded
  case. So `STRASSE` matches `Straße`, full width matches half width, `é` matches `é` in every composition, and `e` does
  not match it. No rules of single languages apply: `istanbul` does not match `İstanbul`.
* Only the first 200,000 characters (`MAX_SEARCHED_CHARS`) of a text and of its folded form are searched. Some
  characters fold to eighteen: to fold and index megabytes of them would block the server.
* For three characters or more, an index makes the search fast. It never decides what matches. SQLite uses FTS5 with
  trigrams, which triggers update; PostgreSQL uses pg_trgm, if available. For fewer characters, and without pg_trgm, all
  texts of the scope are read.
* A text and its index entries are deleted in the transaction that deletes their parent. SQLite before 3.45 may not
  overwrite index entries at once: single trigrams, without their order, remain in the file until the index is merged,
  by `Store.erase` or in the course of time. PostgreSQL keeps deleted rows of every table until its vacuum.

In SQLite the index spans all scopes. So that a search in a small scope need not read the entries of all others, the
texts of each scope contain a mark: a trigram of private-use characters.
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
from .statement import ID, OWNER, Execute, Operation, Params, Statement, param, read_first

CHATS = "chats"
"""Scope of the chats of an owner: titles, questions and answers."""

MAX_SEARCHED_CHARS = 200_000
"""Number of characters of a text, and of its folded form, that are searched."""

MAX_GRAMS = 8
"""Maximum number of trigrams of a query that are looked up in the index: more of them cost more than they save. The
texts decide what matches."""

_FIRST_PRIVATE, _PRIVATE_COUNT = 0xF0000, 0xFFFE
"""First private-use character of marks (Supplementary Private Use Area-A), and the number of characters used."""


class Text(NamedTuple):
    """A searchable text. `id` is unique within the scope; `parent_id` is the object with which the text is deleted."""

    owner: str
    scope: str
    parent_id: str
    id: str
    text: str
    traits: tuple[str, ...] = ()
    """Properties by which `search_params` can narrow the search in SQLite's index, for example to one sender."""
    is_stored: bool = True
    """Whether the text itself is stored, for `get_text`. False if it is stored elsewhere."""


def replace_unstorable(text: str) -> str:
    """Replace NUL and lone surrogates, which databases cannot store, with U+FFFD."""
    return replace_surrogates(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def fold_text(text: str, max_chars: int | None = None) -> str:
    """Return the form of a text that searches compare; only its first `max_chars` characters, if given."""
    text = text[:max_chars]
    if text.isascii():
        return text.lower().replace("\0", "\N{REPLACEMENT CHARACTER}")
    text = replace_unstorable(text)
    if _LONG_NON_LATIN.search(text):
        text = _too_many_marks_pattern().sub(_split_marks, text)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text)[:max_chars].casefold())[:max_chars]


_MAX_MARKS = 30
"""Maximum number of combining marks on one character that are sorted together; further ones are sorted on their own
(UAX #15, stream-safe text format). Sorting takes quadratic time: a few hundred kilobytes of marks would block the
server for a minute."""

_LONG_NON_LATIN = re.compile(f"[\u0300-\U0001ffff]{{{_MAX_MARKS + 1}}}")
"""A fast test for a run of characters outside Latin: a text without one has not too many marks."""


@cache
def _too_many_marks_pattern() -> re.Pattern[str]:
    marks = (chr(code) for code in range(0x300, 0x20000))
    marks_in_class = "".join(
        one for one in marks if all(map(unicodedata.combining, unicodedata.normalize("NFKD", one)))
    )
    return re.compile(f"[{marks_in_class}]{{{_MAX_MARKS + 1},}}")


def _split_marks(run: re.Match[str]) -> str:
    marks = run.group()
    return "\N{COMBINING GRAPHEME JOINER}".join(
        marks[start : start + _MAX_MARKS] for start in range(0, len(marks), _MAX_MARKS)
    )


# ---------------------------------------------------------------------------------------------- writing

_T = tables.texts
_scope = param("for_scope")


def text_with_id(scope: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the condition for the text `for_id` of `for_owner`."""
    return sa.and_(_T.c.owner == OWNER, _T.c.scope == scope, _T.c.id == ID)


_this_text = text_with_id(_scope)
_ADD = Statement(sa.insert(_T).values({c.name: param(c.name) for c in _T.columns if c is not _T.c.number}))
_UPDATE = Statement(
    sa.update(_T).where(_this_text).values(text=param("to_text"), folded=param("to_folded")).returning(_T.c.id)
)
_GET = Statement(sa.select(_T.c.text).where(_this_text))
_read_text = read_first(_GET, lambda row: str(row[0]))
_REMOVE = Statement(sa.delete(_T).where(_this_text))
_REMOVE_OF = Statement(sa.delete(_T).where(_T.c.owner == OWNER, _T.c.scope == _scope, _T.c.of == ID))


def delete_statement(scope: str) -> Statement:
    """Return the statement that deletes the text `for_id` of `for_owner`."""
    return Statement(sa.delete(_T).where(text_with_id(scope)))


def insert_texts(texts: Iterable[Text]) -> Operation[None]:
    """Insert new texts."""
    if rows := [_row(text) for text in texts]:
        yield Execute(_ADD, rows)


def replace_text(text: Text) -> Operation[None]:
    """Insert a text, or replace the text with its id."""
    row = _row(text)
    params = {**_key_params(text.owner, text.scope, text.id), "to_text": row["text"], "to_folded": row["folded"]}
    if not (yield Execute(_UPDATE, params)):
        yield Execute(_ADD, [row])


def get_text(owner: str, scope: str, id: str) -> Operation[str | None]:
    """Return a stored text; None if it does not exist."""
    return (yield from _read_text(_key_params(owner, scope, id)))


def delete_texts(owner: str, scope: str, ids: Iterable[str]) -> Operation[None]:
    """Delete the texts with these ids."""
    if keys := [_key_params(owner, scope, id) for id in ids]:
        yield Execute(_REMOVE, keys)


def delete_texts_of(owner: str, scope: str, parent_id: str) -> Operation[None]:
    """Delete all texts of a parent object."""
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
    """Return the trigram that marks all texts of a scope (with a trait).

    Other scopes may have the same trigram by chance. That costs time, but does not change a result.
    """
    digest = hashlib.sha256(f"{owner}\0{scope}\0{trait}".encode() if trait else f"{owner}\0{scope}".encode()).digest()
    numbers = [int.from_bytes(digest[start : start + 2]) for start in (0, 2, 4)]
    return "".join(chr(_FIRST_PRIVATE + number % _PRIVATE_COUNT) for number in numbers)


_MERGE = Statement(
    sa.select(sa.literal_column("0")),
    sqlite=sa.text("INSERT INTO texts_grams(texts_grams, rank) VALUES ('merge', :pages)").bindparams(
        sa.bindparam("pages", type_=sa.Integer, required=False)
    ),
)
_TOTAL_CHANGES = Statement(sa.select(sa.literal_column("0")), sqlite=sa.select(sa.func.total_changes()))
MERGE_PAGES = 500
"""Number of index pages that are merged in one transaction."""


def merge_index(is_first: bool) -> Operation[bool]:
    """Merge a part of SQLite's index, which removes the trigrams of deleted texts.

    Args:
        is_first: Whether this is the first step.

    Returns:
        Whether there is more to do.
    """
    before = yield Execute(_TOTAL_CHANGES, {})
    yield Execute(_MERGE, {"pages": -MERGE_PAGES if is_first else MERGE_PAGES})
    after = yield Execute(_TOTAL_CHANGES, {})
    return bool(after[0][0] - before[0][0] > 1)


# ---------------------------------------------------------------------------------------------- searching


class Matches(NamedTuple):
    """The expressions from which the statement of a search is built (`search_query`)."""

    texts: sa.Select[Any]
    """Selects the texts of the scope that contain the query."""
    number: sa.ColumnElement[int]
    """Their ascending numbers. In this order, the first matches are found without reading all."""
    holds: sa.ColumnElement[bool]
    """Whether a row of `texts` contains the query, for further conditions on texts of the scope."""


class SearchQuery(NamedTuple):
    """A search statement, with and without the index."""

    indexed: Statement
    read_through: Statement

    def bind(self, params: Params) -> Execute:
        """Return the request for this search: with the index if the parameters allow it."""
        return Execute(self.indexed if params["grams"] else self.read_through, params)


def search_query(
    columns: Iterable[sa.ColumnElement[Any]],
    build: Callable[[Matches], sa.Executable],
    build_for_postgresql: Callable[[Matches], sa.Executable] | None = None,
) -> SearchQuery:
    """Build a search statement. Its parameters are those of `search_params`, and those that `build` adds.

    Args:
        columns: Columns of the matching texts that `build` uses.
        build: Makes the statement from the matches.
        build_for_postgresql: Replaces `build` for PostgreSQL, whose index does not know traits.
    """
    chosen = sa.select(*columns)
    general = (build_for_postgresql or build)(Matches(chosen.where(_in_scope, _like), _T.c.number, _like))
    indexed = chosen.select_from(_grams.join(_T, _T.c.number == _grams.c.rowid)).where(
        _grams.c.texts_grams.op("MATCH")(param("grams")),
        _without_index(_T.c.owner) == OWNER,
        _without_index(_T.c.scope) == _scope,
    )
    unindexed = chosen.where(_in_scope)
    return SearchQuery(
        Statement(general, sqlite=build(Matches(indexed.where(_instr), _grams.c.rowid, _instr)), replan=True),
        Statement(general, sqlite=build(Matches(unindexed.where(_instr), _T.c.number, _instr)), replan=True),
    )


_grams = sa.table("texts_grams", sa.column("rowid", sa.Integer), sa.column("texts_grams", sa.Text))
_in_scope = sa.and_(_T.c.owner == OWNER, _T.c.scope == _scope)
_like = _T.c.folded.like(param("pattern"), escape="\\")
_instr = sa.func.instr(_T.c.folded, param("needle"), type_=sa.Integer) > 0


def _without_index(column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """Add a unary plus, so that SQLite does not use the index of the scope instead of the trigram index."""
    return sa.UnaryExpression(column, operator=sa.sql.operators.custom_op("+"))


def search_params(owner: str, scope: str, query: str, traits: Iterable[str] = ()) -> Params:
    """Return the parameters of a search.

    Args:
        owner: Owner of the scope.
        scope: The scope to search.
        query: The substring to find.
        traits: Traits that all results have. They make the search faster; the statement must check them as well.
    """
    needle = fold_text(query)
    pattern = needle.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    grams = list(dict.fromkeys(needle[start : start + 3] for start in range(len(needle) - 2)))
    chosen = grams[:: max(1, -(-len(grams) // MAX_GRAMS))]
    chosen = [*(_mark(owner, scope, trait) for trait in traits), *chosen]
    return {
        "for_owner": owner,
        "for_scope": scope,
        "needle": needle,
        "pattern": f"%{pattern}%",
        "grams": " ".join(map(_quote, [_mark(owner, scope), *chosen])) if chosen else "",
    }


def _quote(gram: str) -> str:
    return '"' + gram.replace('"', '""') + '"'


# ---------------------------------------------------------------------------------------------- snippets

SNIPPET_CHARS = 160
"""Number of characters in a snippet."""


def snippet(text: str, query: str) -> str:
    """Return a part of a text around the match of a query, on one line, with an ellipsis where text is left out."""
    match_start = _locate(text[:MAX_SEARCHED_CHARS], fold_text(query))
    first = match_start - SNIPPET_CHARS // 4 if match_start > SNIPPET_CHARS // 2 else 0
    last = first + SNIPPET_CHARS
    piece = " ".join(text[first:last].split())
    return f"{'…' if first else ''}{piece}{'…' if last < len(text) else ''}"


_PIECE_CHARS = 4096


def _locate(text: str, needle: str) -> int:
    """Return the index in `text` at which its folded form contains `needle`; 0 if it cannot be determined.

    The text is folded piece by piece up to the match: a page of results may need the positions in many long texts.
    """
    overlap = 4 * len(needle)  # except for very rare characters, a match is not longer than this
    step = max(_PIECE_CHARS, overlap)
    for start in range(0, len(text), step):
        piece = text[start : start + step + overlap]
        folded_piece = fold_text(piece)
        offset = folded_piece.find(needle)
        if offset == 0 or (offset > 0 and len(folded_piece) == len(piece)):
            return start + offset
        if offset > 0:
            return start + bisect_right(range(len(piece)), offset, key=lambda end: len(fold_text(piece[:end]))) - 1
    return 0
