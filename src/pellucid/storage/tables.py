"""What is kept, as tables.

The rules:

* The owner is the first column of every primary key: what is one tenant's cannot collide with what is another's, let
  alone be found by it.
* What changes is narrow. A response's row is touched whenever its conversation goes on; its body is written once (or,
  of a background response, twice), and its log is read by nobody who does not ask for it.
* What search finds stands in a table of its own, with what compares (`search`). SQLite's index of it is another.
* No foreign keys: an ancestor may be deleted while what builds on it stays.
* `expires_at` is NULL for what is kept until it is deleted. Times are seconds since 1970.
"""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

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

_expires = responses.c.expires_at.is_not(None)
sa.Index("responses_due", responses.c.expires_at, sqlite_where=_expires, postgresql_where=_expires)
_unfinished = sa.text("status IN ('queued', 'in_progress')")
sa.Index("responses_unfinished", responses.c.updated_at, sqlite_where=_unfinished, postgresql_where=_unfinished)
_in_one = responses.c.conversation_id.is_not(None)
sa.Index(
    "responses_of",
    responses.c.owner,
    responses.c.conversation_id,
    responses.c.created_at,
    sqlite_where=_in_one,
    postgresql_where=_in_one,
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
    sa.Column("log", sa.LargeBinary, nullable=False),  # last, for what stands before it is read without it
)

items = sa.Table(
    "response_items",
    metadata,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("item_id", sa.Text, primary_key=True),
    sa.Column("response_id", sa.Text, primary_key=True),
    sqlite_with_rowid=False,
)
sa.Index("response_items_of", items.c.owner, items.c.response_id)

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
_expires = conversations.c.expires_at.is_not(None)
sa.Index("conversations_due", conversations.c.expires_at, sqlite_where=_expires, postgresql_where=_expires)

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
    sqlite_with_rowid=False,
)
sa.Index("chats_in_order", chats.c.owner, chats.c.updated_at, chats.c.id)
_expires = chats.c.expires_at.is_not(None)
sa.Index("chats_due", chats.c.expires_at, sqlite_where=_expires, postgresql_where=_expires)

texts = sa.Table(
    "texts",
    metadata,
    # By which SQLite's index knows a text, so it cannot be the owner's.
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
