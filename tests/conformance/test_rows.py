"""An operation survives the way into its row and back, and only what changed is written."""

import dataclasses
import typing
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.engine import Engines
from ledger.errors import RecordError, VaultError
from ledger.rows import FIELDS, changed, from_row, to_row
from ledger.tables import operations
from ledger.vault import Vault
from schemas.operation import Expect, Operation
from schemas.states import State

VAULT = Vault(bytes(32))
HINTS = typing.get_type_hints(Operation)
TEXT = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=20)
MICROS = st.integers(min_value=0, max_value=2**62)
EXPECT = st.builds(
    Expect,
    media_type=st.none() | TEXT,
    max_bytes=st.none() | st.integers(min_value=0, max_value=2**40),
    min_bytes=st.none() | st.integers(min_value=0, max_value=2**40),
    sha256=st.none() | TEXT,
)


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, UnionType):
        return st.one_of([_values(part) for part in typing.get_args(hint)])
    match hint:
        case _ if hint is NoneType:
            return st.none()
        case _ if hint is str:
            return TEXT
        case _ if hint is int:
            return MICROS
        case _ if hint is bool:
            return st.booleans()
        case _ if hint is float:
            return st.floats(min_value=0, max_value=1)
        case _ if hint is bytes:
            return st.binary(max_size=50)
        case _ if hint is Expect:
            return EXPECT
        case _ if isinstance(hint, type) and issubclass(hint, StrEnum):
            return st.sampled_from(list(hint))
        case _ if typing.get_origin(hint) is tuple:
            return st.lists(TEXT, max_size=3).map(tuple)
        case _:
            return st.dictionaries(TEXT, TEXT, max_size=3)


OPERATIONS = st.builds(Operation, **{name: _values(HINTS[name]) for name in FIELDS})


@given(OPERATIONS)
def test_an_operation_comes_back_as_it_was(operation: Operation) -> None:
    """For any operation, from_row(to_row(x)) is x, and a row has exactly the table's columns."""
    row = to_row(operation, VAULT)
    assert set(row) == {column.name for column in operations.columns}
    assert from_row(row, VAULT) == operation
    for value in row.values():
        assert type(value) in {str, int, float, bool, bytes, NoneType}, "exact types: drivers treat subclasses differently"


@given(OPERATIONS, OPERATIONS)
@settings(max_examples=50)
def test_only_what_changed_is_written(old: Operation, other: Operation) -> None:
    """The changed columns, laid over the old row, give the new operation; unchanged ones are absent."""
    new = dataclasses.replace(other, id=old.id)
    columns = changed(old, new, VAULT)
    assert from_row(to_row(old, VAULT) | columns, VAULT) == new
    assert set(columns) == {name for name in FIELDS if getattr(old, name) != getattr(new, name)}
    assert changed(old, old, VAULT) == {}


def test_an_operation_comes_back_from_both_databases(engines: Engines, operation: Operation) -> None:
    """What was inserted is selected unchanged, as a row and as a mapping; texts outside ASCII and zeros included."""
    with engines.begin() as connection:
        connection.execute(operations.insert(), [to_row(operation, VAULT)])
    with engines.look() as connection:
        assert from_row(connection.execute(sa.select(operations)).one(), VAULT) == operation
        assert from_row(connection.execute(sa.select(operations)).mappings().one(), VAULT) == operation


def test_sealed_columns_are_unreadable(operation: Operation) -> None:
    """Request, metadata and people's words stand nowhere in the row in the clear (D6)."""
    words: dict[str, Any] = dict.fromkeys(("error_message", "cancel_reason", "cancel_effect"), "PRIVATE")
    row = to_row(dataclasses.replace(operation, request=b"PRIVATE", metadata={"a": "PRIVATE"}, **words), VAULT)
    assert b"PRIVATE" not in b"".join(str(value).encode() if not isinstance(value, bytes) else value for value in row.values())


@pytest.mark.parametrize(("column", "value"), [("state", "dreaming"), ("expect", b"{"), ("expect", b'{"x":1}'), ("approval_by", b"1")])
def test_a_foreign_row_names_its_place(operation: Operation, column: str, value: Any) -> None:
    """A row that this version does not write is an error with the row's id and the column, not a KeyError."""
    with pytest.raises(RecordError, match=f"operations.{column} of {operation.id}"):
        from_row(to_row(operation, VAULT) | {column: value}, VAULT)


def test_a_row_of_another_key_names_its_place(operation: Operation) -> None:
    """A sealed column that does not open says which."""
    row = to_row(dataclasses.replace(operation, request=b"x"), VAULT)
    with pytest.raises(VaultError, match=f"operations.request of {operation.id}"):
        from_row(row, Vault(b"1" * 32))


def test_words_are_of_their_kind(operation: Operation) -> None:
    """A state comes back as a State, so that `is` and `match` hold."""
    assert from_row(to_row(operation, VAULT), VAULT).state is State.OBSERVING
