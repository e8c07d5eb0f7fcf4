"""`database check`: every constraint is evaluated again over what is stored, and what is wrong is named by its row (MISSION H5).

A database that was restored in part, copied while it was written, or edited with its constraints off obeys nobody's CHECK. Each
check is a query of its own, so that no transaction lasts for the whole of it (B117).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from ledger import examine
from ledger.schema import metadata
from ledger.tables import artifacts, attempts, deliveries, exchanges, history, history_texts, observations, operations, remote_jobs
from ledger.tables_upkeep import row_faults, tombstones
from ledger.transaction import View

MOST: Final = 100  # rows that are named of one check
_OF_OPERATIONS: Final = (attempts, exchanges, observations, artifacts, history_texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One look at the database: what it is called, and the faults that it found."""

    name: str
    query: Any  # View -> faults

    def __call__(self, view: View) -> list[str]:
        """Run it."""
        found: list[str] = self.query(view)
        return found


def checks() -> Iterator[Check]:
    """Yield every check, the cheapest first."""
    yield Check(name="integrity", query=examine.faults)
    yield Check(name="schema", query=_schema)
    yield Check(name="unreadable rows", query=_unreadable)
    for table in metadata.sorted_tables:
        yield Check(name=f"constraints of {table.name}", query=lambda view, table=table: _constraints(view, table))
    yield Check(name="references", query=_references)


def _schema(view: View) -> list[str]:
    """Find tables, columns, indexes and constraints that the schema has and the database has not."""
    look = sa.inspect(view.connection)
    there = set(look.get_table_names())
    faults = []
    for table in metadata.sorted_tables:
        if table.name not in there:
            continue  # told by `examine.faults`, or by the query that misses it
        columns = {column["name"] for column in look.get_columns(table.name)}
        faults += [f"the column {table.name}.{column.name} is missing" for column in table.columns if column.name not in columns]
        indexes = {index["name"] for index in look.get_indexes(table.name)}
        faults += [f"the index {index.name} is missing: what it serves is slow" for index in table.indexes if index.name not in indexes]
        kept = {item["name"] for item in look.get_check_constraints(table.name)}
        kept |= {item["name"] for item in look.get_unique_constraints(table.name)}
        kept |= {item["name"] for item in look.get_foreign_keys(table.name)}
        for constraint in table.constraints:
            # A name that a convention makes is known once the constraint is written out.
            name = view.connection.dialect.identifier_preparer.format_constraint(constraint)
            if not isinstance(constraint, sa.PrimaryKeyConstraint) and name not in kept:
                faults.append(f"the constraint {name} is missing: what it forbids could be stored")
    return faults


def _unreadable(view: View) -> list[str]:
    query = sa.select(row_faults).order_by(row_faults.c.place, row_faults.c.row).limit(MOST)
    return [f"{row.place} row {row.row} is left alone: {row.reason}" for row in view.connection.execute(query)]


def _constraints(view: View, table: sa.Table) -> list[str]:
    """Find rows that break a CHECK, a NOT NULL or a unique key of their table."""
    keys = list(table.primary_key.columns)
    faults = []
    for constraint in table.constraints:
        if isinstance(constraint, sa.CheckConstraint):
            query = sa.select(*keys).where(sa.text(f"NOT ({constraint.sqltext})")).order_by(*keys).limit(MOST)
            faults += [f"{table.name} row {_named(row)} breaks {constraint.name}" for row in view.connection.execute(query)]
        elif isinstance(constraint, sa.UniqueConstraint | sa.PrimaryKeyConstraint):
            columns = list(constraint.columns)
            query = sa.select(*columns).group_by(*columns).having(sa.func.count() > 1).limit(MOST)
            names = ", ".join(column.name for column in columns)
            faults += [f"{table.name} has {names} {_named(row)} more than once" for row in view.connection.execute(query)]
    for column in table.columns:
        if not column.nullable:
            query = sa.select(*keys).where(column.is_(None)).order_by(*keys).limit(MOST)
            faults += [f"{table.name} row {_named(row)} has no {column.name}" for row in view.connection.execute(query)]
    return faults


def _references(view: View) -> list[str]:
    """Find rows that point at what is not there."""
    o, h = operations.c, history.c
    known = sa.exists().where(h.operation == o.id, h.seq == o.verdict_seq, h.cause == o.verdict_cause)
    query = sa.select(o.id).where(o.verdict_seq.is_not(None), ~known).order_by(o.id).limit(MOST)
    faults = [f"operations row {row.id} has a verdict that its history does not have" for row in view.connection.execute(query)]
    a = artifacts.c
    stored = sa.exists().where(a.id == o.result_artifact, a.operation == o.id, a.sha256 == o.result_sha256)
    query = sa.select(o.id).where(o.result_artifact.is_not(None), ~stored).order_by(o.id).limit(MOST)
    faults += [f"operations row {row.id} has a result that artifacts does not have so" for row in view.connection.execute(query)]
    for table in _OF_OPERATIONS:
        keys = list(table.primary_key.columns)
        owned = sa.exists().where(o.id == table.c.operation)
        query = sa.select(*keys).where(~owned).order_by(*keys).limit(MOST)
        faults += [f"{table.name} row {_named(row)} belongs to an operation that is not there" for row in view.connection.execute(query)]
    for table, keys in ((deliveries, [deliveries.c.id]), (remote_jobs, list(remote_jobs.primary_key.columns))):
        known_once = sa.exists().where(o.id == table.c.operation) | sa.exists().where(tombstones.c.operation == table.c.operation)
        query = sa.select(*keys).where(table.c.operation.is_not(None), ~known_once).order_by(*keys).limit(MOST)
        faults += [f"{table.name} row {_named(row)} belongs to an operation that is not there" for row in view.connection.execute(query)]
    return faults


def _named(row: Sequence[Any]) -> str:
    return ":".join(str(part) for part in row)
