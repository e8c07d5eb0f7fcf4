"""What stays on its indexes however much there is: real statements on a filled record, their plans and times.

    python bench/growth.py --database-url sqlite:////tmp/growth.db --rows 5000000
    python bench/growth.py --database-url postgresql://…/empty --rows 5000000

Fills an empty database (in a few statements: nineteen of twenty operations are over), then claims, takes deliveries in, sweeps, lists,
audits and expires, and explains every statement that was sent. Exit 1 where one walks a whole table.
`tests/conformance/test_growth.py` does the same with fewer rows.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sqlalchemy as sa

from ledger import examine, inbox, queries
from ledger.audit import self_audit
from ledger.engine import Engines, open_engines
from ledger.ingest import ingest
from ledger.leases import claim
from ledger.migrate import migrate
from ledger.retention import expire
from ledger.schema import metadata
from ledger.sweep import sweep
from ledger.tables import operations
from ledger.transaction import Transaction, View
from ledger.vault import Vault
from schemas.commands import ClaimWork, Ingest, Sweep
from schemas.contract import Contract, RecoveryRule, StatusRule
from schemas.delivery import Delivery, Event
from schemas.operation import SECOND, Micros
from schemas.upkeep import Expire, Stage

NOW: Micros = 1_800_000_000 * SECOND
DAY: Micros = 86_400 * SECOND
PROVIDERS, OWNERS = 3, 40
BIG = {"operations", "history", "deliveries", "remote_jobs", "idempotency_keys", "exchanges"}
SMALL = ("ix_operations_unproven", "ix_operations_live", "ix_operations_due", "ix_deliveries_waiting")  # indexes over what is not over
CONTRACT = Contract(name="p", digest="d" * 64, recovery=RecoveryRule(), status=StatusRule())
CONTRACTS = {f"p{number}": CONTRACT for number in range(PROVIDERS)}


# --- filling


def fill(engines: Engines, rows: int) -> None:
    """Fill an empty, migrated database with `rows` operations and as much of what belongs to them, set by set."""
    # The same expressions on both databases: n is 0, 1, 2 …; one of twenty is alive.
    text = {
        "id": "printf('op_%032d', n)",
        "owner": f"printf('owner-%d', n / 7 % {OWNERS})",
        "provider": f"printf('p%d', n % {PROVIDERS})",
        "created": f"{NOW - 90 * DAY} + n * {80 * DAY // rows}",
        "alive": "n % 20 = 0",
        "job": "printf('job-%d', n)",
    }
    if engines.postgres:
        text = {name: _postgres(value) for name, value in text.items()}
        numbers = f"(SELECT n::bigint AS n FROM generate_series(0, {rows - 1}) AS n) AS numbers"
    else:
        numbers = f"(WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c LIMIT {rows}) SELECT n FROM c) AS numbers"
    state = f"CASE WHEN {text['alive']} THEN 'observing' ELSE 'failed' END"
    due = f"CASE WHEN n % 2000 = 0 THEN {NOW - SECOND} WHEN {text['alive']} THEN {NOW} + n * 1000 END"
    empty = "''::bytea" if engines.postgres else "X''"
    token = text["id"].replace("op_", "tok-")
    made: dict[str, dict[str, str]] = {
        "history": {
            "operation": text["id"], "seq": "1", "at": text["created"], "actor": "'a'", "from_state": "''", "to_state": "'failed'",
            "cause": "'reading'", "cause_id": "''", "code": "''", "changes": empty, "text_hash": empty, "prev_hash": empty, "hash": empty,
        },
        "operations": {
            "id": text["id"], "owner": text["owner"], "subject": "'s'", "provider": text["provider"], "contract_digest": "'d'",
            "origin": "'o'", "action": "'create'", "mode": "'send'", "idempotency_token": token, "trace_id": "'t'",
            "request_fingerprint": "'f'", "created_at": text["created"], "updated_at": text["created"], "state": state,
            "remote_job_id": text["job"], "due_at": due, "idempotency_key": text["job"].replace("job", "key"),
            "reference": text["job"].replace("job", "ref"), "history_hash": empty, "history_seq": "1",
            "verdict_seq": f"CASE WHEN {text['alive']} THEN NULL ELSE 1 END", "unverified": "false", "version": "1",
            "verdict_cause": f"CASE WHEN {text['alive']} THEN NULL ELSE 'reading' END",
            **dict.fromkeys(_counters(), "0"),
        },
        "remote_jobs": {"provider": text["provider"], "remote_job_id": text["job"], "operation": text["id"], "seen_at": text["created"]},
        "idempotency_keys": {
            "owner": text["owner"], "route": "'operations'", "key": text["job"].replace("job", "key"), "fingerprint": "'f'",
            "operation": text["id"], "created_at": text["created"],
        },
        "deliveries": {
            "id": text["id"].replace("op_", "dlv_"), "provider": text["provider"], "dedup_key": text["job"].replace("job", "id"),
            "content_sha256": "'c'", "received_at": text["created"], "status": "CASE WHEN n % 500 = 1 THEN 'orphan' ELSE 'applied' END",
            "standing": "'fresh'", "operation": f"CASE WHEN n % 500 = 1 THEN NULL ELSE {text['id']} END", "event_id": "'e'",
            "event_type": "'t'", "remote_job_id": f"CASE WHEN n % 500 = 1 THEN 'nobodys' ELSE {text['job']} END", "client_reference": "''",
            "claimed_state": "''", "element": "0", "parent": "''", "secret_id": "'s'", "scheme_id": "'v'", "problem": "''",
            "duplicates": "0",
        },
        "exchanges": {
            "id": text["id"].replace("op_", "exc_"), "operation": text["id"], "errand": "'read'", "method": "'GET'", "url": "'u'",
            "started_at": text["created"], "finished_at": text["created"], "outcome": "'answered'", "error": "''",
            "provider_request_id": "''", "response_digest": "''",
        },
    }  # fmt: skip
    with engines.write.begin() as connection:
        if engines.postgres:
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        for table, columns in made.items():
            names, values = ", ".join(columns), ", ".join(columns.values())
            connection.exec_driver_sql(
                f"INSERT INTO {table} ({names}) SELECT {values} FROM {numbers}".replace("%", "%%" if engines.postgres else "%")
            )
    with engines.write.connect() as connection:
        if engines.postgres:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("SET statement_timeout = 0")
            connection.exec_driver_sql("VACUUM ANALYZE")
            connection.exec_driver_sql("RESET statement_timeout")


def _counters() -> list[str]:
    """Return the counting columns of an operation, which begin at 0."""
    given = {"id", "created_at", "updated_at", "due_at", "verdict_seq", "history_seq", "version"}
    return [
        column.name
        for column in operations.columns
        if not column.nullable and isinstance(column.type, sa.BigInteger) and column.name not in given
    ]


def _postgres(text: str) -> str:
    """Return an expression in PostgreSQL's words."""
    if not text.startswith("printf"):
        return text
    form, _, value = text.removeprefix("printf(").removesuffix(")").partition(", ")
    prefix, _, spec = form.strip("'").partition("%")
    number = f"lpad(({value})::text, 32, '0')" if spec == "032d" else f"({value})::text"
    return f"'{prefix}' || {number}"


