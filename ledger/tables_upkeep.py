"""The tables of upkeep: rows that cannot be read, what retention has removed, how far long work has come, checkpoints.

The same metadata and the same rules as `ledger/tables.py`.
"""

import sqlalchemy as sa

from ledger.tables import big, blob, metadata, text

row_faults = sa.Table(
    "row_faults",
    metadata,
    sa.Column("place", text, nullable=False),  # the table
    sa.Column("row", text, nullable=False),  # the row's id
    sa.Column("reason", text, nullable=False),  # never a value
    sa.Column("first_at", big, nullable=False),
    sa.Column("last_at", big, nullable=False),
    sa.Column("times", big, nullable=False),
    sa.Column("until", big, nullable=False),  # the row is left alone before this
    sa.PrimaryKeyConstraint("place", "row"),
)

tombstones = sa.Table(
    "tombstones",
    metadata,
    sa.Column("operation", text, primary_key=True),
    sa.Column("owner", text, nullable=False),
    sa.Column("provider", text, nullable=False),
    sa.Column("state", text, nullable=False),
    sa.Column("created_at", big, nullable=False),
    sa.Column("ended_at", big, nullable=False),
    sa.Column("removed_at", big, nullable=False),
    sa.Column("history_seq", big, nullable=False),  # the head: the kept history verifies against it
    sa.Column("history_hash", blob, nullable=False),
)

upkeep = sa.Table(
    "upkeep",
    metadata,
    sa.Column("name", text, primary_key=True),  # of one long work, e.g. `retention.payload`
    sa.Column("cursor_at", big, nullable=False),
    sa.Column("cursor_id", text, nullable=False),  # everything up to (cursor_at, cursor_id) is done
    sa.Column("done", big, nullable=False),
    sa.Column("updated_at", big, nullable=False),
)

signing_keys = sa.Table(
    "signing_keys",
    metadata,
    sa.Column("id", text, primary_key=True),
    sa.Column("public", blob, nullable=False),  # raw Ed25519
    sa.Column("private", blob, nullable=False),  # sealed
    sa.Column("created_at", big, nullable=False),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("number", big, primary_key=True, autoincrement=False),
    sa.Column("at", big, nullable=False),
    sa.Column("operations", big, nullable=False),  # how many heads it holds
    sa.Column("heads", blob, nullable=False),  # SHA-256 over the heads, in order
    sa.Column("previous", blob, nullable=False),  # digest of the checkpoint before it; empty for the first
    sa.Column("digest", blob, nullable=False),  # what is signed
    sa.Column("public", blob, nullable=False),
    sa.Column("signature", blob, nullable=False),
)

checkpoint_heads = sa.Table(
    "checkpoint_heads",
    metadata,
    sa.Column("checkpoint", big, nullable=False),
    sa.Column("operation", text, nullable=False),
    sa.Column("seq", big, nullable=False),
    sa.Column("hash", blob, nullable=False),
    sa.PrimaryKeyConstraint("operation", "checkpoint"),
    sa.Index("ix_checkpoint_heads_checkpoint", "checkpoint", "operation"),
)
