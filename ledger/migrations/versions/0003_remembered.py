"""What a create answer named beside its job, and why a token protects no resend any more. Frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("token_spent", sa.Text()))
    op.add_column("operations", sa.Column("remembered", sa.LargeBinary()))
