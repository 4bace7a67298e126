"""Sealed tokens that are not valid any more, although they have not expired."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "revoked_tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("expires_at", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("revoked_tokens_due", "revoked_tokens", ["expires_at"])


def downgrade() -> None:
    op.drop_table("revoked_tokens")
