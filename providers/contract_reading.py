"""Sections of a contract file: a table in, a frozen dataclass of `schemas/contract.py` out, its field names being the keys."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import EnumType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from providers.contract_faults import Faults, Path

_BAD: Final = object()
_MAX_TEXT: Final = 4_000  # characters of one text; contracts are written by people
_MAX_INT: Final = 2**53
_WRITTEN_AS: Final = {"place": "in"}  # field -> key in the file
_STATUS_KEYS: Final = frozenset({"accepted", "not_executed", "rejected", "refused", "ok", "not_found", "success_status"})
_MIN_STATUS, _MAX_STATUS = 100, 599


def read_section(shape: type[Any], table: Any, path: Path, faults: Faults) -> Any | None:
    """Return the section in `table`; absent and unreadable keys (their faults are added) are at their defaults."""
    if not isinstance(table, Mapping):
        faults.add(path, "must be a table")
        return None
    hints = get_type_hints(shape)
    known = {_WRITTEN_AS.get(item.name, item.name): item for item in fields(shape)}
    for key in table:
        if key not in known:
            faults.unknown((*path, key), known)
    values: dict[str, Any] = {}
    for key, item in known.items():
        if key not in table:
            continue
        value = _convert(hints[item.name], table[key], (*path, key), faults)
        if value is not _BAD:
            values[item.name] = value
    return shape(**values)


def _convert(hint: Any, value: Any, path: Path, faults: Faults) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return _convert(next(item for item in arguments if item is not type(None)), value, path, faults)
    if origin is Literal:
        return value if value in arguments else _word(value, arguments, path, faults)
    if isinstance(hint, EnumType):
        members: list[Any] = list(hint)
        words = [str(item.value) for item in members]
        return hint(value) if value in words else _word(value, words, path, faults)
    if origin is tuple:
        return _convert_tuple(arguments, value, path, faults)
    if origin is not None and issubclass(origin, Mapping):
        return _convert_table(arguments[1], value, path, faults)
    if isinstance(hint, type) and is_dataclass(hint):
        section = read_section(hint, value, path, faults)
        return _BAD if section is None else section
    return _scalar(hint, value, path, faults)


def _convert_tuple(arguments: tuple[Any, ...], value: Any, path: Path, faults: Faults) -> Any:
    inner = arguments[0]
    if get_origin(inner) is tuple:  # pairs are written as a table: dotted path = template
        table = _convert_table(str, value, path, faults)
        return table if table is _BAD else tuple(table.items())
    if not isinstance(value, list):
        faults.add(path, "must be a list")
        return _BAD
    items = [_convert(inner, item, (*path, index) if is_dataclass(inner) else path, faults) for index, item in enumerate(value)]
    return tuple(item for item in items if item is not _BAD)


def _convert_table(inner: Any, value: Any, path: Path, faults: Faults) -> Any:
    if not isinstance(value, Mapping):
        faults.add(path, "must be a table")
        return _BAD
    items = {key: _convert(inner, item, (*path, key), faults) for key, item in value.items()}
    return {key: item for key, item in items.items() if item is not _BAD}


def _scalar(hint: Any, value: Any, path: Path, faults: Faults) -> Any:
    problem = ""
    if hint is bool:
        problem = "" if isinstance(value, bool) else "must be true or false"
    elif hint is int:
        if isinstance(value, bool) or not isinstance(value, int):
            problem = "must be a whole number"
        elif not 0 <= value <= _MAX_INT:
            problem = "must not be negative" if value < 0 else "is too large"
        elif path[-1] in _STATUS_KEYS and not _MIN_STATUS <= value <= _MAX_STATUS:
            problem = f"{value} is no HTTP status ({_MIN_STATUS} to {_MAX_STATUS})"
    elif hint is float:
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MAX_INT
        problem = "" if good else "must be a number above 0"
        value = float(value) if good else value
    elif hint is str:
        problem = "" if isinstance(value, str) else "must be a text (in quotes)"
        problem = problem or ("is too long" if len(value) > _MAX_TEXT else "")
    if problem:
        faults.add(path, problem)
        return _BAD
    return value


def _word(value: Any, words: Any, path: Path, faults: Faults) -> Any:
    faults.word(path, value, [str(word) for word in words])
    return _BAD
