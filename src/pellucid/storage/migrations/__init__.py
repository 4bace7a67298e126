"""Alembic migrations of the store (see `pellucid.storage.migrate`)."""
