"""The two-way sweep, and what ended jobs did. Frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("effects", sa.Text()))
    op.create_table(
        "remote_walks",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("began_at", sa.BigInteger()),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("pages", sa.BigInteger(), nullable=False),
        sa.Column("newest", sa.BigInteger()),
        sa.Column("oldest", sa.BigInteger()),
        sa.Column("untimed", sa.BigInteger(), nullable=False),
        sa.Column("watermark", sa.BigInteger()),
        sa.Column("walks", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger()),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("provider", name=op.f("pk_remote_walks")),
    )
    op.create_table(
        "remote_seen",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("remote_job_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "remote_job_id", name=op.f("pk_remote_seen")),
    )
    op.create_table(
        "remote_findings",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("remote_job_id", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("made_at", sa.BigInteger()),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("confirmed_at", sa.BigInteger()),
        sa.Column("resolved_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("provider", "kind", "remote_job_id", name=op.f("pk_remote_findings")),
        sa.CheckConstraint("kind IN ('duplicate', 'leak', 'missing')", name=op.f("ck_remote_findings_kind")),
    )
