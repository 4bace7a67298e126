"""Responses, conversations and keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "responses",
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
    _partial_index("responses_due", "responses", "expires_at", "expires_at IS NOT NULL")
    _partial_index("responses_unfinished", "responses", "updated_at", "status IN ('queued', 'in_progress')")
    op.create_table(
        "response_bodies",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("response_id", sa.Text, primary_key=True),
        sa.Column("header", sa.LargeBinary, nullable=False),
        sa.Column("input", sa.LargeBinary, nullable=False),
        sa.Column("messages", sa.LargeBinary, nullable=False),
        sa.Column("error", sa.LargeBinary),
        sa.Column("log", sa.LargeBinary, nullable=False),
    )
    if op.get_context().dialect.name == "postgresql":  # the log is compressed already
        op.execute("ALTER TABLE response_bodies ALTER COLUMN log SET STORAGE EXTERNAL")
    op.create_table(
        "response_items",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("item_id", sa.Text, primary_key=True),
        sa.Column("response_id", sa.Text, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_index("response_items_of", "response_items", ["owner", "response_id"])
    op.create_table(
        "conversations",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("metadata", sa.LargeBinary, nullable=False),
        sa.Column("next_position", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    _partial_index("conversations_due", "conversations", "expires_at", "expires_at IS NOT NULL")
    op.create_table(
        "conversation_entries",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("conversation_id", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("item", sa.LargeBinary, nullable=False),
        sa.Column("message", sa.LargeBinary),
    )
    op.create_index("conversation_entries_id", "conversation_entries", ["owner", "conversation_id", "id"], unique=True)
    op.create_table(
        "keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.Column("policy", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_keys_owner", "keys", ["owner"])


def _partial_index(name: str, table: str, column: str, where: str) -> None:
    op.create_index(name, table, [column], sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def downgrade() -> None:
    for table in ("keys", "conversation_entries", "conversations", "response_items", "response_bodies", "responses"):
        op.drop_table(table)
