"""What a result consists of, how long it is kept, and which attempt may have consumed it. Frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("result_facts", sa.LargeBinary()))
    op.add_column("operations", sa.Column("result_expires_at", sa.BigInteger()))
    op.add_column("operations", sa.Column("consumed_by", sa.Text()))
    op.add_column("operations", sa.Column("failed_refs", sa.LargeBinary()))
    op.create_index(
        "ix_operations_result_expires",
        "operations",
        ["result_expires_at"],
        sqlite_where=sa.text("result_expires_at IS NOT NULL"),
        postgresql_where=sa.text("result_expires_at IS NOT NULL"),
    )
