"""An index for the bound on unsigned deliveries. Frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_UNSIGNED = sa.text("secret_id = '' AND operation IS NULL")


def upgrade() -> None:
    op.create_index(
        "ix_deliveries_unsigned",
        "deliveries",
        ["provider", "received_at"],
        sqlite_where=_UNSIGNED,
        postgresql_where=_UNSIGNED,
    )