# --- what is done with it


def intake(number: int) -> Ingest:
    """Return a delivery about a job that is known."""
    event = Event(dedup_key=f"new:{number}", content_sha256="c" * 64, remote_job_id=f"job-{number}", event_id=f"new:{number}")
    made = Delivery(
        id=f"dlv_n{number:031d}", provider=f"p{number % PROVIDERS}", received_at=NOW, event=event, secret_id="s", scheme_id="v", body=b"{}"
    )
    return Ingest(delivery=made, now=NOW)


def work() -> dict[str, Callable[[Transaction], Any]]:
    """Return what writers do, by name."""
    room = dict.fromkeys(CONTRACTS, 100)
    due = ClaimWork(worker="w", room=room, limit=100, lease=SECOND, send_budget=SECOND, now=NOW, chance=0.5)
    jobs: dict[str, Callable[[Transaction], Any]] = {
        "claim 100 due": lambda tx: claim(tx, [due]),
        "take in 64 deliveries": lambda tx: ingest(tx, [intake(20 * number) for number in range(64)]),
        "sweep": lambda tx: sweep(tx, [Sweep(now=NOW + 3_600 * SECOND, limit=500, chance=0.5)]),
    }
    for stage in Stage:
        wanted = Expire(stage=stage, before=NOW - 60 * DAY, memory=NOW - 60 * DAY, now=NOW, limit=200)
        jobs[f"expire 200 {stage}"] = partial(_expire, wanted)
    return jobs


def _expire(wanted: Expire, tx: Transaction) -> Any:
    return expire(tx, [wanted])


def _listed(wanted: queries.OperationFilter, view: View) -> Any:
    return queries.operations(view, wanted, 50)


