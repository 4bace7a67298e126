"""Chats, and search."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Triggers update SQLite's index in the transaction that changes the table.
ADDED = "INSERT INTO texts_grams(rowid, mark, folded) VALUES (new.number, new.mark, new.folded)"
GONE = "INSERT INTO texts_grams(texts_grams, rowid, mark, folded) VALUES ('delete', old.number, old.mark, old.folded)"
SQLITE = [
    """CREATE VIRTUAL TABLE texts_grams USING fts5(
    mark, folded, content='texts', content_rowid='number', tokenize='trigram case_sensitive 1', detail=none)""",
    f"CREATE TRIGGER texts_added AFTER INSERT ON texts BEGIN {ADDED}; END",
    f"CREATE TRIGGER texts_gone AFTER DELETE ON texts BEGIN {GONE}; END",
    f"CREATE TRIGGER texts_changed AFTER UPDATE OF mark, folded ON texts BEGIN {GONE}; {ADDED}; END",
]

# Every search reads the index's pending list, so it must be short.
# Not every user may create the extension, and not every server has it. Without it, all texts of a scope are read, with
# the same results.
POSTGRESQL = """DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX texts_grams ON texts USING gin (folded gin_trgm_ops) WITH (gin_pending_list_limit = 512);
EXCEPTION WHEN OTHERS THEN NULL;
END $$"""


def upgrade() -> None:
    in_order = ["owner", "conversation_id", "created_at"]
    _partial_index("responses_of", "responses", in_order, "conversation_id IS NOT NULL")
    op.create_table(
        "chats",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("head", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("chats_in_order", "chats", ["owner", "updated_at", "id"])
    _partial_index("chats_due", "chats", ["expires_at"], "expires_at IS NOT NULL")
    op.create_table(
        "texts",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("of", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("mark", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("folded", sa.Text, nullable=False),
    )
    op.create_index("texts_id", "texts", ["owner", "scope", "id"], unique=True)
    op.create_index("texts_of", "texts", ["owner", "scope", "of", "number"])
    for statement in SQLITE if op.get_context().dialect.name == "sqlite" else [POSTGRESQL]:
        op.execute(statement)


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def downgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        op.drop_table("texts_grams")
    for table in ("texts", "chats"):
        op.drop_table(table)
    op.drop_index("responses_of", "responses")
