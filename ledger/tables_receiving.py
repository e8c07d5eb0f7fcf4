"""The tables around verification: secrets and their use, published keys, handshakes' errands, and what was refused.

The same metadata and the same rules as `ledger/tables.py`.
"""

import sqlalchemy as sa

from ledger.tables import big, blob, metadata, text

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("id", text, primary_key=True),  # sec_…
    sa.Column("name", text, nullable=False, unique=True),  # `vault:NAME` refers to it
    sa.Column("provider", text, nullable=False),  # the account that may use it
    sa.Column("purpose", text, nullable=False),  # webhook | credential
    sa.Column("value", blob, nullable=False),  # sealed
    sa.Column("source", text, nullable=False),  # added | captured (handed over by the provider)
    sa.Column("created_at", big, nullable=False),
    sa.Column("created_by", text, nullable=False),
    sa.Column("not_before", big),
    sa.Column("not_after", big),  # retired: set to when the overlap ends
    sa.Column("revoked_at", big),
    sa.CheckConstraint("purpose IN ('webhook', 'credential')", name="purpose"),
    sa.CheckConstraint("not_before IS NULL OR not_after IS NULL OR not_before < not_after", name="period"),
    sa.Index("ix_secrets_provider", "provider", "purpose"),
)

secret_uses = sa.Table(
    "secret_uses",
    metadata,
    sa.Column("provider", text, nullable=False),
    sa.Column("secret_id", text, nullable=False),  # a stored secret's id, or the reference of the configuration
    sa.Column("first_used_at", big, nullable=False),
    sa.Column("last_used_at", big, nullable=False),
    sa.Column("uses", big, nullable=False),
    sa.PrimaryKeyConstraint("provider", "secret_id"),
)

key_documents = sa.Table(
    "key_documents",
    metadata,
    sa.Column("provider", text, nullable=False),
    sa.Column("url", text, nullable=False),  # of a key set, or URL#KID of a single key, or of a certificate chain
    sa.Column("document", blob),  # sealed; NULL: wanted, not fetched yet. The last good one is kept while a new one is fetched
    sa.Column("wanted_at", big, nullable=False),
    sa.Column("fetched_at", big),
    sa.Column("tries", big, nullable=False),
    sa.Column("due_at", big),  # NULL: nothing is owed
    sa.Column("error", text, nullable=False),
    sa.PrimaryKeyConstraint("provider", "url"),
)

handshakes = sa.Table(
    "handshakes",
    metadata,
    sa.Column("id", text, primary_key=True),  # hsk_…
    sa.Column("provider", text, nullable=False),
    sa.Column("kind", text, nullable=False),
    sa.Column("at", big, nullable=False),
    sa.Column("accepted", sa.Boolean(create_constraint=False), nullable=False),
    sa.Column("reason", text, nullable=False),
    sa.Column("fetch_url", blob),  # sealed; to be fetched once
    sa.Column("due_at", big),  # of the fetch; NULL: none is owed
    sa.Column("tries", big, nullable=False),
    sa.Column("outcome", text, nullable=False),
    sa.Index("ix_handshakes_provider", "provider", "at"),
)

refusals = sa.Table(
    "refusals",
    metadata,
    sa.Column("id", text, primary_key=True),  # rfs_…
    sa.Column("provider", text, nullable=False),
    sa.Column("at", big, nullable=False),
    sa.Column("reason", text, nullable=False),
    sa.Column("detail", text, nullable=False),
    sa.Column("scheme_id", text, nullable=False),
    sa.Column("method", text, nullable=False),
    sa.Column("target", blob),  # sealed raw path and query
    sa.Column("headers", blob),  # sealed
    sa.Column("body", blob),  # sealed, at most 64 KiB; NULL: too large to keep
    sa.Column("bytes", big, nullable=False),
    sa.Index("ix_refusals_provider", "provider", "at"),
)
