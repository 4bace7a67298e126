"""What was used and what it cost, by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COUNTS = (
    "requests",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_nanos",
    "estimated",
)


def upgrade() -> None:
    op.create_table(
        "usage",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("deployment", sa.Text, primary_key=True),
        sa.Column("currency", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _COUNTS),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_days", "usage", ["day"])
    op.create_index("usage_owner_days", "usage", ["owner", "day"])


def downgrade() -> None:
    op.drop_table("usage")
