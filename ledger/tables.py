"""The tables of the record, for SQLite and PostgreSQL alike.

Times are BIGINT microseconds UTC. What is hashed or sealed is bytes. Every unique key is NOT NULL (B035).
Columns of `operations` are the fields of `schemas.operation.Operation`, one to one; `ledger/rows.py` converts.
"""

from typing import Final

import sqlalchemy as sa

from schemas.states import ACTIVE, ADMISSIBLE, FINAL, PARKED, WAITING, State

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _words(states: frozenset[State]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


def _admissible() -> str:
    """Return the CHECK of D2: a final state has a verdict whose cause may carry it, and nothing else has one."""
    cases = []
    for state, causes in ADMISSIBLE.items():
        words = ", ".join(f"'{cause}'" for cause in sorted(causes))
        cases.append(f"(state = '{state}' AND verdict_seq IS NOT NULL AND verdict_cause IN ({words}))")
    return f"(state NOT IN ({_words(FINAL)}) AND verdict_seq IS NULL AND verdict_cause IS NULL) OR " + " OR ".join(cases)


_DUE = (
    f"(state IN ({_words(ACTIVE)}) AND due_at IS NOT NULL AND question_id IS NULL)"
    f" OR (state IN ({_words(WAITING)}) AND due_at IS NOT NULL AND question_id IS NOT NULL)"
    f" OR (state IN ({_words(PARKED)}) AND question_id IS NOT NULL"
    " AND (due_at IS NULL OR watch_until IS NOT NULL OR granted_reads > 0))"
    f" OR (state IN ({_words(FINAL)}) AND (due_at IS NULL OR watch_until IS NOT NULL)"
    " AND (question_id IS NULL OR incident_id IS NOT NULL))"
)
LIVE: Final = f"state NOT IN ({_words(FINAL)})"
"""As SQL text: a partial index is used only where the query says the very same."""
ENDED: Final = f"state IN ({_words(FINAL)})"
UNPROVEN: Final = f"verdict_seq IS NULL AND state IN ({_words(FINAL)})"
"""What the CHECK of D2 forbids: the index over it is empty, and proves at no cost that it is."""


def _index(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    """Return a partial index, the same on both databases."""
    return sa.Index(name, *columns, unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


text = sa.Text
big = sa.BigInteger
blob = sa.LargeBinary

operations = sa.Table(
    "operations",
    metadata,
    # identity
    sa.Column("id", text, primary_key=True),
    sa.Column("owner", text, nullable=False),
    sa.Column("subject", text, nullable=False),
    sa.Column("provider", text, nullable=False),
    sa.Column("contract_digest", text, nullable=False),
    sa.Column("origin", text, nullable=False),
    sa.Column("action", text, nullable=False),
    sa.Column("mode", text, nullable=False),
    sa.Column("idempotency_token", text, nullable=False, unique=True),
    sa.Column("trace_id", text, nullable=False),
    sa.Column("request_fingerprint", text, nullable=False),
    sa.Column("created_at", big, nullable=False),
    sa.Column("create_seconds", big, nullable=False),
    sa.Column("result_seconds", big, nullable=False),
    sa.Column("cancel_seconds", big, nullable=False),
    sa.Column("collect_seconds", big, nullable=False),
    sa.Column("approval_seconds", big, nullable=False),
    sa.Column("authorized_by", text),
    sa.Column("approval_by", blob),  # canonical JSON array of text
    sa.Column("idempotency_key", text),
    sa.Column("reference", text),
    sa.Column("supersedes", text),
    sa.Column("resumes", text),
    sa.Column("request", blob),  # sealed canonical JSON
    sa.Column("metadata", blob),  # sealed canonical JSON
    sa.Column("expect", blob),  # canonical JSON
    # folded
    sa.Column("state", text, nullable=False),
    sa.Column("reading", text),
    sa.Column("remote_state", text),
    sa.Column("remote_job_id", text),
    sa.Column("ending", text),
    sa.Column("ending_cause", text),
    sa.Column("ending_cause_id", text),
    sa.Column("create_deadline", big),
    sa.Column("result_deadline", big),
    sa.Column("cancel_deadline", big),
    sa.Column("collect_deadline", big),
    sa.Column("approval_deadline", big),
    sa.Column("cancel_requested_at", big),
    sa.Column("cancel_by", text),
    sa.Column("cancel_outcome", text),
    sa.Column("result_artifact", text),
    sa.Column("result_media_type", text),
    sa.Column("result_bytes", big),
    sa.Column("result_sha256", text),
    sa.Column("result_complete", sa.Boolean(create_constraint=False)),
    sa.Column("accepted_by", text),
    sa.Column("question_id", text),
    sa.Column("question_kind", text),
    sa.Column("question_until", big),
    sa.Column("incident_id", text),
    sa.Column("error_code", text),
    sa.Column("unverified", sa.Boolean(create_constraint=False), nullable=False),
    sa.Column("superseded_by", text),
    # working
    sa.Column("revision", big, nullable=False),
    sa.Column("version", big, nullable=False),
    sa.Column("updated_at", big, nullable=False),
    sa.Column("verified_at", big),
    sa.Column("progress", sa.Float),
    sa.Column("provider_time", big),
    sa.Column("error_message", blob),  # sealed text
    sa.Column("cancel_reason", blob),  # sealed text
    sa.Column("cancel_effect", blob),  # sealed text
    sa.Column("due_at", big),
    sa.Column("watch_until", big),
    sa.Column("hinted_at", big),
    sa.Column("hints", big, nullable=False),
    sa.Column("granted_reads", big, nullable=False),
    sa.Column("lease_owner", text),
    sa.Column("lease_fence", big, nullable=False),
    sa.Column("lease_until", big),
    sa.Column("open_attempt", text),
    sa.Column("open_errand", text),
    sa.Column("unsure_creates", big, nullable=False),
    sa.Column("sends", big, nullable=False),
    sa.Column("first_sent_at", big),
    sa.Column("sent_before", big),
    sa.Column("cancel_sent_at", big),
    sa.Column("accepted_at", big),
    sa.Column("absences", big, nullable=False),
    sa.Column("read_failures", big, nullable=False),
    sa.Column("last_read_error", text),
    sa.Column("last_read_at", big),
    sa.Column("steady_reads", big, nullable=False),
    sa.Column("collect_tries", big, nullable=False),
    sa.Column("observation_digest", text),
    sa.Column("observations", big, nullable=False),
    sa.Column("history_seq", big, nullable=False),
    sa.Column("history_hash", blob, nullable=False),
    sa.Column("verdict_seq", big),
    sa.Column("verdict_cause", text),
    # added by later migrations: in the order in which they stand in every database
    sa.Column("token_spent", text),
    sa.Column("remembered", blob),  # sealed canonical JSON
    sa.Column("waits_for", text),  # folded
    sa.Column("result_facts", blob),  # folded: compact JSON object: records, items, files
    sa.Column("consumed_by", text),
    sa.Column("failed_refs", blob),  # sealed canonical JSON array of text: they are the caller's own names
    sa.Column("effects", text),  # folded
    sa.Column("recreates", big, nullable=False, server_default="0"),
    sa.CheckConstraint(_admissible(), name="verdict"),
    sa.CheckConstraint(_DUE, name="due"),
    sa.CheckConstraint("revision >= 0 AND version >= 1 AND lease_fence >= 0", name="counters"),
    sa.ForeignKeyConstraint(
        ["id", "verdict_seq", "verdict_cause"],
        ["history.operation", "history.seq", "history.cause"],
        deferrable=True,
        initially="DEFERRED",
        use_alter=False,
        name="fk_operations_verdict",
    ),
    _index("ix_operations_due", "provider", "owner", "due_at", where="due_at IS NOT NULL"),
    sa.Index("ix_operations_owner_created", "owner", "created_at", "id"),
    _index("ix_operations_owner_reference", "owner", "reference", where="reference IS NOT NULL"),
    _index("ix_operations_question", "owner", "question_id", where="question_id IS NOT NULL"),
    _index("ix_operations_remote_job", "provider", "remote_job_id", where="remote_job_id IS NOT NULL"),
    _index("ix_operations_waits", "waits_for", where="waits_for IS NOT NULL"),
    _index("uq_operations_supersedes", "supersedes", where="supersedes IS NOT NULL", unique=True),
    sa.Index("ix_operations_created", "created_at", "id"),
    _index("ix_operations_live", "provider", "state", where=LIVE),
    _index("ix_operations_ended", "updated_at", "id", where=ENDED),
    _index("ix_operations_unproven", "id", where=UNPROVEN),
)  # fmt: skip

history = sa.Table(
    "history",
    metadata,
    sa.Column("operation", text, nullable=False),
    sa.Column("seq", big, nullable=False),
    sa.Column("at", big, nullable=False),
    sa.Column("actor", text, nullable=False),
    sa.Column("from_state", text, nullable=False),  # empty on the first row
    sa.Column("to_state", text, nullable=False),
    sa.Column("cause", text, nullable=False),
    sa.Column("cause_id", text, nullable=False),
    sa.Column("code", text, nullable=False),
    sa.Column("changes", blob, nullable=False),  # canonical JSON of the changed folded fields
    sa.Column("text_hash", blob, nullable=False),  # SHA-256(salt || text), empty where there is no text
    sa.Column("prev_hash", blob, nullable=False),
    sa.Column("hash", blob, nullable=False),
    sa.PrimaryKeyConstraint("operation", "seq"),
    sa.UniqueConstraint("operation", "seq", "cause"),  # target of the verdict foreign key
)

history_texts = sa.Table(
    "history_texts",
    metadata,
    sa.Column("operation", text, nullable=False),
    sa.Column("seq", big, nullable=False),
    sa.Column("salt", blob, nullable=False),
    sa.Column("text", blob, nullable=False),  # sealed; erasable
    sa.PrimaryKeyConstraint("operation", "seq"),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("owner", text, nullable=False),
    sa.Column("route", text, nullable=False),
    sa.Column("key", text, nullable=False),
    sa.Column("fingerprint", text, nullable=False),
    sa.Column("operation", text, nullable=False),
    sa.Column("created_at", big, nullable=False),
    sa.PrimaryKeyConstraint("owner", "route", "key"),
)

remote_jobs = sa.Table(
    "remote_jobs",
    metadata,
    sa.Column("provider", text, nullable=False),
    sa.Column("remote_job_id", text, nullable=False),
    sa.Column("operation", text),  # NULL: mentioned by a delivery, owned by nobody yet
    sa.Column("seen_at", big, nullable=False),
    sa.PrimaryKeyConstraint("provider", "remote_job_id"),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("id", text, primary_key=True),
    sa.Column("provider", text, nullable=False),
    sa.Column("dedup_key", text, nullable=False),
    sa.Column("content_sha256", text, nullable=False),
    sa.Column("received_at", big, nullable=False),
    sa.Column("status", text, nullable=False),  # received | applied | orphan | unclaimed | ignored | dead
    sa.Column("standing", text, nullable=False),  # fresh | stale
    sa.Column("operation", text),
    sa.Column("event_id", text, nullable=False),
    sa.Column("event_type", text, nullable=False),
    sa.Column("remote_job_id", text, nullable=False),
    sa.Column("client_reference", text, nullable=False),
    sa.Column("claimed_state", text, nullable=False),
    sa.Column("provider_time", big),
    sa.Column("element", big, nullable=False),
    sa.Column("parent", text, nullable=False),
    sa.Column("secret_id", text, nullable=False),
    sa.Column("scheme_id", text, nullable=False),
    sa.Column("problem", text, nullable=False),
    sa.Column("duplicates", big, nullable=False),
    sa.Column("headers", blob),  # sealed
    sa.Column("body", blob),  # sealed exact bytes
    sa.UniqueConstraint("provider", "dedup_key"),
    _index("ix_deliveries_waiting", "status", "received_at", where="status IN ('received', 'orphan')"),
    _index("ix_deliveries_job", "provider", "remote_job_id", where="status IN ('orphan', 'unclaimed')"),
    _index("ix_deliveries_reference", "provider", "client_reference", where="status IN ('orphan', 'unclaimed')"),
    _index("ix_deliveries_unsigned", "provider", "received_at", where="secret_id = '' AND operation IS NULL"),
    _index("ix_deliveries_operation", "operation", "received_at", where="operation IS NOT NULL"),
    sa.Index("ix_deliveries_received", "received_at", "id"),
)  # fmt: skip

delivery_conflicts = sa.Table(
    "delivery_conflicts",
    metadata,
    sa.Column("delivery", text, nullable=False),
    sa.Column("content_sha256", text, nullable=False),
    sa.Column("received_at", big, nullable=False),
    sa.Column("secret_id", text, nullable=False),
    sa.Column("body", blob),  # sealed
    sa.PrimaryKeyConstraint("delivery", "content_sha256"),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", text, primary_key=True),
    sa.Column("operation", text, nullable=False),
    sa.Column("errand", text, nullable=False),
    sa.Column("number", big, nullable=False),
    sa.Column("fence", big, nullable=False),
    sa.Column("worker", text, nullable=False),
    sa.Column("opened_at", big, nullable=False),
    sa.Column("sent_before", big, nullable=False),
    sa.Column("closed_at", big),
    sa.Column("outcome", text, nullable=False),  # open | answered | not_sent | ambiguous | lost
    sa.Column("error", text, nullable=False),
    sa.UniqueConstraint("operation", "errand", "number"),
)

exchanges = sa.Table(
    "exchanges",
    metadata,
    sa.Column("id", text, primary_key=True),
    sa.Column("operation", text, nullable=False),
    sa.Column("attempt", text),
    sa.Column("errand", text, nullable=False),
    sa.Column("method", text, nullable=False),
    sa.Column("url", text, nullable=False),
    sa.Column("started_at", big, nullable=False),
    sa.Column("finished_at", big, nullable=False),
    sa.Column("outcome", text, nullable=False),
    sa.Column("status", big),
    sa.Column("error", text, nullable=False),
    sa.Column("provider_request_id", text, nullable=False),
    sa.Column("response_digest", text, nullable=False),
    sa.Column("response_body", blob),  # sealed, bounded
    sa.Index("ix_exchanges_operation", "operation", "started_at"),
    sa.Index("ix_exchanges_finished", "finished_at", "id"),
)

observations = sa.Table(
    "observations",
    metadata,
    sa.Column("id", text, primary_key=True),
    sa.Column("operation", text, nullable=False),
    sa.Column("number", big, nullable=False),
    sa.Column("digest", text, nullable=False),
    sa.Column("reading", text, nullable=False),
    sa.Column("remote_state", text, nullable=False),
    sa.Column("progress", sa.Float),
    sa.Column("provider_time", big),
    sa.Column("first_at", big, nullable=False),
    sa.Column("last_at", big, nullable=False),
    sa.Column("count", big, nullable=False),
    sa.Column("exchange", text),
    sa.UniqueConstraint("operation", "number"),
)

artifacts = sa.Table(
    "artifacts",
    metadata,
    sa.Column("id", text, primary_key=True),  # also the key in the artifact room
    sa.Column("operation", text, nullable=False),
    sa.Column("role", text, nullable=False),
    sa.Column("media_type", text, nullable=False),
    sa.Column("bytes", big, nullable=False),
    sa.Column("sha256", text, nullable=False),
    sa.Column("created_at", big, nullable=False),
    sa.Column("removed_at", big),  # retention has taken the file away
    sa.Index("ix_artifacts_operation", "operation"),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", text, primary_key=True),
    sa.Column("key_sha256", blob, nullable=False, unique=True),
    sa.Column("owner", text, nullable=False),
    sa.Column("subject", text, nullable=False),
    sa.Column("scopes", text, nullable=False),  # separated by spaces
    sa.Column("created_at", big, nullable=False),
    sa.Column("revoked_at", big),
)

heartbeats = sa.Table(
    "heartbeats",
    metadata,
    sa.Column("duty", text, nullable=False),
    sa.Column("process", text, nullable=False),
    sa.Column("last_at", big, nullable=False),
    sa.Column("last_ok_at", big),
    sa.Column("runs", big, nullable=False),
    sa.Column("failures", big, nullable=False),
    sa.Column("counts", text, nullable=False),
    sa.Column("error", text, nullable=False),
    sa.PrimaryKeyConstraint("duty", "process"),
)

canaries = sa.Table(
    "canaries",
    metadata,
    sa.Column("id", text, primary_key=True),
    sa.Column("sealed", blob, nullable=False),
)
