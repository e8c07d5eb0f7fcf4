"""Upkeep: rows that cannot be read, tombstones, progress, checkpoints, and indexes for growth. Frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_FINAL = "'abandoned', 'cancelled', 'failed', 'succeeded', 'withdrawn'"


def upgrade() -> None:
    op.create_table(
        "row_faults",
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("row", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("place", "row", name=op.f("pk_row_faults")),
    )
    op.create_table(
        "tombstones",
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=False),
        sa.Column("history_seq", sa.BigInteger(), nullable=False),
        sa.Column("history_hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("operation", name=op.f("pk_tombstones")),
    )
    op.create_table(
        "upkeep",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cursor_at", sa.BigInteger(), nullable=False),
        sa.Column("cursor_id", sa.Text(), nullable=False),
        sa.Column("done", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_upkeep")),
    )
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("public", sa.LargeBinary(), nullable=False),
        sa.Column("private", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("operations", sa.BigInteger(), nullable=False),
        sa.Column("heads", sa.LargeBinary(), nullable=False),
        sa.Column("previous", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("public", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "checkpoint_heads",
        sa.Column("checkpoint", sa.BigInteger(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("operation", "checkpoint", name=op.f("pk_checkpoint_heads")),
    )
    op.create_index("ix_checkpoint_heads_checkpoint", "checkpoint_heads", ["checkpoint", "operation"])
    op.create_index("ix_operations_created", "operations", ["created_at", "id"])
    for name, columns, where in (
        ("ix_operations_live", ["provider", "state"], f"state NOT IN ({_FINAL})"),
        ("ix_operations_ended", ["updated_at", "id"], f"state IN ({_FINAL})"),
        ("ix_operations_unproven", ["id"], f"verdict_seq IS NULL AND state IN ({_FINAL})"),
    ):
        op.create_index(name, "operations", columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
    op.create_index("ix_deliveries_received", "deliveries", ["received_at", "id"])
    op.create_index("ix_exchanges_finished", "exchanges", ["finished_at", "id"])
    op.add_column("artifacts", sa.Column("removed_at", sa.BigInteger()))
