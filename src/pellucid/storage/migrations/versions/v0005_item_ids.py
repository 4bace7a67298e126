"""The body of a response lists its items, so that no index is needed to find them when the response is deleted.

Older rows remain in the index, and so do rows that a replica of an older version writes, which does not know the new
columns. Such a replica also deletes responses of a newer one completely, although it scans all items of the owner.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INDEX, TABLE, COLUMNS = "response_items_of", "response_items", ["owner", "response_id"]


def upgrade() -> None:
    op.add_column("response_bodies", sa.Column("item_ids", sa.Text))
    op.add_column(TABLE, sa.Column("listed", sa.Boolean))
    op.drop_index(INDEX, TABLE)
    unlisted = sa.text("listed IS NULL")
    op.create_index(INDEX, TABLE, COLUMNS, sqlite_where=unlisted, postgresql_where=unlisted)


def downgrade() -> None:
    op.drop_index(INDEX, TABLE)
    op.create_index(INDEX, TABLE, COLUMNS)
    op.drop_column(TABLE, "listed")
    op.drop_column("response_bodies", "item_ids")
