"""Successors that wait for their predecessors. Frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("waits_for", sa.Text()))
    waits, succeeds = sa.text("waits_for IS NOT NULL"), sa.text("supersedes IS NOT NULL")
    op.create_index("ix_operations_waits", "operations", ["waits_for"], sqlite_where=waits, postgresql_where=waits)
    op.create_index(
        "uq_operations_supersedes", "operations", ["supersedes"], unique=True, sqlite_where=succeeds, postgresql_where=succeeds
    )
