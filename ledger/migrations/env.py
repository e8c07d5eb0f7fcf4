"""Runs the migrations on the connection and inside the transaction that `ledger/migrate.py` has opened."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
