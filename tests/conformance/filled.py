"""A record with rows in every table, as a service of some weeks has it."""

from typing import Any

import sqlalchemy as sa

from ledger.petition import petition
from ledger.schema import metadata
from ledger.tables_upkeep import tombstones
from schemas.commands import Petition
from schemas.evidence import CancelAsked, Collected, StoredFile
from schemas.operation import SECOND
from schemas.states import Reading
from tests.conformance.house import Record, delivery, intent, reading

FILE = StoredFile(key="art_00000001", role="output", media_type="text/csv", bytes=3, sha256="a" * 64)
_SPECIAL = {("secrets", "purpose"): "webhook", ("heartbeats", "counts"): "{}", ("remote_findings", "kind"): "leak"}


def fill(record: Record) -> None:
    """Bring one operation to success, leave one active and one cancelled; then one row into every table that is still empty."""
    record.accept(1, "job-1")
    record.ingest(delivery(1, "job-1"), delivery(2, "job-nobody"))
    record.ingest(delivery(3, "job-1", key="id:1", content="f" * 64))
    mine = record.claim(after=60 * SECOND)[0]
    record.settle(mine, reading(Reading.SUCCEEDED), after=60 * SECOND)
    mine = record.claim(after=61 * SECOND)[0]
    record.settle(mine, Collected(files=(FILE,)), after=61 * SECOND)
    record.accept(2, "job-2")
    record.register(intent(3))
    asked = CancelAsked(by="ann", reason="not needed", expected_effect="nothing is made")
    record.tx(petition, Petition(operation_id=intent(3).id, owner=None, actor="ann", evidence=asked, now=record.now, chance=0.5))
    with record.engines.begin() as connection:
        record.vault.prove(connection)
        for table in metadata.sorted_tables:
            if table is not tombstones and connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() == 0:
                connection.execute(sa.insert(table).values({column.name: _value(record, column) for column in table.columns}))


def _value(record: Record, column: sa.Column[Any]) -> Any:
    if (column.table.name, column.name) in _SPECIAL:
        return _SPECIAL[column.table.name, column.name]
    if column.name == "operation":
        return intent(1).id
    if column.name in {"not_before", "due_at"} and column.nullable:
        return None
    match column.type:
        case sa.LargeBinary():
            return record.vault.seal(column.table.name, column.name, "x", b"x")
        case sa.Boolean():
            return True
        case sa.BigInteger():
            return 1
        case _:
            return "x"
