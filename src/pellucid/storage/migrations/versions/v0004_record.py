"""The tamper-evident record."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "record_scopes",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("signed", sa.BigInteger, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("seal", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
    unsigned = sa.text("number > signed")
    op.create_index(
        "record_scopes_unsigned",
        "record_scopes",
        ["owner", "scope"],
        sqlite_where=unsigned,
        postgresql_where=unsigned,
    )
    op.create_table(
        "record_entries",
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
    op.create_table(
        "record_salts",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("salt", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "record_checkpoints",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("serial", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
    )
    op.create_index("record_checkpoints_serial", "record_checkpoints", ["serial"], unique=True)


def downgrade() -> None:
    for table in ("record_checkpoints", "record_salts", "record_entries", "record_scopes"):
        op.drop_table(table)
