"""The tables of the store.

The rules:

* The owner is the first column of every primary key. So rows of two owners cannot collide, and no owner can find a row
  of another.
* Rows that change are narrow. The row of a response is updated whenever its conversation continues. Its body is written
  once (for a background response, twice), and its log is read only on request.
* The log of a space has a row for each envelope, and an index for each kind of scan (`space_log`). An index begins
  with the column of its condition, and continues in the order of the log. So a page is a range of the index, without
  sorting.
* Searchable texts are in a table of their own, with their folded form (`search`). SQLite's index of them is another
  one.
* There are no foreign keys: an ancestor of a response may be deleted while the response remains.
* `expires_at` is NULL for rows that do not expire. Times are in seconds since 1970; in the log of a space, in
  milliseconds.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()

_BYTEWISE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Text with bytewise collation. Prefixes are searched as ranges, for which a language's collation does not work."""


def _partial_index(name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool] | sa.TextClause) -> None:
    sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


responses = sa.Table(
    "responses",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("previous_id", sa.Text),
    sa.Column("conversation_id", sa.Text),
    sa.Column("background", sa.Boolean, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

_partial_index("responses_due", responses.c.expires_at, where=responses.c.expires_at.is_not(None))
_partial_index("responses_unfinished", responses.c.updated_at, where=sa.text("status IN ('queued', 'in_progress')"))
_partial_index(
    "responses_of",
    *(responses.c.owner, responses.c.conversation_id, responses.c.created_at),
    where=responses.c.conversation_id.is_not(None),
)

bodies = sa.Table(
    "response_bodies",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("response_id", sa.Text, primary_key=True),
    sa.Column("header", sa.LargeBinary, nullable=False),
    sa.Column("input", sa.LargeBinary, nullable=False),
    sa.Column("messages", sa.LargeBinary, nullable=False),
    sa.Column("error", sa.LargeBinary),
    sa.Column("log", sa.LargeBinary, nullable=False),  # near the end: the columns before it are read without it
    sa.Column("item_ids", sa.Text),  # ids of the response's rows in `items`, a JSON list; NULL: not listed
)

items = sa.Table(
    "response_items",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("item_id", sa.Text, primary_key=True),
    sa.Column("response_id", sa.Text, primary_key=True),
    sa.Column("listed", sa.Boolean),  # whether its response lists it in `item_ids`; NULL: an older version wrote it
    sqlite_with_rowid=False,
)
_partial_index("response_items_of", items.c.owner, items.c.response_id, where=items.c.listed.is_(None))

conversations = sa.Table(
    "conversations",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("metadata", sa.LargeBinary, nullable=False),
    sa.Column("next_position", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
_partial_index("conversations_due", conversations.c.expires_at, where=conversations.c.expires_at.is_not(None))

entries = sa.Table(
    "conversation_entries",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("conversation_id", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("item", sa.LargeBinary, nullable=False),
    sa.Column("message", sa.LargeBinary),
)
sa.Index("conversation_entries_id", entries.c.owner, entries.c.conversation_id, entries.c.id, unique=True)

chats = sa.Table(
    "chats",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("head", sa.Text, nullable=False),
    sa.Column("instructions", sa.Text),
    sqlite_with_rowid=False,
)
sa.Index("chats_in_order", chats.c.owner, chats.c.updated_at, chats.c.id)
_partial_index("chats_due", chats.c.expires_at, where=chats.c.expires_at.is_not(None))

shares = sa.Table(  # links that show a chat to anyone who has them
    "shares",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("chat_id", sa.Text, nullable=False),
    sa.Column("head", sa.Text, nullable=False),  # the last turn that is shown
    sa.Column("view", sa.Text, nullable=False),
    sa.Column("token_hash", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sqlite_with_rowid=False,
)
sa.Index("shares_token", shares.c.token_hash, unique=True)
sa.Index("shares_of", shares.c.owner, shares.c.chat_id)

feedback = sa.Table(  # what people think of answers
    "feedback",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("response_id", sa.Text, primary_key=True),
    sa.Column("rating", sa.Text, nullable=False),
    sa.Column("comment", sa.Text, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
)
sa.Index("feedback_in_order", feedback.c.updated_at, feedback.c.response_id)

texts = sa.Table(
    "texts",
    metadata,
    # SQLite's full-text index identifies a text by this number, so the owner cannot be part of the key.
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("of", sa.Text, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("mark", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("folded", sa.Text, nullable=False),
)
sa.Index("texts_id", texts.c.owner, texts.c.scope, texts.c.id, unique=True)
sa.Index("texts_of", texts.c.owner, texts.c.scope, texts.c.of, texts.c.number)

spaces = sa.Table(
    "spaces",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("settings", sa.LargeBinary, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("head", sa.BigInteger, nullable=False),
    sa.Column("latest", sa.BigInteger, nullable=False),  # maximum `at` of its envelopes
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("removed_at", sa.Double),  # it is invisible, and its envelopes are being deleted
    sqlite_with_rowid=False,
)
sa.Index("spaces_name", spaces.c.name, unique=True)

participants = sa.Table(
    "space_participants",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("space", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("capabilities", sa.LargeBinary, nullable=False),
    sa.Column("token_hash", sa.LargeBinary, nullable=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sqlite_with_rowid=False,
)
sa.Index("space_participants_token", participants.c.token_hash, participants.c.owner, participants.c.space, unique=True)

states = sa.Table(
    "space_states",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("space", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),
)

webhooks = sa.Table(
    "space_webhooks",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("space", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),  # sequence number of the last envelope that was delivered
    sqlite_with_rowid=False,
)

envelopes = sa.Table(
    "space_envelopes",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("space", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("latest", sa.BigInteger, nullable=False),  # maximum `at` up to this one: it never decreases
    sa.Column("sender", sa.Text, nullable=False),
    sa.Column("family", sa.Text, nullable=False),  # the first word of the kind
    sa.Column("kind", _BYTEWISE, nullable=False),
    sa.Column("root", sa.Text),  # the first segment of the path
    sa.Column("path", _BYTEWISE),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("of", sa.Text),  # the participant whose reasoning contains it
    sa.Column("note", sa.LargeBinary, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
_space_log = (envelopes.c.owner, envelopes.c.space)
_opens = sa.text("role = 'opens'")
sa.Index("space_envelopes_id", *_space_log, envelopes.c.id, envelopes.c.seq)
sa.Index("space_envelopes_sender", *_space_log, envelopes.c.sender, envelopes.c.seq, envelopes.c.kind)
sa.Index("space_envelopes_kind", *_space_log, envelopes.c.family, envelopes.c.seq, envelopes.c.kind)
_partial_index(
    "space_envelopes_within",
    *(*_space_log, envelopes.c.root, envelopes.c.seq, envelopes.c.path),
    where=envelopes.c.root.is_not(None),
)
_partial_index("space_envelopes_opened", *_space_log, envelopes.c.path, envelopes.c.seq, where=_opens)
_partial_index("space_envelopes_opening", *_space_log, envelopes.c.seq, where=_opens)

record_scopes = sa.Table(
    "record_scopes",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),  # of its newest entry; `hash` is that entry's
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sa.Column("signed", sa.BigInteger, nullable=False),  # number of the last entry in a checkpoint
    sa.Column("since", sa.BigInteger, nullable=False),  # time of its first entry, in milliseconds
    sa.Column("seal", sa.LargeBinary),
    sqlite_with_rowid=False,
)
_partial_index("record_scopes_unsigned", record_scopes.c.owner, record_scopes.c.scope, where=sa.text("number > signed"))

record_entries = sa.Table(
    "record_entries",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary),
    sa.Column("more", sa.LargeBinary),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

record_salts = sa.Table(
    "record_salts",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),  # of the content
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("salt", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

record_checkpoints = sa.Table(
    "record_checkpoints",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("serial", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
)
sa.Index("record_checkpoints_serial", record_checkpoints.c.serial, unique=True)

links = sa.Table(  # the ids to which envelopes correlate
    "space_links",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("space", sa.Text, primary_key=True),
    sa.Column("about", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sqlite_with_rowid=False,
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("owner", sa.Text, nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
    sa.Column("policy", sa.LargeBinary, nullable=False),
)

revoked_tokens = sa.Table(
    "revoked_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("expires_at", sa.Double, nullable=False),  # when the token would not be valid any more by itself
    sqlite_with_rowid=False,
)
sa.Index("revoked_tokens_due", revoked_tokens.c.expires_at)

usage = sa.Table(  # sums; a row for each day, key, model, deployment and currency
    "usage",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("key_id", sa.Text, primary_key=True),  # empty: the owner has no key here (a token, or no credentials)
    sa.Column("day", sa.Text, primary_key=True),  # in UTC, as 2026-01-31
    sa.Column("model", sa.Text, primary_key=True),  # the public name
    sa.Column("deployment", sa.Text, primary_key=True),
    sa.Column("currency", sa.Text, primary_key=True),  # of the cost; empty: there were no prices
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("cache_write_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    sa.Column("cost_nanos", sa.BigInteger, nullable=False),
    sa.Column("estimated", sa.BigInteger, nullable=False),  # number of requests whose tokens are estimated
    sqlite_with_rowid=False,
)
sa.Index("usage_days", usage.c.day)
sa.Index("usage_owner_days", usage.c.owner, usage.c.day)

# Triggers update SQLite's index in the transaction that changes the table.
_ADD_GRAMS = "INSERT INTO texts_grams(rowid, mark, folded) VALUES (new.number, new.mark, new.folded)"
_DELETE_GRAMS = (
    "INSERT INTO texts_grams(texts_grams, rowid, mark, folded) VALUES ('delete', old.number, old.mark, old.folded)"
)
DIALECT_STATEMENTS = {
    "sqlite": (
        """CREATE VIRTUAL TABLE texts_grams USING fts5(
    mark, folded, content='texts', content_rowid='number', tokenize='trigram case_sensitive 1', detail=none)""",
        f"CREATE TRIGGER texts_added AFTER INSERT ON texts BEGIN {_ADD_GRAMS}; END",
        f"CREATE TRIGGER texts_gone AFTER DELETE ON texts BEGIN {_DELETE_GRAMS}; END",
        f"CREATE TRIGGER texts_changed AFTER UPDATE OF mark, folded ON texts BEGIN {_DELETE_GRAMS}; {_ADD_GRAMS}; END",
    ),
    "postgresql": (
        "ALTER TABLE response_bodies ALTER COLUMN log SET STORAGE EXTERNAL",  # the log is compressed already
        # Every search reads the index's pending list, so it must be short.
        # Not every user may create the extension, and not every server has it. Without it, all texts of a scope are
        # read, with the same results.
        """DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX texts_grams ON texts USING gin (folded gin_trgm_ops) WITH (gin_pending_list_limit = 512);
EXCEPTION WHEN OTHERS THEN NULL;
END $$""",
    ),
}
"""What a new database needs besides, by dialect: the search index of `texts`, and how a column is stored."""