def looks() -> dict[str, Callable[[View], Any]]:
    """Return what readers ask, by name."""
    mine = queries.OperationFilter(owner="owner-3")
    some = {
        "newest": mine,
        "by reference": queries.OperationFilter(owner="owner-3", reference="ref-21"),
        "by key": queries.OperationFilter(owner="owner-3", idempotency_key="key-21"),
        "by job": queries.OperationFilter(owner="owner-3", provider="p0", remote_job_id="job-21"),
        "of everybody": queries.OperationFilter(owner=None),
    }
    place = (NOW - 50 * DAY, "op_5")
    asked: dict[str, Callable[[View], Any]] = {f"list {name}": partial(_listed, wanted) for name, wanted in some.items()}
    return {
        **asked,
        "list on": lambda view: queries.operations(view, mine, 50, place),
        "questions": lambda view: queries.questions(view, "owner-3", 50),
        "deliveries": lambda view: inbox.listed(view, status=None, provider=None, limit=50),
        "deliveries of one": lambda view: queries.deliveries_of(view, f"op_{21:032d}"),
        "providers alive": queries.live_providers,
        "overdue": lambda view: examine.overdue(view, NOW),
        "self-audit": lambda view: self_audit(view, NOW),
    }


@dataclass(slots=True)
class Sent:
    """A statement that was sent while something was done."""

    what: str
    statement: str
    parameters: Any


@dataclass(slots=True)
class Measured:
    """The statements of a run, and how long each thing took, in seconds."""

    sent: list[Sent] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def run(engines: Engines, vault: Vault) -> Measured:
    """Do everything once and gather what was sent. What is written is rolled back, so that the next thing finds it whole."""
    found = Measured()
    for name, job in work().items():
        with _heard(engines.write, name, found), engines.write.connect() as connection:
            transaction = connection.begin()
            began = time.perf_counter()
            job(Transaction(connection=connection, vault=vault, contracts=CONTRACTS))
            found.seconds[name] = time.perf_counter() - began
            transaction.rollback()
    for name, look in looks().items():
        with _heard(engines.read, name, found), engines.look() as connection:
            began = time.perf_counter()
            look(View(connection=connection, vault=vault))
            found.seconds[name] = time.perf_counter() - began
    return found


@contextmanager
def _heard(engine: sa.Engine, name: str, found: Measured) -> Iterator[None]:
    def hear(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "UPDATE", "DELETE", "INSERT", "WITH")):
            found.sent.append(Sent(name, statement, parameters[0] if isinstance(parameters, list) else parameters))

    sa.event.listen(engine, "before_cursor_execute", hear)
    try:
        yield
    finally:
        sa.event.remove(engine, "before_cursor_execute", hear)


# --- plans


def walks(engines: Engines, found: Measured) -> list[str]:
    """Return which statements walk the whole of a big table, or sort what they should find in order."""
    faults: list[str] = []
    seen: set[str] = set()
    with engines.look() as connection:
        if not engines.postgres:
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")  # explaining alone does not see that the schema has changed
        for sent in found.sent:
            if sent.statement in seen:
                continue
            seen.add(sent.statement)
            explain = _explain_postgres if engines.postgres else _explain_sqlite
            faults += [f"{sent.what}: {fault}\n    {' '.join(sent.statement.split())[:400]}" for fault in explain(connection, sent)]
    return faults


def _explain_sqlite(connection: sa.Connection, sent: Sent) -> Iterator[str]:
    driver: Any = connection.connection.driver_connection
    steps = [str(row[-1]) for row in driver.execute(f"EXPLAIN QUERY PLAN {sent.statement}", sent.parameters).fetchall()]
    # A scan of an index is a walk too, unless it is in the wanted order and the statement takes only its beginning.
    beginning = " LIMIT " in " ".join(sent.statement.split()) and not any(step.startswith("USE TEMP B-TREE") for step in steps)
    for step in steps:
        words = step.split()
        small = any(name in step for name in SMALL)
        if words[0] == "SCAN" and words[1] in BIG and not small and not ("USING" in words and beginning):
            yield step


def _explain_postgres(connection: sa.Connection, sent: Sent) -> Iterator[str]:
    driver: Any = connection.connection.driver_connection
    (answer,) = driver.execute(f"EXPLAIN (FORMAT JSON) {sent.statement}", sent.parameters).fetchone()
    waiting = [(json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]]
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in BIG:
            yield f"Seq Scan on {node['Relation Name']}"


def main() -> None:
    """Fill, do, explain, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--rows", type=int, default=5_000_000)
    given = parser.parse_args()
    engines, vault = open_engines(given.database_url), Vault(bytes(32))
    migrate(engines)
    with engines.look() as connection:
        empty = connection.execute(sa.select(operations.c.id).limit(1)).first() is None
    if empty:
        began = time.perf_counter()
        fill(engines, given.rows)
        print(f"filled {given.rows:,} rows in {time.perf_counter() - began:.1f} s")
    run(engines, vault)  # warms
    found = run(engines, vault)
    for name, seconds in found.seconds.items():
        print(f"{name:<28} {seconds * 1000:9.1f} ms")
    faults = walks(engines, found)
    print("\n".join(faults) or f"all {len({sent.statement for sent in found.sent})} statements stay on their indexes")
    engines.close()
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    assert set(metadata.tables) >= BIG
    main()
