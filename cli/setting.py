"""Single settings: their names, their types, and which values each one takes. Pure; messages never repeat a value."""

import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, Final

from providers.origins import address, fault_of
from schemas.settings import ProviderSettings, Settings

MAX_TEXT: Final = 4_096  # longer than any path, URL or reference that is meant
MAX_ITEMS: Final = 256  # secrets, owners, origins of one provider
MAX_PORT: Final = 65_535
MAX_PAUSE: Final = 604_800  # a week

PROVIDER_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")
_REFERENCE: Final = re.compile(r"(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\0]+|vault:[A-Za-z0-9][A-Za-z0-9_.-]*)\Z")
_CONSTANT: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_DATABASE: Final = re.compile(r"(sqlite:///(?!:memory:)[^?\0]+|postgres(ql)?(\+psycopg)?://[^\0]*)\Z")


class EnvironmentText(str):
    """A value as the environment has it: text that is still to be read as the setting's type."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting as the documentation shows it. In provider settings `NAME` stands for the provider's name."""

    path: str  # "web.port"
    kind: str  # "text", "whole number", "number", "yes or no", "list of texts"
    default: Any  # MISSING: it must be given
    variable: str  # "GATEWAY_WEB__PORT"


def variable(path: str) -> str:
    """Return the environment variable that overrides the setting at `path`."""
    return "GATEWAY_" + path.upper().replace("-", "_").replace(".", "__")


def every() -> Iterator[Setting]:
    """Yield all settings in the order of the shapes."""
    yield from _every(Settings, "")


def _every(shape: type, prefix: str) -> Iterator[Setting]:
    for item in fields(shape):
        path = f"{prefix}{item.name}"
        if path == "providers":
            yield from _every(ProviderSettings, "providers.NAME.")
        elif is_dataclass(item.type) and isinstance(item.type, type):
            yield from _every(item.type, f"{path}.")
        elif path != "providers.NAME.name":
            yield Setting(path=path, kind=kind_of(item), default=default_of(item), variable=variable(path))


def default_of(item: Field[Any]) -> Any:
    """Return the default of a dataclass field, MISSING where it must be given."""
    return item.default_factory() if item.default_factory is not MISSING else item.default


def kind_of(item: Field[Any]) -> str:
    """Return the kind of value that a field takes, for people."""
    return _KINDS[_core(item.type)][0]


def read(item: Field[Any], value: Any) -> tuple[Any, str]:
    """Return the typed value of a field and the empty text, or None and what is wrong with it."""
    kind, parse = _KINDS[_core(item.type)]
    if isinstance(value, EnvironmentText) and value == "" and item.default is None:
        return None, ""
    typed = parse(value)
    return (None, f"must be a {kind}") if typed is None else (typed, "")


def _core(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):  # `str | None` is read as `str`
        return next(part for part in typing.get_args(hint) if part is not types.NoneType)
    return hint


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or not value or len(value) > MAX_TEXT or any(ord(char) < ord(" ") for char in value):
        return None
    return str(value)


def _whole(value: Any) -> int | None:
    if isinstance(value, EnvironmentText):
        return int(value) if re.fullmatch(r"-?[0-9]{1,15}", value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    if isinstance(value, EnvironmentText):
        return float(value) if re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", value) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _yes_or_no(value: Any) -> bool | None:
    if isinstance(value, EnvironmentText):
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(value.lower())
    return value if isinstance(value, bool) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, EnvironmentText):
        value = [part.strip() for part in value.split(",")] if value.strip() else []
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        return None
    parts = tuple(_text(part) for part in value)
    return None if None in parts else typing.cast("tuple[str, ...]", parts)


def _constants(value: Any) -> dict[str, str] | None:
    if isinstance(value, EnvironmentText):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {name.strip(): text.strip() if mark else None for name, mark, text in pairs}
    if not isinstance(value, dict) or len(value) > MAX_ITEMS:
        return None
    parts = {str(name): _text(text) for name, text in value.items()}
    return None if None in parts.values() else typing.cast("dict[str, str]", parts)


_KINDS: Final[Mapping[Any, tuple[str, Callable[[Any], Any]]]] = {
    str: ("text", _text),
    int: ("whole number", _whole),
    float: ("number", _number),
    bool: ("yes or no", _yes_or_no),
    tuple[str, ...]: ("list of texts", _texts),
    Mapping[str, str]: ("table of texts", _constants),
}


# --- which values a setting takes; each check answers the empty text or what is wrong


def check(path: str, value: Any) -> str:
    """Return what is wrong with the typed `value` of the setting at `path` (`providers.NAME.…`), or the empty text."""
    special = _CHECKS.get(path)
    if special is not None:
        return special(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 < value < 1 << 53:
        return "must be greater than 0"
    return ""


def _one_of(*words: str) -> Callable[[Any], str]:
    return lambda value: "" if value in words else "must be one of " + ", ".join(words)


def _port(value: Any) -> str:
    return "" if 0 <= value <= MAX_PORT else f"must be from 0 to {MAX_PORT}"


def _database(value: Any) -> str:
    return "" if _DATABASE.match(value) else "must be sqlite:///PATH or postgresql://USER@HOST/NAME"


def _reference(value: Any) -> str:
    return "" if _REFERENCE.match(value) else "must be a reference (env:NAME, file:PATH or vault:NAME), never the secret itself"


def _references(value: Any) -> str:
    return next((fault for fault in map(_reference, value) if fault), "")


def _pause(value: Any) -> str:
    return "" if 0 <= value <= MAX_PAUSE else f"must be from 0 (none) to {MAX_PAUSE}"


def _params(value: Any) -> str:
    if not all(_CONSTANT.match(name) for name in value):
        return "has a name that is not made of letters, digits, _, . and -, at most 64 of them"
    if any(text.startswith("vault:") for text in value.values()):
        return "takes values and references env:NAME and file:PATH; the encrypted store holds secrets, not constants"
    return ""


def _url(value: Any) -> str:
    found = address(value)
    if found is None or "#" in value or "?" in value:
        return "must be an http:// or https:// address without user, query or fragment"
    return ""


def _origins(value: Any) -> str:
    return next((fault for fault in map(fault_of, value) if fault), "")


_CHECKS: Final[Mapping[str, Callable[[Any], str]]] = {
    "database_url": _database,
    "public_url": _url,
    "log_level": _one_of("debug", "info", "warning", "error"),
    "log_format": _one_of("auto", "text", "json"),
    "web.port": _port,
    "providers.NAME.base_url": _url,
    "providers.NAME.secrets": _references,
    "providers.NAME.credential": _reference,
    "providers.NAME.result_origins": _origins,
    "providers.NAME.params": _params,
    "providers.NAME.sweep_seconds": _pause,
}
