"""Spaces, and their envelopes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BYTEWISE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "spaces",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("settings", sa.LargeBinary, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("head", sa.BigInteger, nullable=False),
        sa.Column("latest", sa.BigInteger, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("removed_at", sa.Double),
        sqlite_with_rowid=False,
    )
    op.create_index("spaces_name", "spaces", ["name"], unique=True)
    op.create_table(
        "space_participants",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("space", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("capabilities", sa.LargeBinary, nullable=False),
        sa.Column("token_hash", sa.LargeBinary, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("space_participants_token", "space_participants", ["token_hash", "owner", "space"], unique=True)
    op.create_table(
        "space_states",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("space", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "space_envelopes",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("space", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("latest", sa.BigInteger, nullable=False),
        sa.Column("sender", sa.Text, nullable=False),
        sa.Column("family", sa.Text, nullable=False),
        sa.Column("kind", BYTEWISE, nullable=False),
        sa.Column("root", sa.Text),
        sa.Column("path", BYTEWISE),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("of", sa.Text),
        sa.Column("note", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    _index("id", "id", "seq")
    _index("sender", "sender", "seq", "kind")
    _index("kind", "family", "seq", "kind")
    _index("within", "root", "seq", "path", where="root IS NOT NULL")
    _index("opened", "path", "seq", where="role = 'opens'")
    _index("opening", "seq", where="role = 'opens'")
    op.create_table(
        "space_links",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("space", sa.Text, primary_key=True),
        sa.Column("about", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True),
        sqlite_with_rowid=False,
    )


def _index(name: str, *columns: str, where: str | None = None) -> None:
    only = None if where is None else sa.text(where)
    op.create_index(
        f"space_envelopes_{name}",
        "space_envelopes",
        ["owner", "space", *columns],
        sqlite_where=only,
        postgresql_where=only,
    )


def downgrade() -> None:
    for table in ("space_links", "space_envelopes", "space_states", "space_participants", "spaces"):
        op.drop_table(table)
