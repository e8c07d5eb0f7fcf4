"""The tables of the first version. Written once, then frozen: later changes are migrations of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SQLITE = """
CREATE TRIGGER history_keeps_{event} BEFORE {event} ON history
BEGIN SELECT RAISE(ABORT, 'history is append-only'); END
"""

_POSTGRES = (
    """
CREATE FUNCTION history_keeps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'history is append-only' USING ERRCODE = 'restrict_violation'; END $$
""",
    "CREATE TRIGGER history_keeps_rows BEFORE UPDATE OR DELETE ON history FOR EACH ROW EXECUTE FUNCTION history_keeps()",
    "CREATE TRIGGER history_keeps_all BEFORE TRUNCATE ON history FOR EACH STATEMENT EXECUTE FUNCTION history_keeps()",
)


def upgrade() -> None:
    _tables()
    if op.get_bind().dialect.name == "postgresql":
        for statement in _POSTGRES:
            op.execute(statement)
    else:
        for event in ("update", "delete"):
            op.execute(_SQLITE.format(event=event))


def _tables() -> None:
    op.create_table('api_keys',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('key_sha256', sa.LargeBinary(), nullable=False),
    sa.Column('owner', sa.Text(), nullable=False),
    sa.Column('subject', sa.Text(), nullable=False),
    sa.Column('scopes', sa.Text(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('revoked_at', sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_api_keys')),
    sa.UniqueConstraint('key_sha256', name=op.f('uq_api_keys_key_sha256'))
    )
    op.create_table('artifacts',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('operation', sa.Text(), nullable=False),
    sa.Column('role', sa.Text(), nullable=False),
    sa.Column('media_type', sa.Text(), nullable=False),
    sa.Column('bytes', sa.BigInteger(), nullable=False),
    sa.Column('sha256', sa.Text(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_artifacts'))
    )
    op.create_index('ix_artifacts_operation', 'artifacts', ['operation'], unique=False)
    op.create_table('attempts',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('operation', sa.Text(), nullable=False),
    sa.Column('errand', sa.Text(), nullable=False),
    sa.Column('number', sa.BigInteger(), nullable=False),
    sa.Column('fence', sa.BigInteger(), nullable=False),
    sa.Column('worker', sa.Text(), nullable=False),
    sa.Column('opened_at', sa.BigInteger(), nullable=False),
    sa.Column('sent_before', sa.BigInteger(), nullable=False),
    sa.Column('closed_at', sa.BigInteger(), nullable=True),
    sa.Column('outcome', sa.Text(), nullable=False),
    sa.Column('error', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_attempts')),
    sa.UniqueConstraint('operation', 'errand', 'number', name=op.f('uq_attempts_operation_errand_number'))
    )
    op.create_table('canaries',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('sealed', sa.LargeBinary(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_canaries'))
    )
    op.create_table('deliveries',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('provider', sa.Text(), nullable=False),
    sa.Column('dedup_key', sa.Text(), nullable=False),
    sa.Column('content_sha256', sa.Text(), nullable=False),
    sa.Column('received_at', sa.BigInteger(), nullable=False),
    sa.Column('status', sa.Text(), nullable=False),
    sa.Column('standing', sa.Text(), nullable=False),
    sa.Column('operation', sa.Text(), nullable=True),
    sa.Column('event_id', sa.Text(), nullable=False),
    sa.Column('event_type', sa.Text(), nullable=False),
    sa.Column('remote_job_id', sa.Text(), nullable=False),
    sa.Column('client_reference', sa.Text(), nullable=False),
    sa.Column('claimed_state', sa.Text(), nullable=False),
    sa.Column('provider_time', sa.BigInteger(), nullable=True),
    sa.Column('element', sa.BigInteger(), nullable=False),
    sa.Column('parent', sa.Text(), nullable=False),
    sa.Column('secret_id', sa.Text(), nullable=False),
    sa.Column('scheme_id', sa.Text(), nullable=False),
    sa.Column('problem', sa.Text(), nullable=False),
    sa.Column('duplicates', sa.BigInteger(), nullable=False),
    sa.Column('headers', sa.LargeBinary(), nullable=True),
    sa.Column('body', sa.LargeBinary(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_deliveries')),
    sa.UniqueConstraint('provider', 'dedup_key', name=op.f('uq_deliveries_provider_dedup_key'))
    )
    op.create_index('ix_deliveries_job', 'deliveries', ['provider', 'remote_job_id'], unique=False, sqlite_where=sa.text("status IN ('orphan', 'unclaimed')"), postgresql_where=sa.text("status IN ('orphan', 'unclaimed')"))
    op.create_index('ix_deliveries_operation', 'deliveries', ['operation', 'received_at'], unique=False, sqlite_where=sa.text('operation IS NOT NULL'), postgresql_where=sa.text('operation IS NOT NULL'))
    op.create_index('ix_deliveries_reference', 'deliveries', ['provider', 'client_reference'], unique=False, sqlite_where=sa.text("status IN ('orphan', 'unclaimed')"), postgresql_where=sa.text("status IN ('orphan', 'unclaimed')"))
    op.create_index('ix_deliveries_waiting', 'deliveries', ['status', 'received_at'], unique=False, sqlite_where=sa.text("status IN ('received', 'orphan')"), postgresql_where=sa.text("status IN ('received', 'orphan')"))
    op.create_table('delivery_conflicts',
    sa.Column('delivery', sa.Text(), nullable=False),
    sa.Column('content_sha256', sa.Text(), nullable=False),
    sa.Column('received_at', sa.BigInteger(), nullable=False),
    sa.Column('secret_id', sa.Text(), nullable=False),
    sa.Column('body', sa.LargeBinary(), nullable=True),
    sa.PrimaryKeyConstraint('delivery', 'content_sha256', name=op.f('pk_delivery_conflicts'))
    )
    op.create_table('exchanges',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('operation', sa.Text(), nullable=False),
    sa.Column('attempt', sa.Text(), nullable=True),
    sa.Column('errand', sa.Text(), nullable=False),
    sa.Column('method', sa.Text(), nullable=False),
    sa.Column('url', sa.Text(), nullable=False),
    sa.Column('started_at', sa.BigInteger(), nullable=False),
    sa.Column('finished_at', sa.BigInteger(), nullable=False),
    sa.Column('outcome', sa.Text(), nullable=False),
    sa.Column('status', sa.BigInteger(), nullable=True),
    sa.Column('error', sa.Text(), nullable=False),
    sa.Column('provider_request_id', sa.Text(), nullable=False),
    sa.Column('response_digest', sa.Text(), nullable=False),
    sa.Column('response_body', sa.LargeBinary(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_exchanges'))
    )
    op.create_index('ix_exchanges_operation', 'exchanges', ['operation', 'started_at'], unique=False)
    op.create_table('heartbeats',
    sa.Column('duty', sa.Text(), nullable=False),
    sa.Column('process', sa.Text(), nullable=False),
    sa.Column('last_at', sa.BigInteger(), nullable=False),
    sa.Column('last_ok_at', sa.BigInteger(), nullable=True),
    sa.Column('runs', sa.BigInteger(), nullable=False),
    sa.Column('failures', sa.BigInteger(), nullable=False),
    sa.Column('counts', sa.Text(), nullable=False),
    sa.Column('error', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('duty', 'process', name=op.f('pk_heartbeats'))
    )
    op.create_table('history',
    sa.Column('operation', sa.Text(), nullable=False),
    sa.Column('seq', sa.BigInteger(), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('actor', sa.Text(), nullable=False),
    sa.Column('from_state', sa.Text(), nullable=False),
    sa.Column('to_state', sa.Text(), nullable=False),
    sa.Column('cause', sa.Text(), nullable=False),
    sa.Column('cause_id', sa.Text(), nullable=False),
    sa.Column('code', sa.Text(), nullable=False),
    sa.Column('changes', sa.LargeBinary(), nullable=False),
    sa.Column('text_hash', sa.LargeBinary(), nullable=False),
    sa.Column('prev_hash', sa.LargeBinary(), nullable=False),
    sa.Column('hash', sa.LargeBinary(), nullable=False),
    sa.PrimaryKeyConstraint('operation', 'seq', name=op.f('pk_history')),
    sa.UniqueConstraint('operation', 'seq', 'cause', name=op.f('uq_history_operation_seq_cause'))
    )
    op.create_table('history_texts',
    sa.Column('operation', sa.Text(), nullable=False),
    sa.Column('seq', sa.BigInteger(), nullable=False),
    sa.Column('salt', sa.LargeBinary(), nullable=False),
    sa.Column('text', sa.LargeBinary(), nullable=False),
    sa.PrimaryKeyConstraint('operation', 'seq', name=op.f('pk_history_texts'))
    )
    op.create_table('idempotency_keys',
    sa.Column('owner', sa.Text(), nullable=False),
    sa.Column('route', sa.Text(), nullable=False),
    sa.Column('key', sa.Text(), nullable=False),
    sa.Column('fingerprint', sa.Text(), nullable=False),
    sa.Column('operation', sa.Text(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('owner', 'route', 'key', name=op.f('pk_idempotency_keys'))
    )
    op.create_table('observations',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('operation', sa.Text(), nullable=False),
    sa.Column('number', sa.BigInteger(), nullable=False),
    sa.Column('digest', sa.Text(), nullable=False),
    sa.Column('reading', sa.Text(), nullable=False),
    sa.Column('remote_state', sa.Text(), nullable=False),
    sa.Column('progress', sa.Float(), nullable=True),
    sa.Column('provider_time', sa.BigInteger(), nullable=True),
    sa.Column('first_at', sa.BigInteger(), nullable=False),
    sa.Column('last_at', sa.BigInteger(), nullable=False),
    sa.Column('count', sa.BigInteger(), nullable=False),
    sa.Column('exchange', sa.Text(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_observations')),
    sa.UniqueConstraint('operation', 'number', name=op.f('uq_observations_operation_number'))
    )
    op.create_table('remote_jobs',
    sa.Column('provider', sa.Text(), nullable=False),
    sa.Column('remote_job_id', sa.Text(), nullable=False),
    sa.Column('operation', sa.Text(), nullable=True),
    sa.Column('seen_at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('provider', 'remote_job_id', name=op.f('pk_remote_jobs'))
    )
    op.create_table('operations',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('owner', sa.Text(), nullable=False),
    sa.Column('subject', sa.Text(), nullable=False),
    sa.Column('provider', sa.Text(), nullable=False),
    sa.Column('contract_digest', sa.Text(), nullable=False),
    sa.Column('origin', sa.Text(), nullable=False),
    sa.Column('action', sa.Text(), nullable=False),
    sa.Column('mode', sa.Text(), nullable=False),
    sa.Column('idempotency_token', sa.Text(), nullable=False),
    sa.Column('trace_id', sa.Text(), nullable=False),
    sa.Column('request_fingerprint', sa.Text(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('create_seconds', sa.BigInteger(), nullable=False),
    sa.Column('result_seconds', sa.BigInteger(), nullable=False),
    sa.Column('cancel_seconds', sa.BigInteger(), nullable=False),
    sa.Column('collect_seconds', sa.BigInteger(), nullable=False),
    sa.Column('approval_seconds', sa.BigInteger(), nullable=False),
    sa.Column('authorized_by', sa.Text(), nullable=True),
    sa.Column('approval_by', sa.LargeBinary(), nullable=True),
    sa.Column('idempotency_key', sa.Text(), nullable=True),
    sa.Column('reference', sa.Text(), nullable=True),
    sa.Column('supersedes', sa.Text(), nullable=True),
    sa.Column('resumes', sa.Text(), nullable=True),
    sa.Column('request', sa.LargeBinary(), nullable=True),
    sa.Column('metadata', sa.LargeBinary(), nullable=True),
    sa.Column('expect', sa.LargeBinary(), nullable=True),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('reading', sa.Text(), nullable=True),
    sa.Column('remote_state', sa.Text(), nullable=True),
    sa.Column('remote_job_id', sa.Text(), nullable=True),
    sa.Column('ending', sa.Text(), nullable=True),
    sa.Column('ending_cause', sa.Text(), nullable=True),
    sa.Column('ending_cause_id', sa.Text(), nullable=True),
    sa.Column('create_deadline', sa.BigInteger(), nullable=True),
    sa.Column('result_deadline', sa.BigInteger(), nullable=True),
    sa.Column('cancel_deadline', sa.BigInteger(), nullable=True),
    sa.Column('collect_deadline', sa.BigInteger(), nullable=True),
    sa.Column('approval_deadline', sa.BigInteger(), nullable=True),
    sa.Column('cancel_requested_at', sa.BigInteger(), nullable=True),
    sa.Column('cancel_by', sa.Text(), nullable=True),
    sa.Column('cancel_outcome', sa.Text(), nullable=True),
    sa.Column('result_artifact', sa.Text(), nullable=True),
    sa.Column('result_media_type', sa.Text(), nullable=True),
    sa.Column('result_bytes', sa.BigInteger(), nullable=True),
    sa.Column('result_sha256', sa.Text(), nullable=True),
    sa.Column('result_complete', sa.Boolean(), nullable=True),
    sa.Column('accepted_by', sa.Text(), nullable=True),
    sa.Column('question_id', sa.Text(), nullable=True),
    sa.Column('question_kind', sa.Text(), nullable=True),
    sa.Column('question_until', sa.BigInteger(), nullable=True),
    sa.Column('incident_id', sa.Text(), nullable=True),
    sa.Column('error_code', sa.Text(), nullable=True),
    sa.Column('unverified', sa.Boolean(), nullable=False),
    sa.Column('superseded_by', sa.Text(), nullable=True),
    sa.Column('revision', sa.BigInteger(), nullable=False),
    sa.Column('version', sa.BigInteger(), nullable=False),
    sa.Column('updated_at', sa.BigInteger(), nullable=False),
    sa.Column('verified_at', sa.BigInteger(), nullable=True),
    sa.Column('progress', sa.Float(), nullable=True),
    sa.Column('provider_time', sa.BigInteger(), nullable=True),
    sa.Column('error_message', sa.LargeBinary(), nullable=True),
    sa.Column('cancel_reason', sa.LargeBinary(), nullable=True),
    sa.Column('cancel_effect', sa.LargeBinary(), nullable=True),
    sa.Column('due_at', sa.BigInteger(), nullable=True),
    sa.Column('watch_until', sa.BigInteger(), nullable=True),
    sa.Column('hinted_at', sa.BigInteger(), nullable=True),
    sa.Column('hints', sa.BigInteger(), nullable=False),
    sa.Column('granted_reads', sa.BigInteger(), nullable=False),
    sa.Column('lease_owner', sa.Text(), nullable=True),
    sa.Column('lease_fence', sa.BigInteger(), nullable=False),
    sa.Column('lease_until', sa.BigInteger(), nullable=True),
    sa.Column('open_attempt', sa.Text(), nullable=True),
    sa.Column('open_errand', sa.Text(), nullable=True),
    sa.Column('unsure_creates', sa.BigInteger(), nullable=False),
    sa.Column('sends', sa.BigInteger(), nullable=False),
    sa.Column('first_sent_at', sa.BigInteger(), nullable=True),
    sa.Column('sent_before', sa.BigInteger(), nullable=True),
    sa.Column('cancel_sent_at', sa.BigInteger(), nullable=True),
    sa.Column('accepted_at', sa.BigInteger(), nullable=True),
    sa.Column('absences', sa.BigInteger(), nullable=False),
    sa.Column('read_failures', sa.BigInteger(), nullable=False),
    sa.Column('last_read_error', sa.Text(), nullable=True),
    sa.Column('last_read_at', sa.BigInteger(), nullable=True),
    sa.Column('steady_reads', sa.BigInteger(), nullable=False),
    sa.Column('collect_tries', sa.BigInteger(), nullable=False),
    sa.Column('observation_digest', sa.Text(), nullable=True),
    sa.Column('observations', sa.BigInteger(), nullable=False),
    sa.Column('history_seq', sa.BigInteger(), nullable=False),
    sa.Column('history_hash', sa.LargeBinary(), nullable=False),
    sa.Column('verdict_seq', sa.BigInteger(), nullable=True),
    sa.Column('verdict_cause', sa.Text(), nullable=True),
    sa.CheckConstraint("(state IN ('accepted', 'awaiting_outcome', 'cancel_requested', 'cancelling', 'create_pending', 'create_unknown', 'observing', 'result_collecting') AND due_at IS NOT NULL AND question_id IS NULL) OR (state IN ('awaiting_approval') AND due_at IS NOT NULL AND question_id IS NOT NULL) OR (state IN ('cancellation_unconfirmed', 'create_unresolved', 'quarantined', 'result_timed_out', 'result_unavailable', 'result_validation_failed') AND question_id IS NOT NULL AND (due_at IS NULL OR watch_until IS NOT NULL OR granted_reads > 0)) OR (state IN ('abandoned', 'cancelled', 'failed', 'succeeded', 'withdrawn') AND (due_at IS NULL OR watch_until IS NOT NULL) AND (question_id IS NULL OR incident_id IS NOT NULL))", name=op.f('ck_operations_due')),
    sa.CheckConstraint("(state NOT IN ('abandoned', 'cancelled', 'failed', 'succeeded', 'withdrawn') AND verdict_seq IS NULL AND verdict_cause IS NULL) OR (state = 'succeeded' AND verdict_seq IS NOT NULL AND verdict_cause IN ('create_answer', 'decision', 'reading')) OR (state = 'failed' AND verdict_seq IS NOT NULL AND verdict_cause IN ('absence', 'create_answer', 'decision', 'reading', 'report')) OR (state = 'cancelled' AND verdict_seq IS NOT NULL AND verdict_cause IN ('create_answer', 'reading')) OR (state = 'withdrawn' AND verdict_seq IS NOT NULL AND verdict_cause IN ('absence', 'deadline', 'decision', 'report', 'request')) OR (state = 'abandoned' AND verdict_seq IS NOT NULL AND verdict_cause IN ('decision'))", name=op.f('ck_operations_verdict')),
    sa.CheckConstraint('revision >= 0 AND version >= 1 AND lease_fence >= 0', name=op.f('ck_operations_counters')),
    sa.ForeignKeyConstraint(['id', 'verdict_seq', 'verdict_cause'], ['history.operation', 'history.seq', 'history.cause'], name='fk_operations_verdict', initially='DEFERRED', deferrable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_operations')),
    sa.UniqueConstraint('idempotency_token', name=op.f('uq_operations_idempotency_token'))
    )
    op.create_index('ix_operations_due', 'operations', ['provider', 'owner', 'due_at'], unique=False, sqlite_where=sa.text('due_at IS NOT NULL'), postgresql_where=sa.text('due_at IS NOT NULL'))
    op.create_index('ix_operations_owner_created', 'operations', ['owner', 'created_at', 'id'], unique=False)
    op.create_index('ix_operations_owner_reference', 'operations', ['owner', 'reference'], unique=False, sqlite_where=sa.text('reference IS NOT NULL'), postgresql_where=sa.text('reference IS NOT NULL'))
    op.create_index('ix_operations_question', 'operations', ['owner', 'question_id'], unique=False, sqlite_where=sa.text('question_id IS NOT NULL'), postgresql_where=sa.text('question_id IS NOT NULL'))
    op.create_index('ix_operations_remote_job', 'operations', ['provider', 'remote_job_id'], unique=False, sqlite_where=sa.text('remote_job_id IS NOT NULL'), postgresql_where=sa.text('remote_job_id IS NOT NULL'))
