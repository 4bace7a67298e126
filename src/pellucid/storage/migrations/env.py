"""Environment in which Alembic writes migrations as SQL. The store's driver adds the transaction."""

from __future__ import annotations

from alembic import context

from pellucid.storage.tables import metadata

context.configure(
    dialect_name=context.config.attributes["dialect"],
    target_metadata=metadata,
    literal_binds=True,
    transactional_ddl=False,
)
context.run_migrations()
