"""Secrets and their use, published keys, handshakes, refusals. Frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("not_before", sa.BigInteger()),
        sa.Column("not_after", sa.BigInteger()),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
        sa.UniqueConstraint("name", name=op.f("uq_secrets_name")),
        sa.CheckConstraint("purpose IN ('webhook', 'credential')", name=op.f("ck_secrets_purpose")),
        sa.CheckConstraint(
            "not_before IS NULL OR not_after IS NULL OR not_before < not_after", name=op.f("ck_secrets_period")
        ),
    )
    op.create_index("ix_secrets_provider", "secrets", ["provider", "purpose"])
    op.create_table(
        "secret_uses",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("secret_id", sa.Text(), nullable=False),
        sa.Column("first_used_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=False),
        sa.Column("uses", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "secret_id", name=op.f("pk_secret_uses")),
    )
    op.create_table(
        "key_documents",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("document", sa.LargeBinary()),
        sa.Column("wanted_at", sa.BigInteger(), nullable=False),
        sa.Column("fetched_at", sa.BigInteger()),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger()),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "url", name=op.f("pk_key_documents")),
    )
    op.create_table(
        "handshakes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("accepted", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("fetch_url", sa.LargeBinary()),
        sa.Column("due_at", sa.BigInteger()),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_handshakes")),
    )
    op.create_index("ix_handshakes_provider", "handshakes", ["provider", "at"])
    op.create_table(
        "refusals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("scheme_id", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("target", sa.LargeBinary()),
        sa.Column("headers", sa.LargeBinary()),
        sa.Column("body", sa.LargeBinary()),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refusals")),
    )
    op.create_index("ix_refusals_provider", "refusals", ["provider", "at"])
