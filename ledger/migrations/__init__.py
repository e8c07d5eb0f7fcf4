"""Migrations of the record (alembic), run by `ledger/migrate.py`."""
