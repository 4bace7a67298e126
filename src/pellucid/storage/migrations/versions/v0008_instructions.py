"""Chats have instructions for their model.

A replica of an older version does not know the column: it creates chats without instructions, and ignores those of
others.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("chats", sa.Column("instructions", sa.Text))


def downgrade() -> None:
    op.drop_column("chats", "instructions")
