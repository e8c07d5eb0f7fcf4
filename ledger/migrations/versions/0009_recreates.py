"""How often a create was sent once more after proven absence. Frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("recreates", sa.BigInteger(), nullable=False, server_default="0"))
