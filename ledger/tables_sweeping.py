"""The tables of the two-way sweep: where each walk stands, what the walk under way has seen, and what was found (C9).

The same metadata and the same rules as `ledger/tables.py`.
"""

import sqlalchemy as sa

from ledger.tables import big, metadata, text

remote_walks = sa.Table(
    "remote_walks",
    metadata,
    sa.Column("provider", text, primary_key=True),
    sa.Column("fence", big, nullable=False),
    sa.Column("due_at", big, nullable=False),  # the next page, the next walk, or the end of a lease
    sa.Column("began_at", big),  # NULL: no walk is under way
    sa.Column("cursor", text, nullable=False),
    sa.Column("pages", big, nullable=False),  # of the walk under way
    sa.Column("newest", big),  # job seen by the walk under way, by the provider's clock
    sa.Column("oldest", big),
    sa.Column("untimed", big, nullable=False),  # jobs of the walk under way that had no time
    sa.Column("watermark", big),  # newest job that a finished walk has seen
    sa.Column("walks", big, nullable=False),  # finished ones
    sa.Column("failures", big, nullable=False),  # in a row
    sa.Column("last_at", big),  # end of the last finished walk
    sa.Column("error", text, nullable=False),
)

remote_seen = sa.Table(
    "remote_seen",
    metadata,
    sa.Column("provider", text, nullable=False),
    sa.Column("remote_job_id", text, nullable=False),
    sa.PrimaryKeyConstraint("provider", "remote_job_id"),
)

remote_findings = sa.Table(
    "remote_findings",
    metadata,
    sa.Column("provider", text, nullable=False),
    sa.Column("kind", text, nullable=False),  # leak | duplicate | missing
    sa.Column("remote_job_id", text, nullable=False),
    sa.Column("operation", text, nullable=False),  # empty: none is named
    sa.Column("made_at", big),  # the job, by the provider's clock
    sa.Column("first_at", big, nullable=False),
    sa.Column("last_at", big, nullable=False),
    sa.Column("confirmed_at", big),  # NULL: too young, it may still find its other half
    sa.Column("resolved_at", big),
    sa.PrimaryKeyConstraint("provider", "kind", "remote_job_id"),
    sa.CheckConstraint("kind IN ('duplicate', 'leak', 'missing')", name="kind"),
)
