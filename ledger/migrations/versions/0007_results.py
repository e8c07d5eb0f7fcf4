"""What a result consists of, and which attempt may have consumed it. Frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("result_facts", sa.LargeBinary()))
    op.add_column("operations", sa.Column("consumed_by", sa.Text()))
    op.add_column("operations", sa.Column("failed_refs", sa.LargeBinary()))
