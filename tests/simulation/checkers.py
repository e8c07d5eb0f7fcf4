"""The invariants of the architecture page, looked at after every commit. Numbers are those of its list.

1 acknowledged is stored · 2 a dedup key is applied once · 3 no final without an admissible cause and the provider's
agreement · 4 no byte without record and attempt, one token, one job · 5 due and questions · 6 history is the record ·
7 final never changes · 8 a caller sees its own · 10 order-free. C hints are followed by a look; L leases fall by their
own fence; R one revision, one content; E everything settles; A requests are those of the contract; H an assertion of the
house, X any other exception. 9 (no secret leaves the vault) is not visible here.
"""

import json
from typing import Any, Final

import sqlalchemy as sa

from ledger.audit import self_audit, verify_operation
from ledger.history import link, read_changes
from ledger.rows import from_row
from ledger.tables import history, operations
from schemas.commands import Defer, Settle
from schemas.operation import FOLDED, Micros
from schemas.states import ACTIVE, ADMISSIBLE, FINAL, PARKED, WAITING, Cause, Reading, State
from tests.simulation.callbacks import Postman
from tests.simulation.callers import Callers, first
from tests.simulation.record import Record
from tests.simulation.remote import Remote
from tests.simulation.world import BrokenInvariantError, World

_QUESTIONS: Final = ("question_id", "question_kind", "question_until", "incident_id", "superseded_by")
_VERDICT: Final = tuple(name for name in FOLDED if name not in _QUESTIONS)
_HINT_STATES: Final = {State.ACCEPTED, State.OBSERVING, State.CANCEL_REQUESTED, State.CANCELLING}
_HISTORY: Final = tuple(column.name for column in history.columns)
_NEW_HISTORY: Final = f"SELECT {', '.join(_HISTORY)} FROM history WHERE operation = ? AND seq > ? ORDER BY seq"  # noqa: S608 - our names
Row = dict[str, Any]


