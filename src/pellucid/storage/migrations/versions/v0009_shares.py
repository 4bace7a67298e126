"""Links that share chats, and feedback on answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "shares",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("chat_id", sa.Text, nullable=False),
        sa.Column("head", sa.Text, nullable=False),
        sa.Column("view", sa.Text, nullable=False),
        sa.Column("token_hash", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sqlite_with_rowid=False,
    )
    op.create_index("shares_token", "shares", ["token_hash"], unique=True)
    op.create_index("shares_of", "shares", ["owner", "chat_id"])
    op.create_table(
        "feedback",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("response_id", sa.Text, primary_key=True),
        sa.Column("rating", sa.Text, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
    )
    op.create_index("feedback_in_order", "feedback", ["updated_at", "response_id"])


def downgrade() -> None:
    op.drop_table("feedback")
    op.drop_table("shares")
