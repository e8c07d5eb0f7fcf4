"""Operation <-> row of `operations`. On the path of every write, so the lists of fields are made once.

Sealed columns hold vault values; `expect`, `approval_by` and (inside the seal) `metadata`, `remembered` and `failed_refs` are
canonical JSON, `result_facts` is JSON as in the history; an empty value is NULL. Everything else is stored as it is.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa

from ledger.errors import RecordError
from ledger.tables import operations
from ledger.vault import Vault
from schemas.jsontext import canonical
from schemas.operation import Expect, Operation
from schemas.states import Cause, Errand, Mode, Question, Reading, State

FIELDS: Final = tuple(field.name for field in dataclasses.fields(Operation))
# The very same text objects as the parameters' names: with merely equal ones a call with keywords is four times slower.
_COLUMNS: Final = tuple({name: name for name in FIELDS}[column.name] for column in operations.columns)
_values: Final = attrgetter(*FIELDS)
_WORDS: Final[tuple[tuple[str, Mapping[Any, StrEnum]], ...]] = tuple(
    (name, {word.value: word for word in kind})
    for name, kind in (
        ("mode", Mode), ("state", State), ("reading", Reading), ("ending", Reading), ("ending_cause", Cause),
        ("question_kind", Question), ("open_errand", Errand), ("verdict_cause", Cause),
    )
)  # fmt: skip
_WORD_NAMES: Final = tuple(name for name, _ in _WORDS)
_SEALED_TEXTS: Final = ("error_message", "cancel_reason", "cancel_effect")
_MAPPINGS: Final = ("metadata", "remembered")
_NOTHING: Final = Expect()


def _write_expect(value: Expect) -> bytes | None:
    if value == _NOTHING:
        return None
    return canonical({name: item for name, item in dataclasses.asdict(value).items() if item is not None})


def _write_names(value: tuple[str, ...]) -> bytes | None:
    return canonical(list(value)) if value else None


def _write_mapping(value: Mapping[str, str]) -> bytes | None:
    return canonical(dict(value)) if value else None


def _write_text(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _write_facts(value: Mapping[str, Any] | None) -> bytes | None:
    return None if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


_PLAIN: Final[dict[str, Callable[[Any], bytes | None]]] = {
    "expect": _write_expect,
    "approval_by": _write_names,
    "result_facts": _write_facts,
}
_SEALED: Final[dict[str, Callable[[Any], bytes | None]]] = {
    "request": lambda value: value,  # bytes already
    "metadata": _write_mapping,
    "failed_refs": _write_names,
    "remembered": _write_mapping,
    **dict.fromkeys(_SEALED_TEXTS, _write_text),
}

_READ: Final[dict[str, Callable[[bytes], Any]]] = {
    "request": bytes,
    **dict.fromkeys(_MAPPINGS, json.loads),
    "failed_refs": lambda plain: tuple(json.loads(plain)),
}


def to_row(operation: Operation, vault: Vault) -> dict[str, Any]:
    """Return the columns of `operation`, ready to be bound."""
    row = dict(zip(FIELDS, _values(operation), strict=True))
    for name in _WORD_NAMES:
        if row[name] is not None:
            row[name] = str(row[name])  # drivers treat enums differently; an exact text is the same to all
    for name, write in _PLAIN.items():
        row[name] = write(row[name])
    for name, write in _SEALED.items():
        plain = write(row[name])
        row[name] = None if plain is None else vault.seal("operations", name, operation.id, plain)
    return row


def changed(old: Operation, new: Operation, vault: Vault) -> dict[str, Any]:
    """Return only the columns in which `new` differs from `old`, ready to be bound. Both are of one id."""
    assert old.id == new.id, "two different operations"
    row: dict[str, Any] = {}
    for name, before, after in zip(FIELDS, _values(old), _values(new), strict=True):
        if before is after or before == after:
            continue
        if name in _SEALED:
            plain = _SEALED[name](after)
            row[name] = None if plain is None else vault.seal("operations", name, new.id, plain)
        elif name in _PLAIN:
            row[name] = _PLAIN[name](after)
        else:
            row[name] = str(after) if isinstance(after, StrEnum) else after
    return row


def from_row(row: sa.Row[Any] | Mapping[Any, Any], vault: Vault) -> Operation:
    """Return the operation of a whole row of `operations` (a Row of exactly `select(operations)`, or a mapping by column name).

    Raises VaultError when a sealed column does not open, RecordError when the row is not of this version's form.
    """
    values: dict[str, Any] = {}
    name = ""
    try:
        values = dict(zip(_COLUMNS, row, strict=True)) if isinstance(row, sa.Row) else {name: row[name] for name in _COLUMNS}
        for name, words in _WORDS:
            if values[name] is not None:
                values[name] = words[values[name]]
        for name in _SEALED:
            sealed = values[name]
            if sealed is not None:
                plain = vault.unseal("operations", name, values["id"], sealed)
                values[name] = _READ.get(name, bytes.decode)(plain)
        for name in _MAPPINGS:
            if values[name] is None:
                values[name] = {}
        name = "approval_by"
        values[name] = () if values[name] is None else tuple(json.loads(values[name]))
        values["failed_refs"] = values["failed_refs"] or ()
        name = "result_facts"
        values[name] = None if values[name] is None else json.loads(values[name])
        name = "expect"
        values[name] = _NOTHING if values[name] is None else Expect(**json.loads(values[name]))
        return Operation(**values)
    except (KeyError, ValueError, TypeError) as error:
        raise RecordError(f"operations.{name} of {values.get('id', '?')} is not of this version's form") from error


def history_text_row(operation: str, seq: int) -> str:
    """Return the vault's row name of a text in `history_texts`."""
    return f"{operation}:{seq}"