class Checkers:
    """Watches one story."""

    def __init__(self, world: World, record: Record, remotes: dict[str, Remote], callers: Callers, postman: Postman) -> None:
        self.world, self.record, self.remotes = world, record, remotes
        self.callers, self.postman = callers, postman
        self.rows: dict[str, Row] = {}
        self.begun: dict[str, Micros] = {}  # operation -> when the last call for it began
        self.finals: dict[str, dict[str, Any]] = {}
        self.glimpsed: dict[str, Row] = {}  # what another writer wrote inside the running transaction
        self.folds: dict[str, tuple[int, bytes, dict[str, Any]]] = {}
        self.steps = 0
        self._holders: set[tuple[str, int]] = set()
        cursor = record.raw.execute("SELECT * FROM operations LIMIT 0")
        self._columns = [column[0] for column in cursor.description]

    def glimpse(self) -> None:
        """Remember what the record is after another writer's part of the running transaction."""
        self.glimpsed.update({row["id"]: row for row in self._all()})

    def _all(self) -> list[Row]:
        return [dict(zip(self._columns, values, strict=True)) for values in self.record.raw.execute("SELECT * FROM operations")]

    def after_commit(self, kind: str, commands: list[Any]) -> None:
        """Check everything that a commit may have broken."""
        self.steps += 1
        if kind != "ClaimWork":
            self._holders = {(command.operation_id, command.fence) for command in commands if isinstance(command, Settle | Defer)}
        for row in self._all():
            before = self.rows.get(row["id"])
            seen = self.glimpsed.get(row["id"])
            if seen is not None and seen["revision"] == row["revision"] and seen != row:
                self._fail("R", row, f"two contents of revision {row['revision']}")
            if before is not None and before["revision"] == row["revision"]:
                if before != row:
                    self._fail("R", row, f"two contents of revision {row['revision']}")
                continue
            self.rows[row["id"]] = row
            self._check(row, before, kind)
            self._follow(row)
        self._stored()

    def sends(self, operation: str, attempt: str | None, *, acts: bool, token: str) -> None:
        """Check, as bytes leave: the attempt is committed, open, and the operation's own (4)."""
        row = self.rows.get(operation)
        if row is None:
            raise BrokenInvariantError("4", f"bytes leave for {operation}, which is not on record")
        if token and token != row["idempotency_token"]:
            self._fail("4", row, "another token than the recorded one is sent")
        if not acts:
            return
        found = self.record.raw.execute("SELECT outcome FROM attempts WHERE id = ?", (attempt,)).fetchone()
        if found is None:
            self._fail("4", row, "bytes leave without a committed attempt")
        elif found[0] != "open" or row["open_attempt"] != attempt:
            self._fail("4", row, f"bytes leave for an attempt that is {found[0]}")

    # --- one operation

    def _check(self, row: Row, before: Row | None, kind: str) -> None:
        state = State(row["state"])
        self._due(row, state)
        if before is not None:
            if before["idempotency_token"] != row["idempotency_token"]:
                self._fail("4", row, "the token changed")
            if row["lease_fence"] < before["lease_fence"] or row["revision"] < before["revision"]:
                self._fail("R", row, "fence or revision went back")
            if kind != "ClaimWork":
                self._lease(row, before, state)
        if state in FINAL:
            self._final(row, state)
        elif row["id"] in self.finals:
            self._fail("7", row, "a final operation lives again")
        if row["remote_job_id"] is not None:
            job = self.remotes[row["provider"]].jobs.get(row["remote_job_id"])
            if job is None or first(job.operation) != first(row["id"]):
                self._fail("4", row, "the record names a job that is not its own")
        if kind == "Settle":
            self._awake(row, state)
        self.callers.look(row)

    def _lease(self, row: Row, before: Row, state: State) -> None:
        """Check that a lease is given back by its own fence, or falls with the last thing that was owed."""
        given_back = before["lease_until"] is not None and row["lease_until"] is None
        if given_back and state not in FINAL and state not in PARKED and (row["id"], before["lease_fence"]) not in self._holders:
            self._fail("L", row, f"the lease of fence {before['lease_fence']} was taken away by somebody else")

    def _due(self, row: Row, state: State) -> None:
        due, question = row["due_at"] is not None, row["question_id"] is not None
        watched = row["watch_until"] is not None
        right = (
            (state in WAITING and due and question)
            or (state in ACTIVE and due and not question)
            or (state in PARKED and question and (not due or watched or row["granted_reads"] > 0))
            or (state in FINAL and (not due or watched) and (not question or row["incident_id"] is not None))
        )
        if not right:
            self._fail("5", row, f"due {due}, question {question}")

    def _awake(self, row: Row, state: State) -> None:
        """Check that a hint which came after the last look began is followed by another look, at once."""
        hinted = self.postman.hinted.get(row["id"])
        if hinted is None or row["lease_until"] is not None or state not in _HINT_STATES:
            return
        if hinted > self.begun.get(row["id"], 0) and row["due_at"] > self.world.time and "429" not in (row["last_read_error"] or ""):
            self._fail("C", row, "a hint came after the read began, and no further read is due")

    def _final(self, row: Row, state: State) -> None:
        verdict = {name: row[name] for name in _VERDICT} | {"seq": row["verdict_seq"], "cause": row["verdict_cause"]}
        known = self.finals.setdefault(row["id"], verdict)
        if known != verdict:
            names = sorted(name for name in verdict if verdict[name] != known[name])
            self._fail("7", row, f"a final operation changed: {names}")
        if row["verdict_cause"] is None or Cause(row["verdict_cause"]) not in ADMISSIBLE[state]:
            self._fail("3", row, f"caused by {row['verdict_cause']}")
        self._agrees(row, state)

    def _agrees(self, row: Row, state: State) -> None:
        """Check that the provider's truth carries the final state."""
        remote = self.remotes[row["provider"]]
        job = remote.jobs.get(row["remote_job_id"] or "")
        truth = job.reading(self.world.time) if job is not None else None
        cause = row["verdict_cause"]
        match state:
            case State.SUCCEEDED:
                if truth is not Reading.SUCCEEDED or row["result_artifact"] is None:
                    self._fail("3", row, f"succeeded, and the provider says {truth}")
            case State.CANCELLED:
                if truth is not Reading.CANCELLED and not (job is not None and job.deleted):
                    self._fail("3", row, f"cancelled, and the provider says {truth}")
            case State.FAILED if cause == Cause.READING or (cause == Cause.CREATE_ANSWER and job is not None):
                if truth not in {Reading.FAILED, Reading.EXPIRED}:
                    self._fail("3", row, f"failed, and the provider says {truth}")
            case State.FAILED if row["error_code"] == "result_rejected":
                pass
            case State.FAILED | State.WITHDRAWN:
                self._nothing_there(row)
            case _:
                pass

    def _nothing_there(self, row: Row) -> None:
        jobs = self.remotes[row["provider"]].jobs_of(row["id"])
        if jobs and row["mode"] != "external":
            self._fail("3", row, f"ended as if nothing was created, and {jobs[0].id} exists")

    # --- the whole record

    def _follow(self, row: Row) -> None:
        """Follow the new history rows: no gap, the chain holds, and folded they are the record."""
        seq, head, folded = self.folds.get(row["id"], (0, b"", {}))
        folded = dict(folded)
        for values in self.record.raw.execute(_NEW_HISTORY, (row["id"], seq)):
            new = dict(zip(_HISTORY, values, strict=True))
            seq += 1
            if new["seq"] != seq or new["prev_hash"] != head or link(new, head) != new["hash"]:
                self._fail("6", row, f"history row {new['seq']} does not follow row {seq - 1}")
            if new["from_state"] != folded.get("state", ""):
                self._fail("6", row, f"history row {seq} starts from {new['from_state']}")
            head = new["hash"]
            folded |= {**read_changes(new["changes"]), "state": new["to_state"]}
        if (seq, head) != (row["history_seq"], row["history_hash"]):
            self._fail("6", row, f"the record's history ends at {row['history_seq']}, the rows at {seq}")
        if row["result_facts"] is not None:
            row = {**row, "result_facts": json.loads(row["result_facts"])}
        wrong = [name for name in FOLDED if (row[name] or None) != (folded.get(name) or None)]
        if wrong:
            self._fail("6", row, f"the record is not what its history says: {wrong}")
        self.folds[row["id"]] = seq, head, folded

    def _histories(self) -> None:
        """Let the product's own audit verify everything, texts included."""
        with self.record.look() as view:
            for row in view.connection.execute(sa.select(operations)):
                for fault in verify_operation(view, from_row(row, view.vault)):
                    self._fail("6", self.rows[fault.operation], f"row {fault.seq}: {fault.fault}")

    def _stored(self) -> None:
        raw = self.record.raw
        for operation, token in self.callers.acknowledged.items():
            if operation not in self.rows or self.rows[operation]["idempotency_token"] != token:
                raise BrokenInvariantError("1", f"{operation} was acknowledged and is not on record")
        keys: dict[tuple[str, str], int] = {}
        for provider, key in raw.execute("SELECT provider, dedup_key FROM deliveries"):
            keys[provider, key] = keys.get((provider, key), 0) + 1
            if keys[provider, key] > 1:
                raise BrokenInvariantError("2", f"the delivery {key} of {provider} is applied twice")
        missing = self.postman.acknowledged.keys() - keys.keys()
        if missing:
            raise BrokenInvariantError("1", f"acknowledged deliveries are not on record: {sorted(missing)}")

    # --- at the end

    def at_the_end(self) -> None:
        """Faults have stopped and time has run on: everything is settled, and the audits find nothing."""
        for row in self.rows.values():
            state = State(row["state"])
            if state in ACTIVE or state in WAITING:
                self._fail("E", row, "is not settled although nothing is wrong any more")
            remote = self.remotes[row["provider"]]
            if state in FINAL:
                self._agrees(row, state)
            if len(remote.tokens_seen.get(row["id"], ())) > 1 or len(remote.bodies_seen.get(row["id"], ())) > 1:
                self._fail("4", row, "the same create was sent with different tokens or bytes")
            if len(remote.jobs_of(row["id"])) > 1 and row["id"] not in remote.risk_accepted and state is not State.QUARANTINED:
                self._fail("4", row, "two jobs")
        with self.record.look() as view:
            counts = self_audit(view, self.world.time)
        if any(counts.values()):
            raise BrokenInvariantError("E", f"the self-audit finds {counts}")
        self._histories()
        self._deliveries()

    def _deliveries(self) -> None:
        bound = {(row["provider"], row["remote_job_id"]): row["id"] for row in self.rows.values() if row["remote_job_id"] is not None}
        query = "SELECT id, provider, remote_job_id, status, operation FROM deliveries"
        for identity, provider, job, status, operation in self.record.raw.execute(query):
            wanted = bound.get((provider, job))
            if wanted is not None and (status != "applied" or operation != wanted):
                raise BrokenInvariantError("E", f"{identity} is {status} for {operation}; its job belongs to {wanted}")
            if status not in {"applied", "orphan", "unclaimed"}:
                raise BrokenInvariantError("E", f"{identity} is left as {status}")

    def _fail(self, checker: str, row: Row, message: str) -> None:
        raise BrokenInvariantError(checker, f"{row['id']} ({row['provider']}, {row['state']}): {message}")
